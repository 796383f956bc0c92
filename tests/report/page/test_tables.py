"""tables.npz, whole, broken or foreign."""

import resource
import zipfile
from pathlib import Path

import numpy as np
import pytest

from trilab.report.tables import read_tables


def test_layers_come_in_their_order_with_their_tables_before_and_after(tmp_path: Path) -> None:
    table = np.tril(np.ones((2, 4, 4), dtype=np.float32))
    np.savez(tmp_path / "tables.npz", **{"after/layer_10": table, "before/layer_2": table, "after/layer_2": 2 * table})
    second, tenth = read_tables(tmp_path)
    assert (second.layer, tenth.layer) == (2, 10)
    assert second.before is not None
    assert second.after is not None
    assert (second.after == 2 * second.before).all()
    assert tenth.before is None


@pytest.mark.parametrize("content", [None, b"", b"half of a file", b"PK\x03\x04" + bytes(40)])
def test_a_missing_or_broken_file_has_no_tables(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "tables.npz").write_bytes(content)
    assert read_tables(tmp_path) == []


def test_a_file_cut_anywhere_has_no_tables(tmp_path: Path) -> None:
    path = tmp_path / "tables.npz"
    np.savez(path, **{"after/layer_0": np.ones((1, 4, 4), dtype=np.float32)})
    whole = path.read_bytes()
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        assert read_tables(tmp_path) == []


@pytest.mark.parametrize(
    "array",
    [
        np.ones((4, 4), dtype=np.float32),
        np.ones((1, 4, 5), dtype=np.float32),
        np.ones((1, 0, 0), dtype=np.float32),
        np.ones((1, 65, 65), dtype=np.float32),
        np.full((1, 4, 4), np.nan, dtype=np.float32),
        np.array([[["a"]]]),
    ],
    ids=str,
)
def test_what_is_no_table_is_passed_over(tmp_path: Path, array: np.ndarray) -> None:
    good = np.ones((1, 2, 2), dtype=np.float32)
    np.savez(tmp_path / "tables.npz", **{"after/layer_0": array, "after/layer_1": good, "else": good})
    assert [layer.layer for layer in read_tables(tmp_path)] == [1]


def test_pickled_objects_are_not_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "tables.npz", **{"after/layer_0": np.array([[[{}]]], dtype=object)})
    assert read_tables(tmp_path) == []


def test_an_archive_of_something_else_has_no_tables(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "tables.npz", "w") as archive:
        archive.writestr("after/layer_0.npy", b"no array")
    assert read_tables(tmp_path) == []


def test_no_damage_to_a_file_of_tables_is_more_than_no_tables(tmp_path: Path) -> None:
    arrays = {f"after/layer_{layer}": np.full((2, 8, 8), 0.5, np.float32) for layer in range(3)}
    draws = np.random.default_rng(0)
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "whole.npz", **arrays)  # type: ignore[operator]
        whole = (tmp_path / "whole.npz").read_bytes()
        for _ in range(300):
            damaged = bytearray(whole)
            for place in draws.integers(len(whole), size=4):
                damaged[place] ^= 1 << int(draws.integers(8))
            (tmp_path / "tables.npz").write_bytes(damaged)
            read_tables(tmp_path)


def test_a_small_file_that_holds_much_is_not_unpacked(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "tables.npz", **{"after/layer_0": np.zeros((1, 4000, 4000), np.float32)})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read_tables(tmp_path) == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # kB; unpacked it takes 64,000

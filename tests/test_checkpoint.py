"""Checkpoints that stand alone; files that are none are refused, and nothing in them is executed."""

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trilab.checkpoint import VERSION, describe, load, model_weights
from trilab.checkpoint_io import AtomicCheckpoints
from trilab.errors import BadInput

from .hostile import BOMBS, CODE, FOREIGN, Hostile, members, saved, with_pickle, zipped


def content(**more: Any) -> dict[str, Any]:
    weights = {"model.lm_head.weight": torch.arange(3.0), "validation.nats": torch.zeros(())}
    state = {"step": 4, "best": {"val_loss": 2.5, "step": 2}}
    return {"state_dict": weights, "trilab": describe({"seed": 0}, "\n ab") | state, **more}


class Pickled:
    """Runs code when it is unpickled: it makes a file called executed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.touch, (self.folder / "executed",)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    AtomicCheckpoints().save_checkpoint(content(), tmp_path / "a" / "last.ckpt")
    found = load(tmp_path / "a" / "last.ckpt")
    assert found["trilab"].items() >= {"version": VERSION, "config": {"seed": 0}, "vocabulary": "\n ab"}.items()
    assert torch.equal(found["state_dict"]["model.lm_head.weight"], torch.arange(3.0))


def test_the_one_before_the_latest_is_kept(tmp_path: Path) -> None:
    for step in (2, 4, 6):
        AtomicCheckpoints().save_checkpoint({**content(), "step": step}, tmp_path / "last.ckpt")
        AtomicCheckpoints().save_checkpoint({**content(), "step": step}, tmp_path / "best.ckpt")
    assert {path.name: load(path)["step"] for path in tmp_path.iterdir()} == {
        "last.ckpt": 6,
        "previous.ckpt": 4,
        "best.ckpt": 6,
    }


@pytest.mark.parametrize("at", [0.15, 0.3, 0.45, 0.6, 0.75])
def test_one_flipped_bit_in_what_was_stored_is_noticed(tmp_path: Path, at: float) -> None:
    whole = content()
    whole["state_dict"] |= {f"model.{name}": torch.randn(400) for name in "abcdef"}
    AtomicCheckpoints().save_checkpoint(whole, tmp_path / "last.ckpt")
    stored = bytearray((tmp_path / "last.ckpt").read_bytes())
    stored[int(at * len(stored))] ^= 1
    (tmp_path / "last.ckpt").write_bytes(stored)
    with pytest.raises(BadInput, match="is not a readable checkpoint"):
        load(tmp_path / "last.ckpt")


@pytest.mark.parametrize("part", ["config", "vocabulary", "step", "best"])
def test_a_checkpoint_that_lacks_a_part_is_refused_by_its_name(tmp_path: Path, part: str) -> None:
    whole = content()
    del whole["trilab"][part]
    torch.save(whole, tmp_path / "last.ckpt")
    with pytest.raises(BadInput, match=f"is not complete: it holds no {part}"):
        load(tmp_path / "last.ckpt")


def test_the_model_s_weights_come_under_the_model_s_own_names() -> None:
    weights = {
        "model.lm_head.weight": torch.zeros(2),
        "model.model.x": torch.ones(1),
        "validation.nats": torch.zeros(1),
    }
    assert set(model_weights({"state_dict": weights})) == {"lm_head.weight", "model.x"}


def test_a_save_that_fails_leaves_the_checkpoint_before_it(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    AtomicCheckpoints().save_checkpoint(content(), path)
    before = path.read_bytes()
    with pytest.raises((AttributeError, pickle.PicklingError, TypeError)):
        AtomicCheckpoints().save_checkpoint(content(wrong=lambda: 0), path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["last.ckpt"]


@pytest.fixture(scope="module")
def whole() -> bytes:
    """The bytes of a good checkpoint, of 12 kB."""
    return saved(content())


def unreadable(path: Path) -> str:
    """The one line that refuses it."""
    with pytest.raises(BadInput) as caught:
        load(path)
    line = str(caught.value)
    assert line.startswith(f"ckpt={path}")
    assert line.isprintable()  # no line end either
    assert len(line) < 400 + len(str(path))
    return line


def hostile(files: list[Hostile]) -> list[Any]:
    slow = {"sixteen million dicts in a pickle that is short enough"}
    return [pytest.param(f, id=f.name, marks=pytest.mark.slow if f.name in slow else ()) for f in files]


@pytest.mark.parametrize("file", hostile(CODE))
def test_code_of_any_kind_is_refused_in_one_line_and_not_executed(tmp_path: Path, whole: bytes, file: Hostile) -> None:
    file.make(tmp_path / "x.ckpt", whole, tmp_path / "canary")
    (tmp_path / "canary").unlink(missing_ok=True)
    assert "Give a .ckpt file that trilab wrote." in unreadable(tmp_path / "x.ckpt")
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("file", [f for f in CODE if f.name == "os.system in protocol 2 as a bare pickle"])
def test_the_code_of_these_tests_does_what_it_says_where_a_pickle_is_trusted(
    tmp_path: Path, whole: bytes, file: Hostile
) -> None:
    file.make(tmp_path / "x.ckpt", whole, tmp_path / "canary")
    pickle.loads((tmp_path / "x.ckpt").read_bytes())
    assert (tmp_path / "canary").exists()


@pytest.mark.parametrize("file", hostile(BOMBS))
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the highest memory is read as Linux tells it")
def test_what_would_be_far_more_in_memory_than_on_the_disk_is_refused_before_it_is(
    tmp_path: Path, whole: bytes, file: Hostile
) -> None:
    file.make(tmp_path / "x.ckpt", whole, tmp_path / "canary")
    Path("/proc/self/clear_refs").write_text("5")  # the highest so far is now
    before = highest_memory()
    unreadable(tmp_path / "x.ckpt")
    assert highest_memory() - before < 200e6


def highest_memory() -> float:
    """Bytes of this process."""
    status = Path("/proc/self/status").read_text()
    return 1024 * float(status.partition("VmHWM:")[2].split()[0])


@pytest.mark.parametrize("file", hostile(FOREIGN))
def test_what_trilab_did_not_write_is_refused_in_one_line(tmp_path: Path, whole: bytes, file: Hostile) -> None:
    file.make(tmp_path / "x.ckpt", whole, tmp_path / "canary")
    unreadable(tmp_path / "x.ckpt")


def test_a_list_of_numbers_that_takes_too_many_operations_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.save(content(more=list(range(1000))), tmp_path / "x.ckpt")
    load(tmp_path / "x.ckpt")
    monkeypatch.setattr("trilab.archive.MOST_STEPS", 1000)
    assert "takes more than 1,000 operations" in unreadable(tmp_path / "x.ckpt")


def test_a_version_that_is_no_number_is_shown_short(tmp_path: Path) -> None:
    for version in (True, 1.0, ["\x1b[2J"] * 10_000, "1" * 10_000, {"a": [[[[[[[[1]]]]]]]]}):
        torch.save({**content(), "trilab": {"version": version}}, tmp_path / "x.ckpt")
        assert "has format version" in unreadable(tmp_path / "x.ckpt")


def test_names_short_tuples_and_tensors_may_stand_in_two_places(tmp_path: Path) -> None:
    tensor, name, pair = torch.arange(3.0), "a name"[:], (0.9, "a", None)
    whole = content(more=[tensor, tensor, {name: name}, pair, pair])
    torch.save(whole, tmp_path / "x.ckpt")
    assert same(load(tmp_path / "x.ckpt")["more"][0], tensor)


def test_bytes_between_members_are_refused(tmp_path: Path, whole: bytes) -> None:
    (tmp_path / "x.ckpt").write_bytes(b"before" + zipped(members(whole)))
    unreadable(tmp_path / "x.ckpt")
    with zipfile.ZipFile(tmp_path / "y.ckpt", "w") as archive:
        for name, stored in members(whole).items():
            archive.fp.write(b"between")  # type: ignore[union-attr]
            archive.start_dir = archive.fp.tell()  # type: ignore[union-attr, attr-defined]
            archive.writestr(name, stored)
    assert "bytes that belong to no member" in unreadable(tmp_path / "y.ckpt")


@pytest.mark.parametrize("mark", [0x01, 0x10])  # read-only, folder
def test_a_marked_member_is_refused(tmp_path: Path, whole: bytes, mark: int) -> None:
    with zipfile.ZipFile(tmp_path / "x.ckpt", "w") as archive:
        for name, stored in members(whole).items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mark if name == "archive/data/0" else 0
            archive.writestr(info, stored)
    assert "says more of a member" in unreadable(tmp_path / "x.ckpt")


def same(one: Any, other: Any) -> bool:
    """Whether two contents are equal, tensors bit for bit."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and [*one] == [*other] and all(same(one[key], other[key]) for key in one)
    return bool(one == other)


def loaded_or_refused(path: Path) -> dict[str, Any] | str:
    """What is in it, or the line that refuses it."""
    try:
        return load(path)
    except BadInput as error:
        return str(error)


def try_broken(path: Path, broken: bytes) -> None:
    """A broken checkpoint is refused in one line, or nothing that counts is broken in it."""
    path.write_bytes(broken)
    found = loaded_or_refused(path)
    assert found.isprintable() if isinstance(found, str) else same(found, content())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bits_are_noticed_or_change_nothing(tmp_path: Path, whole: bytes, data: st.DataObject) -> None:
    broken = bytearray(whole)
    for bit in data.draw(st.lists(st.integers(0, 8 * len(whole) - 1), min_size=1, max_size=3)):
        broken[bit // 8] ^= 1 << bit % 8
    try_broken(tmp_path / "x.ckpt", bytes(broken))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_checkpoint_that_is_cut_off_anywhere_is_refused(tmp_path: Path, whole: bytes, data: st.DataObject) -> None:
    length = data.draw(st.integers(0, len(whole) - 1))
    (tmp_path / "x.ckpt").write_bytes(whole[:length])
    unreadable(tmp_path / "x.ckpt")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_pickle_with_other_bytes_whose_sum_is_right_is_refused_or_plain(
    tmp_path: Path, whole: bytes, data: st.DataObject
) -> None:
    pickled = bytearray(members(whole)["archive/data.pkl"])
    for place in data.draw(st.lists(st.integers(0, len(pickled) - 1), min_size=1, max_size=4)):
        pickled[place] = data.draw(st.integers(0, 255))
    (tmp_path / "x.ckpt").write_bytes(with_pickle(whole, bytes(pickled)))
    found = loaded_or_refused(tmp_path / "x.ckpt")
    assert found.isprintable() if isinstance(found, str) else isinstance(found["trilab"]["vocabulary"], str)


@pytest.mark.slow
def test_every_single_bit_and_every_length(tmp_path: Path, whole: bytes) -> None:
    for bit in range(8 * len(whole)):
        broken = bytearray(whole)
        broken[bit // 8] ^= 1 << bit % 8
        try_broken(tmp_path / "x.ckpt", bytes(broken))
    for length in range(len(whole)):
        (tmp_path / "x.ckpt").write_bytes(whole[:length])
        unreadable(tmp_path / "x.ckpt")


def test_weights_that_nobody_reads_take_no_memory(tmp_path: Path) -> None:
    torch.save(content(optimizer=torch.zeros(30_000_000)), tmp_path / "x.ckpt")  # 120 MB
    Path("/proc/self/clear_refs").write_text("5")
    before = highest_memory()
    found = load(tmp_path / "x.ckpt", mapped=True)
    assert torch.equal(found["state_dict"]["model.lm_head.weight"], torch.arange(3.0))
    assert highest_memory() - before < 60e6


def missing(path: Path) -> None:
    pass


def folder(path: Path) -> None:
    path.mkdir()


def empty(path: Path) -> None:
    path.touch()


def text(path: Path) -> None:
    path.write_text("hello world\n" * 50)


def truncated(path: Path) -> None:
    torch.save(content(), path)
    path.write_bytes(path.read_bytes()[:-200])


def cut_in_half(path: Path) -> None:
    torch.save(content(), path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def another_dict(path: Path) -> None:
    torch.save({"state_dict": {"a": torch.zeros(2)}}, path)


def a_list(path: Path) -> None:
    torch.save([1, 2], path)


def another_trilab(path: Path) -> None:
    torch.save({**content(), "trilab": 3}, path)


def another_version(path: Path) -> None:
    torch.save({**content(), "trilab": {"version": VERSION + 1}}, path)


def code_saved_by_torch(path: Path) -> None:
    torch.save(content(wrong=Pickled(path.parent)), path)


def code_in_a_bare_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(Pickled(path.parent), protocol=2))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (missing, "there is no such file"),
        (folder, "is a folder"),
        (empty, "is not a readable checkpoint"),
        (text, "is not a readable checkpoint"),
        (truncated, "is not a readable checkpoint"),
        (cut_in_half, "is not a readable checkpoint"),
        (code_saved_by_torch, "is not a readable checkpoint"),
        (code_in_a_bare_pickle, "is not a readable checkpoint"),
        (another_dict, "was not written by trilab"),
        (a_list, "was not written by trilab"),
        (another_trilab, "was not written by trilab"),
        (another_version, f"has format version {VERSION + 1}; this trilab reads version {VERSION}"),
    ],
)
def test_what_is_no_checkpoint_gets_one_clear_line_and_nothing_in_it_is_executed(
    tmp_path: Path, make: Callable[[Path], None], said: str
) -> None:
    path = tmp_path / "x.ckpt"
    make(path)
    with pytest.raises(BadInput) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"ckpt={path}")
    assert said in message
    assert "\n" not in message
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("make", [empty, text, truncated, code_saved_by_torch, code_in_a_bare_pickle])
def test_the_message_says_what_would_be_right_and_never_how_to_execute_the_file(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    make(tmp_path / "x.ckpt")
    with pytest.raises(BadInput) as caught:
        load(tmp_path / "x.ckpt")
    assert "trilab wrote" in str(caught.value)
    assert "weights_only" not in str(caught.value)
    assert "\x1b" not in str(caught.value)

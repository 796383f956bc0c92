"""Checkpoints that stand alone; files that are none are refused, and nothing in them is executed."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from trilab.checkpoint import VERSION, AtomicCheckpoints, describe, load, model_weights
from trilab.errors import BadInput


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

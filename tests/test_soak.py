"""Killed at any moment and started again, a run loses nothing; the long form of this is `make soak`."""

from pathlib import Path

import pytest

from . import soak
from .command import train_py


@pytest.fixture
def learnt(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(soak.TEXT)
    return path


@pytest.mark.parametrize(("kills", "steps"), [(1, 60), pytest.param(2, 100, marks=pytest.mark.slow)])
def test_a_run_that_is_killed_ends_as_if_it_had_not_been(kills: int, steps: int, tmp_path: Path, learnt: Path) -> None:
    keys = f"trainer.max_steps={steps}"
    tally = soak.soak("one process", keys, kills=kills, seed=3, text=learnt, folder=tmp_path / "soak")
    assert tally.holds, tally


@pytest.mark.slow
def test_a_run_on_two_processes_ends_as_if_it_had_not_been_killed(tmp_path: Path, learnt: Path) -> None:
    tally = soak.soak("two processes", "trainer.max_steps=60", kills=1, seed=1, text=learnt, folder=tmp_path / "soak")
    assert tally.holds, tally


@pytest.mark.slow
def test_the_soak_sees_a_damaged_checkpoint_and_what_is_left_behind(tmp_path: Path, text: Path) -> None:
    run = train_py(tmp_path, "agg=softmax", "callbacks.sample_chars=0", text=text).run
    outputs = run.parents[1]
    assert (soak.damaged(outputs), soak.left_behind(outputs)) == (0, 0)
    before = soak.ended(run)
    path = run / "checkpoints" / "last.ckpt"
    content = bytearray(path.read_bytes())
    content[content.index(b"archive/data/0") + 200] ^= 1  # a bit of the first tensor
    path.write_bytes(content)
    assert soak.damaged(outputs) == 1
    (path.parent / ".last.ckpt.abc.partial").touch()
    (run / ".lock").touch()
    assert soak.left_behind(outputs) == 2
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    path.write_bytes((path.parent / "best.ckpt").read_bytes())
    (run / "metrics.jsonl").write_text("".join([lines[0], *lines]))
    tally = soak.Tally()
    tally.compare(run, before)
    assert (tally.equal, tally.rows_doubled, tally.rows_lost) == (0, 1, 0)
    (run / "metrics.jsonl").write_text("".join(lines[1:]))
    tally.compare(run, before)
    assert (tally.equal, tally.rows_doubled, tally.rows_lost) == (0, 1, 1)

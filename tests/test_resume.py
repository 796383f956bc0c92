"""What a run goes on from: the latest checkpoint that is whole and its own, whatever became of the others."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from trilab.checkpoint import load

from .conftest import Outcome, untimed

Train = Callable[..., Outcome]
COMMAND = ("agg=attention", "model.dropout=0.2", "trainer.max_steps=6", "trainer.checkpoint_every=2")


def unfinished(train: Train) -> tuple[Path, list[object]]:
    """A run that was stopped just before its summary (last.ckpt of step 6, previous.ckpt of step 4); its results."""
    run = train(*COMMAND).run
    came_to = results(run)
    (run / "summary.json").unlink()
    return run, came_to


def results(run: Path) -> list[object]:
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    weights = {name: tensor.tolist() for name, tensor in load(run / "checkpoints/last.ckpt")["state_dict"].items()}
    return [untimed(rows), untimed(json.loads((run / "summary.json").read_text())), weights]


def cut_off(path: Path, train: Train) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def empty(path: Path, train: Train) -> None:
    path.write_bytes(b"")


def gone(path: Path, train: Train) -> None:
    path.unlink()


def of_another_strategy(path: Path, train: Train) -> None:
    other = train("agg=softmax", "experiment_name=other")
    [run] = other.outputs.glob("other/*-seed*/")
    shutil.copy(run / "checkpoints/last.ckpt", path)


def of_another_rate(path: Path, train: Train) -> None:
    other = train(*COMMAND, "optim.lr=0.5", "experiment_name=other")
    [run] = other.outputs.glob("other/*-seed*/")
    shutil.copy(run / "checkpoints/last.ckpt", path)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (cut_off, "is not a readable checkpoint"),
        (empty, "is not a readable checkpoint"),
        (of_another_strategy, "agg._target_ was trilab.agg.softmax.SoftmaxMean"),
        (of_another_rate, "optim.lr was 0.5 and is now 0.01"),
        (gone, ""),
    ],
)
def test_a_last_checkpoint_that_cannot_be_used_is_named_and_the_one_before_it_is(
    train: Train, spoil: Callable[[Path, Train], None], said: str
) -> None:
    run, came_to = unfinished(train)
    last = run / "checkpoints" / "last.ckpt"
    spoil(last, train)
    again = train(*COMMAND)
    assert again.code == 0, again.err
    assert said in again.out
    assert not said or f"ckpt={last}" in again.out
    assert f"Goes on from step 4 ({last.with_name('previous.ckpt')})" in again.out
    assert results(run) == came_to
    assert (last.with_name("damaged.ckpt")).exists() == bool(said)


def test_a_run_whose_checkpoints_are_all_damaged_is_refused_until_it_is_to_begin_anew(train: Train) -> None:
    run, came_to = unfinished(train)
    for name in ("last.ckpt", "previous.ckpt"):
        cut_off(run / "checkpoints" / name, train)
    refused = train(*COMMAND)
    assert refused.code == 2
    assert all(f"ckpt={run / 'checkpoints' / name}" in refused.err for name in ("last.ckpt", "previous.ckpt"))
    assert "force=true trains it anew" in refused.err
    assert train(*COMMAND, "force=true").code == 0
    assert results(run) == came_to


def test_what_a_killed_process_had_half_written_is_removed(train: Train) -> None:
    run, came_to = unfinished(train)
    for half in (run / ".summary.json.abc.partial", run / "checkpoints" / ".last.ckpt.abc.partial"):
        half.write_bytes(b"half")
    assert train(*COMMAND).code == 0
    assert not list(run.rglob("*.partial"))
    assert results(run) == came_to


def test_more_steps_are_refused_where_the_rate_depends_on_how_many_there_are(train: Train) -> None:
    first = train("optim=cosine", "optim.warmup_steps=0", "trainer.max_steps=2")
    ckpt = f"ckpt={first.run / 'checkpoints' / 'last.ckpt'}"
    refused = train("optim=cosine", "optim.warmup_steps=0", "trainer.max_steps=4", ckpt)
    assert refused.code == 2
    assert "trainer.max_steps was 2 and is now 4" in refused.err


def test_a_checkpoint_whose_weights_are_not_those_of_its_config_is_refused_by_name(
    train: Train, tmp_path: Path
) -> None:
    first = train("agg=attention")
    content = load(first.run / "checkpoints" / "last.ckpt")
    content["state_dict"]["model.lm_head.weight"] = torch.zeros(11, 33)
    torch.save(content, tmp_path / "other.ckpt")
    refused = train("agg=attention", "trainer.max_steps=6", f"ckpt={tmp_path / 'other.ckpt'}")
    assert refused.code == 2
    assert "other.ckpt cannot be gone on from: its lm_head.weight has the shape (11, 33)," in refused.err


def test_more_steps_at_a_constant_rate_end_as_if_they_had_been_asked_for_at_once(train: Train) -> None:
    first = train("agg=attention", "trainer.max_steps=2", "experiment_name=first")
    ckpt = f"ckpt={first.run / 'checkpoints' / 'last.ckpt'}"
    assert train("agg=attention", "trainer.max_steps=4", "experiment_name=more", ckpt).code == 0
    whole = train("agg=attention", "trainer.max_steps=4", "experiment_name=whole")
    [[more], [once]] = ([*whole.outputs.glob(f"{name}/*-seed*/")] for name in ("more", "whole"))
    assert more.name == once.name
    assert results(more)[2] == results(once)[2]


def test_an_own_best_checkpoint_that_is_damaged_is_told_and_looked_for_anew(train: Train) -> None:
    run, _ = unfinished(train)
    (run / "checkpoints" / "last.ckpt").unlink()
    cut_off(run / "checkpoints" / "best.ckpt", train)
    again = train(*COMMAND)
    assert again.code == 0, again.err
    assert f"{run / 'checkpoints' / 'best.ckpt'} is not a readable checkpoint" in again.out
    assert load(run / "checkpoints" / "best.ckpt")["trilab"]["step"] == 6

"""Several processes train one run as one process would, and end together when one of them breaks."""

import json
import time
from pathlib import Path

import pytest

from .command import train_py
from .wandb_file import wandb_runs

# Breaks in its third training step, in one of the processes.
BREAKS = """
import os
from trilab.agg.softmax import SoftmaxMean

class Breaks(SoftmaxMean):
    def __init__(self, n_embd: int, block_size: int, *, rank: int, how: str) -> None:
        super().__init__(n_embd, block_size)
        self.rank, self.how, self.calls = rank, how, 0

    def forward(self, x):
        self.calls += self.training and len(x) == 16  # a step's share of the batch, not what is examined before
        if self.calls == 3 and int(os.environ["RANK"]) == self.rank:
            if self.how == "kill":
                os.kill(os.getpid(), 9)
            raise RuntimeError("broken on purpose")
        return super().forward(x)
"""


def metrics(folder: Path) -> list[dict[str, float]]:
    """metrics.jsonl without what depends on the machine, and without train/loss: that is the first process's share."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [
        {name: value for name, value in row.items() if name not in ("chars_per_second", "train/loss")} for row in rows
    ]


@pytest.mark.slow
def test_two_processes_read_the_same_windows_as_one_and_leave_one_run(tmp_path: Path, text: Path) -> None:
    command = ("agg=attention", "data.val_chars=64", "data.test_share=0.1", "logger=wandb", "seed=0")
    alone = train_py(tmp_path, *command, "logger=none", "experiment_name=one", text=text)
    both = train_py(tmp_path, *command, "trainer=ddp", "experiment_name=two", text=text)
    assert (alone.code, both.code) == (0, 0), both.err
    [one] = alone.outputs.glob("one/*-seed*/")
    [two] = both.outputs.glob("two/*-seed*/")
    assert [row.keys() for row in metrics(two)] == [row.keys() for row in metrics(one)]
    for ours, theirs in zip(metrics(two), metrics(one), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-6)
    ours, theirs = (json.loads((folder / "summary.json").read_text()) for folder in (two, one))
    assert ours["loss_by_position"] == pytest.approx(theirs["loss_by_position"], abs=1e-6)
    assert ours["loss_by_block"]["nats"] == pytest.approx(theirs["loss_by_block"]["nats"], abs=1e-5)
    assert ours["loss_by_block"]["characters"] == theirs["loss_by_block"]["characters"]
    assert ours["test_loss"] == pytest.approx(theirs["test_loss"], abs=1e-6)
    logs = {"log", "console.log", "wandb.json"}
    assert {path.name for path in two.iterdir()} - logs == {path.name for path in one.iterdir()} - logs
    [run] = wandb_runs(both.outputs)
    assert (run.name, run.group, run.exit_code) == ("attention-seed0", "two", 0)
    assert [row["val/loss"] for row in run.history if "val/loss" in row] == [
        row["val/loss"] for row in metrics(two) if "val/loss" in row
    ]


@pytest.mark.slow
def test_a_sweep_of_runs_on_two_processes_leaves_a_folder_and_a_wandb_run_each(tmp_path: Path, text: Path) -> None:
    done = train_py(tmp_path, "-m", "agg=softmax,table", "trainer=ddp", "logger=wandb", text=text)
    assert done.code == 0, done.err
    assert [path.name.partition("-")[0] for path in done.runs] == ["softmax", "table"]
    ended = {run.name: run.exit_code for run in wandb_runs(done.outputs)}
    assert ended == {"default report": 0, "softmax-seed1337": 0, "table-seed1337": 0}
    assert "2 finished" in done.out


@pytest.mark.slow
@pytest.mark.parametrize("how", ["raise", "kill"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_that_breaks_ends_all_and_the_run_is_recorded_as_failed(
    tmp_path: Path, text: Path, rank: int, how: str
) -> None:
    (tmp_path / "breaks.py").write_text(BREAKS)
    began = time.monotonic()
    done = train_py(
        tmp_path, "agg._target_=breaks.Breaks", f"+agg.rank={rank}", f"+agg.how={how}", "trainer=ddp", text=text
    )
    assert done.code == 1
    assert time.monotonic() - began < 90
    summary = json.loads((done.run / "summary.json").read_text())
    # the reason is the broken process's own, not that the others have lost it; who was killed can go on
    if how == "raise":
        assert summary["status"] == "failed"
        assert summary["error"]["message"] == "broken on purpose"
    else:
        assert summary["status"] == "interrupted"
        assert "SIGKILL" in summary["error"]["message"]


@pytest.mark.slow
def test_processes_agree_on_what_is_best_also_where_the_best_so_far_is_lost(tmp_path: Path, text: Path) -> None:
    command = ("agg=attention", "optim.lr=0.5", "trainer.val_every=2", "trainer.timeout=30")
    first = train_py(tmp_path, *command, "trainer.max_steps=8", "experiment_name=first", text=text)
    [run] = first.outputs.glob("first/*-seed*/")
    alone = tmp_path / "alone.ckpt"
    alone.write_bytes((run / "checkpoints" / "last.ckpt").read_bytes())
    more = train_py(
        tmp_path, *command, "trainer=ddp", "trainer.max_steps=20", f"ckpt={alone}", "experiment_name=more", text=text
    )
    assert more.code == 0, more.err
    [run] = more.outputs.glob("more/*-seed*/")
    assert json.loads((run / "summary.json").read_text())["best_step"] > 8

"""A run's life in its folder: one process at a time, finished once, its end written down."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trilab.folder import _sources, is_finished, summary_of
from trilab.ops.recurrence import SOURCES

from .conftest import ROOT, Outcome

Train = Callable[..., Outcome]

HOLDS = """
import sys
from pathlib import Path
from trilab.lock import held
with held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process_that_trains(folder: Path) -> Iterator[int]:
    """Its process id."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, folder],
        env={"PYTHONPATH": str(ROOT / "src")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process.pid
        process.communicate()


def test_two_processes_never_train_one_run_and_the_second_is_told_of_the_first(train: Train) -> None:
    first = train("agg=softmax")
    with another_process_that_trains(first.run) as process:
        second = train("agg=softmax", "force=true")
        assert second.code == 2
        assert f"is being trained by process {process} on " in second.err
        assert is_finished(first.run)  # what was there is left alone
    assert train("agg=softmax", "force=true").code == 0
    assert not {".lock", ".held_by"} & {path.name for path in first.run.iterdir()}


def test_in_a_sweep_a_run_that_another_process_trains_is_named_and_the_others_are_trained(train: Train) -> None:
    folder = train("agg=softmax").run
    (folder / "summary.json").unlink()
    with another_process_that_trains(folder) as process:
        done = train("-m", "agg=softmax,table,none")
    assert done.code == 1
    assert f"{folder.name}: {folder} is being trained by process {process} on " in done.out
    assert f"1 of 3 runs did not finish: {folder.name}" in done.out
    assert {run.name.partition("-")[0] for run in done.runs if is_finished(run)} == {"table", "none"}


def test_force_and_a_checkpoint_to_go_on_from_exclude_one_another(train: Train) -> None:
    first = train("agg=softmax")
    done = train("agg=softmax", "force=true", f"ckpt={first.run / 'checkpoints' / 'last.ckpt'}")
    assert done.code == 2
    assert "force=true trains anew and ckpt=" in done.err
    assert is_finished(first.run)


def test_the_summary_says_with_what_and_on_what_a_run_was_trained(train: Train) -> None:
    summary = summary_of(train("agg=softmax").run)
    assert summary is not None
    assert summary["versions"].keys() >= {"python", "trilab", "torch", "lightning", "hydra-core", "wandb"}
    assert summary["hardware"].keys() == {"machine", "system", "processor", "cpus"}
    assert summary["data"]["characters"] == 2200
    assert len(summary["data"]["sha256"]) == 64
    assert summary["seconds"] > 0
    assert summary["error"] is None


def test_a_failed_run_keeps_its_traceback_in_summary_and_log(train: Train) -> None:
    done = train("optim.lr=1e30")
    summary = summary_of(done.run)
    assert summary is not None
    assert summary["status"] == "failed"
    assert summary["error"]["type"] == "Diverged"
    assert summary["error"]["message"] in done.err
    assert summary["error"]["traceback"].startswith("Traceback (most recent call last):\n")
    assert summary["error"]["traceback"].splitlines()[-1] in (done.run / "log").read_text()


ASKS_FOR_ALL = """
import torch
from trilab.agg.softmax import SoftmaxMean
class AsksForAll(SoftmaxMean):
    def mix(self, x, v):
        torch.empty(2**60)
"""


def test_where_memory_runs_out_the_keys_that_would_help_are_named_without_a_traceback(
    train: Train, tmp_path: Path
) -> None:
    (tmp_path / "asks_for_all.py").write_text(ASKS_FOR_ALL)
    done = train("agg={_target_:asks_for_all.AsksForAll}", "check.causality=off")
    assert done.code == 1
    assert "Out of memory: " in done.err
    assert "Lower data.batch_size, or deal it to micro-batches (trainer.accumulate)" in done.err
    assert "Traceback" not in done.err + done.out
    assert "asks_for_all.py" in (done.run / "log").read_text()


FAILS_ONCE = """
from pathlib import Path
from trilab.agg.softmax import SoftmaxMean
class FailsOnce(SoftmaxMean):
    def weights(self, x):
        if Path('fail').exists():
            raise RuntimeError('as asked')
        return super().weights(x)
    def mix(self, x, v):
        return self.weights(x)[0] @ v
"""


def test_a_failed_run_is_passed_over_and_named_until_retry_is_asked_for(train: Train, tmp_path: Path) -> None:
    (tmp_path / "fails_once.py").write_text(FAILS_ONCE)
    (tmp_path / "fail").touch()
    first = train("agg._target_=fails_once.FailsOnce")
    assert first.code == 1
    before = (first.run / "summary.json").read_bytes()
    (tmp_path / "fail").unlink()
    again = train("agg._target_=fails_once.FailsOnce")
    assert again.code == 1
    assert f"{first.run.name} has failed before: RuntimeError: as asked" in again.err
    assert "retry=true" in again.err
    assert (first.run / "summary.json").read_bytes() == before
    assert train("agg._target_=fails_once.FailsOnce", "retry=true").code == 0
    assert is_finished(first.run)


def test_kernels_in_c_are_code_that_trains() -> None:
    compiled = {path.name for path in _sources()} & {path.name for path in SOURCES}
    assert compiled == {path.name for path in SOURCES}


def test_a_failed_run_is_tried_anew_once_its_code_has_changed(train: Train, tmp_path: Path) -> None:
    (tmp_path / "fails_too.py").write_text(FAILS_ONCE)
    (tmp_path / "fail").touch()
    first = train("agg._target_=fails_too.FailsOnce")
    assert first.code == 1
    (tmp_path / "fails_too.py").write_text(FAILS_ONCE + "# mended\n")
    assert "as asked" in train("agg._target_=fails_too.FailsOnce").err  # tried, not passed over
    (tmp_path / "fail").unlink()
    (tmp_path / "fails_too.py").write_text(FAILS_ONCE + "# mended again\n")
    assert train("agg._target_=fails_too.FailsOnce").code == 0


@pytest.mark.slow
def test_a_sweep_passes_over_what_has_failed_and_names_it(train: Train, tmp_path: Path) -> None:
    (tmp_path / "fails_in_sweep.py").write_text(FAILS_ONCE)
    (tmp_path / "fail").touch()
    command = ("-m", "agg._target_=fails_in_sweep.FailsOnce", "seed=0,1")
    assert train(*command).code == 1
    (tmp_path / "fail").unlink()
    again = train(*command)
    assert again.code == 1
    assert "2 runs, 2 failed before (retry=true tries again)" in again.out
    assert "2 of 2 runs did not finish" in again.out
    assert train(*command, "retry=true").code == 0


def test_a_run_that_was_stopped_between_its_last_step_and_its_summary_is_finished_by_the_same_command(
    train: Train,
) -> None:
    first = train("agg=softmax")
    before = summary_of(first.run)
    rows = (first.run / "metrics.jsonl").read_text()
    (first.run / "summary.json").unlink()
    again = train("agg=softmax")
    assert (first.run / "metrics.jsonl").read_text() == rows
    after = summary_of(again.run)
    assert again.code == 0, again.err
    assert before is not None
    assert after is not None
    for name in ("val_loss", "best_val_loss", "best_step", "steps", "chars_per_second"):
        assert after[name] == before[name]


@pytest.mark.parametrize("content", ["", "{", "[]", "3", '{"status": "fini'])
def test_a_summary_that_cannot_be_read_means_not_finished(tmp_path: Path, content: str) -> None:
    assert not is_finished(tmp_path)
    (tmp_path / "summary.json").write_text(content)
    assert summary_of(tmp_path) is None
    assert not is_finished(tmp_path)


def test_outputs_below_a_file_are_refused_in_one_line(train: Train, text: Path) -> None:
    done = train(f"paths.outputs={text}/outputs")
    assert done.code == 2
    assert f"{text}/outputs" in done.err
    assert "paths.outputs" in done.err
    assert len(done.err.splitlines()) == 1


def test_a_file_where_the_run_s_folder_should_be_is_refused_in_one_line(train: Train) -> None:
    folder = train("agg=softmax").run
    folder.rename(folder.with_name("elsewhere"))
    folder.write_text("")
    done = train("agg=softmax")
    assert done.code == 2
    assert str(folder) in done.err
    assert len(done.err.splitlines()) == 1

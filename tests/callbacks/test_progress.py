"""What is logged and shown while training."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback
from rich.console import Console

from trilab.callbacks.progress import TrainingProgress
from trilab.learner import Diverged
from trilab.loggers import MetricsFile

from ..test_learner import QUIET, fit, learner, poisoned

pytestmark = QUIET

BATCH_CHARS = 12 * 8


def progress(every: int = 2, console: Console | None = None) -> TrainingProgress:
    return TrainingProgress(every=every, batch_chars=BATCH_CHARS, console=console)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_every_so_many_steps_one_line_with_the_mean_loss_since_the_last(tmp_path: Path, accumulate: int) -> None:
    each: list[float] = []

    class Each(Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
            each.append(pl_module._losses[-1].item())

    file = MetricsFile(tmp_path / "metrics.jsonl", 0)
    fit(learner(max_steps=7), [Each(), progress(3)], accumulate=accumulate, val_every=5, loggers=[file])
    file.close()
    lines = {row["step"]: row for row in rows(tmp_path / "metrics.jsonl") if "train/loss" in row}
    assert list(lines) == [3, 5, 6, 7]  # also before each validation, the one at the end included
    for begin, end in ((0, 3), (3, 5), (5, 6), (6, 7)):
        some = each[begin * accumulate : end * accumulate]
        assert lines[end]["train/loss"] == pytest.approx(sum(some) / len(some))
        assert lines[end]["chars_per_second"] > 0


def test_speed_counts_training_steps_and_not_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    class Clock(Callback):
        """A second a step, a hundred a validation."""

        def on_train_batch_start(self, *args: Any) -> None:
            nonlocal now
            now += 1

        def on_validation_batch_start(self, *args: Any) -> None:
            nonlocal now
            now += 100

    monkeypatch.setattr("time.perf_counter", lambda: now)
    shown = progress(2)
    fit(learner(max_steps=6), [Clock(), shown], val_every=3)
    assert (shown.train_steps, shown.train_seconds) == (6, 6.0)
    assert shown.chars_per_second == BATCH_CHARS


def test_before_the_first_step_the_speed_is_0() -> None:
    assert progress().chars_per_second == 0


def test_without_a_terminal_there_is_a_plain_line_at_each_validation() -> None:
    out = io.StringIO()
    fit(learner(max_steps=4), [progress(console=Console(file=out, width=200))], val_every=2)
    lines = out.getvalue().splitlines()
    assert [line.split()[:2] for line in lines] == [["step", "2"], ["step", "4"]]
    assert all("val/loss" in line and "chars/s" in line and "\x1b" not in line for line in lines)


def test_on_a_terminal_there_is_a_bar_that_reaches_the_last_step() -> None:
    out = io.StringIO()
    shown = progress(console=Console(file=out, force_terminal=True, width=200))
    fit(learner(max_steps=4), [shown], val_every=2)
    assert "4/4" in out.getvalue()
    assert "val/loss" in out.getvalue()


def test_without_a_console_nothing_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    fit(learner(max_steps=4), [progress()], val_every=2)
    assert "val/loss" not in capsys.readouterr().out


def test_the_bar_is_taken_down_when_the_training_breaks() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=200)
    with pytest.raises(Diverged, match="at step 3"):
        fit(learner(poisoned(3)), [progress(4, console)])
    assert out.getvalue().rstrip().endswith("\x1b[?25h")  # the cursor is shown again
    assert console._live_stack == []


def test_a_training_that_has_diverged_is_never_validated() -> None:
    validated = []

    class Validated(Callback):
        def on_validation_batch_start(self, *args: Any) -> None:
            validated.append(1)

    with pytest.raises(Diverged, match="at step 2"):
        fit(learner(poisoned(2)), [progress(100), Validated()], val_every=3)
    assert not validated

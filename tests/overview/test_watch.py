"""An experiment watched while its runs end, one after the other. No clock runs: waiting is what lets things happen."""

import io
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from trilab.errors import BadInput
from trilab.overview import watch_runs
from trilab.overview.experiment import Experiment
from trilab.overview.watch import watch

AddRun = Callable[..., Path]
Plan = Callable[..., None]


class Script:
    """Waits by doing the next thing; fails where more is waited for than was foreseen."""

    def __init__(self, *events: Callable[[], object]) -> None:
        self.events = list(events)
        self.waited: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.events.pop(0)()


def watched(folder: Path, script: Script, *, terminal: bool = False, width: int = 100) -> str:
    """All that was written while the events happened."""
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=terminal, force_interactive=terminal, no_color=True)
    experiment = Experiment(folder, host="here")
    try:
        watch(experiment, baseline="none", every=2.0, console=console, clock=time.time, wait=script)
    except KeyboardInterrupt:
        file.write("INTERRUPTED")
    assert not script.events
    return file.getvalue()


def stop() -> None:
    raise KeyboardInterrupt


def test_without_a_terminal_there_is_a_line_for_each_run_that_ends_and_the_table_last(
    experiment: Path, add_run: AddRun, plan: Plan, living: int
) -> None:
    held = {"pid": living, "host": "here", "sweep": None}
    for label in ("none", "sum", "table"):
        plan(label)
    run = add_run("none", losses={500: 2.75}, held=held)

    def finish() -> None:
        add_run("none", losses={500: 2.75, 1000: 2.5}, ended="finished")
        (run / ".held_by").unlink()
        add_run("sum", losses={500: 2.5}, held=held)

    def fail() -> None:
        add_run("sum", losses={500: 2.5}, ended="failed", error={"type": "Diverged", "message": "it is nan"})
        (experiment / f"sum-seed0-{'0' * 8}" / ".held_by").unlink()

    def end() -> None:
        add_run("table", losses={500: 2.25, 1000: 2.125}, ended="finished")

    script = Script(lambda: None, finish, lambda: None, fail, end)
    shown = watched(experiment, script)
    log = (experiment / f"sum-seed0-{'0' * 8}" / "log").as_posix()
    first, *lines = shown.splitlines()
    assert first == "part03: 0 of 3 finished; 1 running, 2 left; about 25 s left"
    assert lines[:3] == [
        "    1/3  none seed=0               finished  val/loss 2.5000; about 15 s left",
        f"    1/3  sum seed=0                FAILED: Diverged: it is nan; see {log}",
        "    2/3  table seed=0              finished  val/loss 2.1250",
    ]
    assert lines[3] == "part03: 2 of 3 finished; 1 failed"
    assert "-0.3750" in shown.partition("strategy")[2]
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert script.waited == [2.0] * 5


def test_nothing_to_wait_for_is_the_table_at_once(experiment: Path, add_run: AddRun) -> None:
    add_run("none", losses={1000: 2.5}, ended="finished")
    shown = watched(experiment, Script())
    assert shown.count("part03: 1 of 1 finished") == 2  # the first line, and the table's


def test_a_terminal_gets_a_screen_that_is_drawn_anew_and_then_the_table_for_good(
    experiment: Path, add_run: AddRun, living: int
) -> None:
    run = add_run("none", losses={250: 2.75}, held={"pid": living, "host": "here", "sweep": None})

    def finish() -> None:
        add_run("none", losses={250: 2.75, 1000: 2.5}, ended="finished")
        (run / ".held_by").unlink()

    shown = watched(experiment, Script(lambda: None, finish), terminal=True)
    assert shown.count("0 of 1 finished; 1 running") == 2
    screen, _, final = shown.partition("\x1b[?25h")  # the cursor is back
    assert "\x1b[2K" in screen  # each screen takes away the lines of the one before, and the table those of the last
    assert "\x1b[2K" in final
    assert "1 of 1 finished" in screen
    assert "1 of 1 finished" in final
    assert "✓ finished" in final


@pytest.mark.parametrize("terminal", [True, False])
def test_ctrl_c_leaves_the_table_and_disturbs_nothing(
    experiment: Path, add_run: AddRun, living: int, terminal: bool
) -> None:
    run = add_run("none", losses={500: 2.75}, held={"pid": living, "host": "here", "sweep": None})
    before = {path: path.read_bytes() for path in run.iterdir()}
    shown = watched(experiment, Script(stop), terminal=terminal)
    assert "▸ running" in shown.splitlines()[-2]
    assert shown.endswith("\nINTERRUPTED")
    assert {path: path.read_bytes() for path in run.iterdir()} == before


def test_an_experiment_that_is_removed_meanwhile_is_told(experiment: Path, plan: Plan) -> None:
    plan("none")

    def remove() -> None:
        (experiment / "planned.jsonl").unlink()
        experiment.rmdir()

    with pytest.raises(BadInput, match="part03 does not exist"):
        watched(experiment, Script(remove))


def test_a_run_that_stops_is_told_and_one_that_goes_on_ends_again(
    experiment: Path, add_run: AddRun, plan: Plan, living: int, dead: int
) -> None:
    holder = {"host": "here", "sweep": living}
    run = add_run("none", losses={500: 2.75}, held={"pid": living, **holder})
    held_by = run / ".held_by"
    script = Script(
        lambda: held_by.write_text(json.dumps({"pid": dead, **holder}), encoding="utf-8"),
        lambda: held_by.write_text(json.dumps({"pid": living, **holder}), encoding="utf-8"),
        lambda: held_by.write_text(json.dumps({"pid": dead, **holder}), encoding="utf-8"),
        stop,
    )
    assert watched(experiment, script).count("STOPPED: at step 500; see") == 2


@pytest.mark.parametrize("every", [0.0, -1.0, float("nan"), float("inf")])
def test_seconds_between_two_looks_are_a_number_above_0(experiment: Path, every: float) -> None:
    with pytest.raises(BadInput, match=r"^--every .* must be a number of seconds above 0\.$"):
        watch_runs(experiment, every=every)

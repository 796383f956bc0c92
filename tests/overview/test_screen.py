"""An overview on terminals of any width and encoding."""

import io
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from trilab.overview.data import in_json
from trilab.overview.experiment import Experiment
from trilab.overview.rows import make_rows
from trilab.overview.screen import draw, duration
from trilab.overview.table import sparkline

AddRun = Callable[..., Path]
Plan = Callable[..., None]


def printed(folder: Path, *, width: int = 120, encoding: str = "utf-8", baseline: str = "none") -> str:
    """What a terminal without colours shows; fails where the encoding cannot show it."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="")
    console = Console(file=file, width=width, no_color=True)
    overview = Experiment(folder, host="here").look(time.time())
    console.print(draw(overview, *make_rows(overview.standings, baseline=baseline), console))
    file.seek(0)
    return file.read()


@pytest.fixture
def mixed(experiment: Path, add_run: AddRun, plan: Plan, living: int) -> Path:
    """Of every state one."""
    held = {"pid": living, "host": "here", "sweep": None}
    add_run("none", 0, losses={250: 3.0, 500: 2.75, 750: 2.6, 1000: 2.5}, ended="finished")
    add_run("none", 1, losses={250: 3.1, 500: 2.8}, held=held)
    add_run("sum", 0, losses={250: 3.5, 500: 2.5}, held=held)
    error = {"type": "Diverged", "message": "the loss is nan"}
    add_run("sum", 1, losses={250: 3.5}, ended="failed", error=error)
    add_run("sum", 2, losses={250: 3.5})
    plan("sum", 3)
    return experiment


def test_the_screen_tells_how_the_experiment_stands(mixed: Path) -> None:
    shown = printed(mixed)
    assert "part03: 1 of 6 finished; 2 running, 1 failed, 1 stopped, 1 left; about 15 s left" in shown
    assert "✓0 ▸1:50%" in shown
    assert "▸0:50% ✗1 ■2:25% ·3" in shown
    assert "█▄▂▁" in shown
    assert "+0.0750   2 seeds at step 250 to 500" in shown
    assert "failed: sum-seed1-00000000: Diverged: the loss is nan" in shown
    assert f"see {(mixed / 'sum-seed1-00000000' / 'log').as_posix()}" in shown.replace("\n", "")
    assert "stopped: sum-seed2-00000000: at step 250" in shown
    assert "The same command with retry=true tries what failed again." in shown
    assert "Nothing is running" not in shown


def test_what_to_do_is_told_when_nothing_is_running(experiment: Path, add_run: AddRun, plan: Plan) -> None:
    add_run("sum", losses={500: 2.5})
    assert "Nothing is running now: the same command again goes on with the rest." in printed(experiment)
    plan("sum", 1)
    assert "unless a sweep waits in a queue, the same command again" in printed(experiment)


def test_a_finished_experiment_has_nothing_to_be_told(experiment: Path, add_run: AddRun) -> None:
    add_run("none", losses={1000: 2.5}, ended="finished")
    shown = printed(experiment)
    assert "part03: 1 of 1 finished\n" in shown
    assert "same command" not in shown


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "cp1252"])
@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_of_the_table_is_broken_at_any_width(mixed: Path, width: int, encoding: str) -> None:
    shown = printed(mixed, width=width, encoding=encoding)
    assert all(cell_len(line) <= width for line in shown.splitlines())
    lines = shown.splitlines()
    rows = [line for line in lines if "2.5000" in line]
    assert len(rows) == 2
    assert all(name in row for name, row in zip(("none", "sum"), rows, strict=True))
    if width > 40:
        assert "+0.0750" in rows[1]
    assert shown.isascii() == (encoding != "utf-8")


def test_long_names_and_many_seeds_fold_in_their_columns(experiment: Path, add_run: AddRun, plan: Plan) -> None:
    for seed in range(9):
        add_run("sum", seed, losses={500: 2.5}, label="a label with many words " * 4)
    for seed in range(30):
        plan("none", seed)
    add_run("none", 0, losses={1000: 2.5}, ended="finished")
    for width in (40, 80, 200):
        shown = printed(experiment, width=width)
        assert all(cell_len(line) <= width for line in shown.splitlines())
        assert "✓×1 ·×29" in shown
        assert "2.5000" in shown


def test_nothing_in_a_file_can_draw_on_the_terminal(experiment: Path, add_run: AddRun) -> None:
    wild = "[bold]x[/bold]\x1b[2J\r\u202e\n[link=http://x]"
    error = {"type": "Error", "message": wild}
    add_run("sum", losses={50: 2.5}, ended="failed", error=error, label=wild, folder="sum\x1b[31m[red]")
    shown = printed(experiment)
    assert "[bold]x[/bold]" in shown
    assert "[red]" in shown
    assert not {"\x1b", "\r", "\u202e"} & set(shown)


def test_only_some_failures_are_named_where_there_is_little_room(experiment: Path, add_run: AddRun) -> None:
    for seed in range(8):
        add_run("sum", seed, losses={50: 2.5}, ended="failed", error={"type": "E", "message": "m"})
    overview = Experiment(experiment, host="here").look(time.time())
    console = Console(file=io.StringIO(), width=100)
    console.print(draw(overview, [], "", console, most_named=3))
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert shown.count("failed: sum") == 3
    assert "and 5 more" in shown


@pytest.mark.parametrize(
    ("curve", "max_steps", "drawn"),
    [
        ({}, 1000, ""),
        ({500: 2.5}, 1000, "▁"),
        ({250: 3.0, 500: 2.0}, 1000, "█▁"),
        ({250: 3.0, 500: 2.0, 750: 2.5, 1000: 2.0}, 1000, "█▁▅▁"),
        ({250: 2.0, 500: 2.0}, 500, "▁▁"),
        ({250: 3.0, 750: 2.0}, 1500, "█▁"),
        ({250: 3.0, 1000: 2.0, 1250: 2.5}, 1500, "█  ▁▅"),
        ({0: 3.0, 500: 2.0}, 500, "▁"),
        ({700: 2.5}, 500, "▁"),
        ({10 * k: 100.0 - k for k in range(1, 101)}, 1000, "██▇▇▆▆▅▅▄▄▃▃▂▂▁▁"),
        ({10 * k: 100.0 - k for k in range(1, 51)}, 1000, "█▇▆▅▄▃▂▁"),
    ],
)
def test_a_sparkline_falls_with_the_loss_and_is_as_long_as_the_training(
    curve: dict[int, float], max_steps: int, drawn: str
) -> None:
    assert sparkline(curve, max_steps) == drawn


def test_a_sparkline_is_drawn_in_ascii_where_it_must_be() -> None:
    assert sparkline({1: 3.0, 2: 2.5, 3: 2.0}, 3, ascii_only=True) == "#=_"


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "1 s"), (89, "89 s"), (90, "2 min"), (3600, "60 min"), (5400, "1 h 30 min"), (200_000, "2 days 7 h")],
)
def test_a_duration_is_said_as_exactly_as_it_is_known(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_scripts_get_the_same_as_plain_json(mixed: Path) -> None:
    overview = Experiment(mixed, host="here").look(time.time())
    data = json.loads(json.dumps(in_json(overview, *make_rows(overview.standings, baseline="none")), allow_nan=False))
    assert data["counts"] == {"finished": 1, "running": 2, "failed": 1, "stopped": 1, "left": 1, "unreadable": 0}
    assert [row["name"] for row in data["rows"]] == ["none", "sum"]
    assert data["rows"][1]["difference"]["seeds"] == [0, 1]
    assert data["rows"][1]["difference"]["steps"] == [250, 500]
    failed = data["rows"][1]["runs"][1]
    assert (failed["state"], failed["reason"]) == ("failed", "Diverged: the loss is nan")
    assert Path(failed["log"]).is_file()

"""An experiment watched until nothing more happens: a live screen on a terminal, else a line for each end of a run."""

import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live

from trilab.overview.experiment import Experiment, Overview, State
from trilab.overview.rows import make_rows
from trilab.overview.screen import change, draw, heading

_MOST_NAMED = 5  # failures on the live screen; the last one names all


def watch(
    experiment: Experiment,
    *,
    baseline: str,
    every: float,
    console: Console,
    clock: Callable[[], float] = time.time,
    wait: Callable[[float], None] = time.sleep,
) -> None:
    """Show an experiment again and again until it is over; last of all the whole table, also after Ctrl-C.

    Args:
        experiment: what to look at; nothing in it is touched.
        baseline: the row that differences are taken to.
        every: seconds between two looks.
        console: a terminal gets a live screen, anything else plain lines.
        clock: seconds since the epoch.
        wait: sleeps for so many seconds.
    Raises:
        BadInput: the folder is no experiment.
        KeyboardInterrupt: Ctrl-C.
    """
    overview = experiment.look(clock())
    show = _on_a_screen if console.is_interactive else _in_lines

    def look() -> Overview:
        nonlocal overview
        wait(every)
        overview = experiment.look(clock())
        return overview

    try:
        show(overview, look, baseline, console)
    finally:
        console.print(draw(overview, *make_rows(overview.standings, baseline=baseline), console))


def _on_a_screen(overview: Overview, look: Callable[[], Overview], baseline: str, console: Console) -> None:
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            rows, note = make_rows(overview.standings, baseline=baseline)
            live.update(draw(overview, rows, note, console, most_named=_MOST_NAMED), refresh=True)
            if overview.over:
                return
            overview = look()


def _in_lines(overview: Overview, look: Callable[[], Overview], baseline: str, console: Console) -> None:
    console.print(heading(overview, console), soft_wrap=True)
    while not overview.over:
        before: dict[str, State] = {standing.folder.name: standing.state for standing in overview.standings}
        overview = look()
        for standing in overview.standings:
            ended = standing.state not in ("running", "left") and standing.state != before.get(standing.folder.name)
            if ended:
                line = change(standing, overview, console)
                console.print(line, highlight=False, markup=False, soft_wrap=True)

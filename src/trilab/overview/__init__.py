"""`trilab runs`: what of an experiment is finished, running, failed, stopped and left, and how it looks so far.

It reads what the runs leave in their folders and nothing else, and writes nothing: so it works after a crash, beside
any launcher, and on another machine that sees the files.
"""

import json
import math
import time
from pathlib import Path

from rich.console import Console

from trilab.errors import BadInput
from trilab.overview.data import in_json
from trilab.overview.experiment import Experiment, Overview, Standing
from trilab.overview.rows import make_rows
from trilab.overview.screen import draw
from trilab.overview.watch import watch

__all__ = ["Experiment", "Overview", "Standing", "show_runs", "watch_runs"]


def show_runs(folder: Path, *, baseline: str = "none", as_json: bool = False, console: Console | None = None) -> None:
    """Print how an experiment stands now.

    Args:
        folder: outputs/<experiment_name>.
        baseline: the row that differences are taken to, by name.
        as_json: one JSON object, and nothing else.
        console: where to print; the terminal by default.
    Raises:
        BadInput: the folder does not exist, cannot be listed, or holds neither a run nor the plan of one.
    """
    console = console or Console()
    overview = Experiment(folder).look(time.time())
    rows, note = make_rows(overview.standings, baseline=baseline)
    if as_json:
        console.out(json.dumps(in_json(overview, rows, note), indent=2, allow_nan=False), highlight=False)
    else:
        console.print(draw(overview, rows, note, console))


def watch_runs(folder: Path, *, baseline: str = "none", every: float = 2.0, console: Console | None = None) -> None:
    """Show how an experiment stands until nothing is running or left to begin.

    Args:
        folder, baseline, console: as of `show_runs`.
        every: seconds between two looks.
    Raises:
        BadInput: as `show_runs`; `every` is not above 0.
        KeyboardInterrupt: Ctrl-C.
    """
    if not (math.isfinite(every) and every > 0):
        raise BadInput(f"--every {every:g} must be a number of seconds above 0.")
    watch(Experiment(folder), baseline=baseline, every=every, console=console or Console())

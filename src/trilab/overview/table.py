"""Rows as a table for a terminal of any width and encoding."""

import itertools
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trilab.overview.experiment import STATES, Overview, Standing, State
from trilab.overview.rows import Difference, Row
from trilab.report.table import fitted

_MARKS: dict[State, str] = {
    "finished": "✓",
    "running": "▸",
    "failed": "✗",
    "stopped": "■",
    "left": "·",
    "unreadable": "?",
}
_ASCII_MARKS: dict[State, str] = {
    "finished": "+",
    "running": ">",
    "failed": "!",
    "stopped": "=",
    "left": ".",
    "unreadable": "?",
}
STYLES: dict[State, str] = {
    "finished": "green",
    "running": "cyan",
    "failed": "bold red",
    "stopped": "yellow",
    "left": "dim",
    "unreadable": "magenta",
}
_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII_BLOCKS = "_.-~=+*#"

_CURVE_WIDTH = 16  # characters
_MOST_CELLS = 10  # runs of a row that are shown one by one; of more only the counts
_EXPENDABLE = ("compared", "val/loss over steps", "done", "difference")  # left out in this order where it is narrow
_RUNS_WIDTH = 14  # characters that the seeds are folded to before a column is left out


def fitting_table(rows: Sequence[Row], console: Console) -> Table:
    """A row a strategy, in as many columns as the console has room for."""
    return fitted(
        rows,
        _columns(rows, console),
        console,
        expendable=_EXPENDABLE,
        left=("val/loss over steps", "compared"),
        folded={"seeds": _RUNS_WIDTH},
    )


def legend(overview: Overview, console: Console) -> Text:
    """What the marks in the table mean, of those that are in it."""
    marks = _marks(console)
    return Text("  ".join(f"{marks[state]} {state}" for state in STATES if overview.counts[state]), "dim")


def sparkline(curve: Mapping[int, float], max_steps: int, *, ascii_only: bool = False) -> str:
    """A curve in block characters, from its lowest value to its highest; what is not reached yet stays blank.

    Args:
        curve: step → value, ascending.
        max_steps: the step at the right end.
        ascii_only: drawn in ASCII.
    """
    if not curve:
        return ""
    steps = list(curve)
    apart = min((after - before for before, after in itertools.pairwise(steps)), default=max(steps[0], 1))
    width = max(1, min(_CURVE_WIDTH, -(-max_steps // apart)))
    cells: dict[int, list[float]] = defaultdict(list)
    for step, value in curve.items():
        cells[min(width - 1, max(0, step * width - 1) // max(max_steps, 1))].append(value)
    means = {cell: statistics.fmean(values) for cell, values in cells.items()}
    low, high = min(means.values()), max(means.values())
    blocks = _ASCII_BLOCKS if ascii_only else _BLOCKS
    scale = (len(blocks) - 1) / (high - low) if high > low else 0.0
    drawn = {cell: blocks[round((mean - low) * scale)] for cell, mean in means.items()}
    return "".join(drawn.get(cell, " ") for cell in range(max(drawn) + 1))


def _marks(console: Console) -> dict[State, str]:
    return _ASCII_MARKS if console.options.ascii_only else _MARKS


def _columns(rows: Sequence[Row], console: Console) -> dict[str, list[Text]]:
    """Header → cells, of every column but the names."""
    columns = {
        "seeds": [_runs(row.standings, _marks(console)) for row in rows],
        "done": [Text("" if row.done is None else f"{int(row.done * 100)} %") for row in rows],
        "val/loss over steps": [
            Text(sparkline(row.trend, row.max_steps, ascii_only=console.options.ascii_only)) for row in rows
        ],
        "val/loss": [Text(_loss(next(reversed(row.curve.values()), None))) for row in rows],
        "difference": [Text("baseline" if row.is_baseline else _mean(row.difference)) for row in rows],
        "compared": [Text(_compared(row.difference)) for row in rows],
    }
    return {header: cells for header, cells in columns.items() if any(cell.plain for cell in cells)}


def _loss(loss: float | None) -> str:
    return "" if loss is None else f"{loss:.4f}"


def _mean(difference: Difference | None) -> str:
    return "" if difference is None else f"{difference.paired.mean:+.4f}"


def _compared(difference: Difference | None) -> str:
    """Over how many seeds and at which steps, so that an early difference is not taken for the last word."""
    if difference is None:
        return ""
    first, last, n = difference.first_step, difference.last_step, difference.paired.n
    return f"{n} seed{'s' if n > 1 else ''} at step {first:,}" + (f" to {last:,}" if last > first else "")


def _runs(standings: Sequence[Standing], marks: Mapping[State, str]) -> Text:
    """A cell for each seed, or where there are many, how many stand how."""
    if len(standings) > _MOST_CELLS:
        by_state = [(state, sum(s.state == state for s in standings)) for state in STATES]
        cells = [
            (f"{marks[state]}×{count}" if marks is _MARKS else f"{marks[state]}x{count}", STYLES[state])
            for state, count in by_state
            if count
        ]
    else:
        cells = [(_cell(s, marks), STYLES[s.state]) for s in standings]
    return Text(" ").join(Text(text, style) for text, style in cells)


def _cell(standing: Standing, marks: Mapping[State, str]) -> str:
    seed = "?" if standing.seed is None else str(standing.seed)
    begun = standing.state in ("running", "stopped") and standing.max_steps
    share = f":{min(100, 100 * standing.step // standing.max_steps)}%" if begun and standing.max_steps else ""
    return f"{marks[standing.state]}{seed}{share}"

"""An overview as text for a terminal: the heading, the table, what failed and what to do about it."""

from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from trilab.overview.experiment import STATES, Overview, Standing
from trilab.overview.rows import Row
from trilab.overview.table import STYLES, fitting_table, legend
from trilab.report.runs import one_line
from trilab.report.table import in_encoding


def draw(
    overview: Overview, rows: Sequence[Row], note: str, console: Console, *, most_named: int | None = None
) -> RenderableType:
    """Everything there is to see of an experiment.

    Args:
        overview, rows, note: as `make_rows` gives the last two.
        console: for its width and encoding; nothing is printed.
        most_named: runs that are named with their reason; None names all that failed, stopped or cannot be read.
    """
    parts: list[RenderableType] = [
        heading(overview, console),
        fitting_table(rows, console),
        legend(overview, console),
    ]
    if note:
        parts.append(Text(in_encoding(note, console)))
    named = [s for state in ("failed", "unreadable", "stopped") for s in overview.standings if s.state == state]
    parts += [_named(standing, console) for standing in named[:most_named]]
    if most_named is not None and len(named) > most_named:
        parts.append(Text(f"and {len(named) - most_named} more"))
    parts += [Text(hint, "dim") for hint in _hints(overview)]
    return Group(*parts)


def heading(overview: Overview, console: Console) -> Text:
    """One line: k of N, how many in each state, how long it will take."""
    counts = overview.counts
    states = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state] and state != "finished")
    name = in_encoding(one_line(overview.folder.resolve().name), console)
    done = f": {counts['finished']} of {len(overview.standings)} finished"
    return Text.assemble((name, "bold"), done, f"; {states}" if states else "", _ahead(overview))


def change(standing: Standing, overview: Overview, console: Console) -> str:
    """One line that says that a run has ended, and how."""
    count = f"{overview.counts['finished']}/{len(overview.standings)}"
    seed = "" if standing.seed is None else f" seed={standing.seed}"
    name = f"{standing.label}{seed}"
    if standing.state == "finished":
        said = f"finished  val/loss {standing.val_losses[standing.step]:.4f}"
    else:
        said = f"{standing.state.upper()}: {standing.reason}"
        said += f"; see {one_line(standing.log.as_posix())}" if standing.log else ""
    return in_encoding(f"{count:>7}  {name:<24}  {said}{_ahead(overview)}", console)


def duration(seconds: float) -> str:
    """Seconds in words, as exact as an estimate is."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours < 48 else f"{hours // 24} days {hours % 24} h"


def _ahead(overview: Overview) -> str:
    left = overview.seconds_left
    return "" if left is None else f"; about {duration(left)} left"


def _named(standing: Standing, console: Console) -> Text:
    lines = f"{standing.state}: {standing.name}: {standing.reason}"
    if standing.log and standing.state != "stopped":
        lines += f"\n  see {one_line(standing.log.as_posix())}"
    return Text(in_encoding(lines, console), STYLES[standing.state], overflow="fold")


def _hints(overview: Overview) -> list[str]:
    """What to do about what did not finish; nothing while it may still happen by itself."""
    counts = overview.counts
    hints = []
    if (counts["stopped"] or counts["left"]) and not counts["running"]:
        waits = "" if overview.over else "unless a sweep waits in a queue, "
        hints.append(f"Nothing is running now: {waits}the same command again goes on with the rest.")
    if counts["failed"]:
        hints.append("The same command with retry=true tries what failed again.")
    return hints

"""docs/performance.md: every bar, then everything that was measured, from the JSON file alone."""

import re
from collections.abc import Sequence
from pathlib import Path

from trilab.atomic import replacing
from trilab.bench.bars import Verdict, judge
from trilab.bench.machine import in_words
from trilab.bench.measured import Measured
from trilab.bench.picture import write_pictures
from trilab.bench.table import Shown, tables
from trilab.errors import BadInput
from trilab.report.page.written import short

BEGIN, END = "<!-- bench -->", "<!-- /bench -->"
TITLE = "# Performance\n"


def write_page(found: Sequence[Measured], page: Path) -> None:
    """Write what stands between the page's marks anew, and its pictures into the folder of the page's name.

    Args:
        found: what was measured.
        page: Markdown; what stands outside of the marks is kept. Where there is no such file it is made.
    Raises:
        BadInput: the page cannot be read or written, or has no marks.
    """
    try:
        before = page.read_text(encoding="utf-8") if page.exists() else f"{TITLE}\n{BEGIN}\n{END}\n"
    except OSError as error:
        raise BadInput(f"{page} cannot be read: {error.strerror}.") from error
    if before.count(BEGIN) != 1 or before.count(END) != 1 or before.index(BEGIN) > before.index(END):
        raise BadInput(f"{page} has no place for what was measured: one line {BEGIN} and, below it, one {END}.")
    pictures = write_pictures(found, page.with_suffix(""))
    written = content(found, {name: f"{page.stem}/{path.name}" for name, path in pictures.items()})
    begins, ends = before.index(BEGIN) + len(BEGIN), before.index(END)
    try:
        with replacing(page) as file:
            file.write(f"{before[:begins]}\n{written}{before[ends:]}".encode())
    except OSError as error:
        raise BadInput(f"{page} cannot be written: {error.strerror}. Choose a place that can be written to.") from error


def content(found: Sequence[Measured], pictures: dict[str, str]) -> str:
    """Markdown.

    Args:
        pictures: a kind, of a GPU with -cuda → its address.
    """
    lines = [
        "Every figure is a ratio, or a time, of ways that took turns in one run on one machine: its median over the",
        "rounds, with the quartiles as its spread. This part of the page is written by `trilab bench --page`, from the",
        "JSON file with every repeat that `trilab bench all --json` leaves.",
        "",
        "## Bars",
        "",
        markdown(Shown("", ("bar", "goal", "measured", "quartiles", ""), tuple(map(_row, judge(found))))),
        "",
    ]
    for one in found:
        name = one.kind if one.device == "cpu" else f"{one.kind}-{one.device}"
        lines += [f"## {one.kind}{' on a GPU' * (one.device == 'cuda')}", ""]
        rounds = max(len(series.values) for series in one.series)
        command = f"trilab bench {one.kind}{' --quick' * one.quick}{' --device cuda' * (one.device == 'cuda')}"
        threads = int(one.machine["threads"])
        command += f" --threads {threads}" * (threads != 1)
        lines += [f"`{command}`, {rounds} rounds at most. {in_words(one.machine)}.", ""]
        lines += [*(f"- {_escaped(note)}" for note in one.notes), ""]
        if name in pictures:
            lines += [f"![{one.kind}]({pictures[name]})", ""]
        for shown in tables(one):
            lines += [f"{_escaped(shown.title)}:", "", markdown(shown), ""]
    return "\n".join(lines)


def _row(verdict: Verdict) -> tuple[str, ...]:
    bar, of = verdict.bar, verdict.measured
    if of is None:
        return bar.says, bar.goal, "", "", verdict.in_words
    measured = f"{_figure(of.median)} {bar.unit}".strip()
    return bar.says, bar.goal, measured, f"{_figure(of.low)}–{_figure(of.high)}", verdict.in_words


def _figure(value: float) -> str:
    return f"{value:.2f}" if 0.01 <= abs(value) < 1000 else short(value)


def markdown(shown: Shown) -> str:
    """A table; the first column to the left, the others to the right."""
    rows = [shown.header, ("---", *["---:"] * (len(shown.header) - 1))]
    rows += [tuple(map(_escaped, row)) for row in shown.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _escaped(text: str) -> str:
    """Text that stays text in Markdown; ** is ours."""
    return re.sub(r"([\\`_{}\[\]<>|#])", r"\\\1", text)

"""What was measured as tables: one for each measure, a row for each way, the same in the terminal and on the page."""

from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trilab.bench.machine import in_words
from trilab.bench.measured import Measured, spread
from trilab.report.page.written import short


@dataclass(frozen=True)
class Shown:
    """A title, a header, and rows of as many cells."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(found: Measured) -> list[Shown]:
    """A table for each measure; what was measured over T stands apart from the rest."""
    kinds = dict.fromkeys((one.measure, one.size is not None) for one in found.series)
    return [_table(found, measure, sized=sized) for measure, sized in kinds]


def _table(found: Measured, measure: str, *, sized: bool) -> Shown:
    series = [one for one in found.series if (one.measure, one.size is not None) == (measure, sized)]
    cases = list(dict.fromkeys(one.case for one in series))
    ways = list(dict.fromkeys(one.way for one in series))
    fitted = {way: exponents for way in ways if sized and (exponents := found.exponents(measure, way))}
    title = f"{found.kind}: {measure}, {' or '.join(sorted({one.unit for one in series}))}"
    if any(one.way == found.reference for one in series):
        title += f" (× {found.reference})"
    rows = []
    for way in ways:
        cells = [_cell(found, case, measure, way, brief=sized) for case in cases]
        rows.append((way, *cells, *([_fit(fitted.get(way))] if fitted else [])))
    return Shown(title, ("way", *cases, *(["T^p"] if fitted else [])), tuple(rows))


def _cell(found: Measured, case: str, measure: str, way: str, *, brief: bool) -> str:
    """Median, and the ratio to the reference with its quartiles; over T, where there is little room, only the ratio."""
    one = found.find(case, measure, way)
    if one is None:
        return ""
    median = short(spread(one.values).median)
    ratios = found.ratios(case, measure, way, found.reference)
    if not ratios or way == found.reference:
        return median
    of = spread(ratios)
    return f"{short(of.median)} ×" if brief else f"{median} ({short(of.median)} ×, {short(of.low)}–{short(of.high)})"


def _fit(exponents: list[float] | None) -> str:
    if not exponents:
        return ""
    of = spread(exponents)
    return f"{of.median:.2f} ({of.low:.2f}–{of.high:.2f})"


def show(found: Measured, console: Console) -> None:
    """Print all tables of one kind, what it ran on, and what to know about it."""
    for shown in tables(found):
        table = Table(title=Text(shown.title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        for place, name in enumerate(shown.header):
            table.add_column(Text(name), justify="right" if place else "left")
        for row in shown.rows:
            table.add_row(*map(Text, row))
        console.print(table)
    console.print(Text(f"{'Quick: too short to judge by. ' * found.quick}{in_words(found.machine)}"))
    for note in found.notes:
        console.print(Text(note, "dim"))
    console.print()

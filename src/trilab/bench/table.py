"""What was measured, in the terminal: a table for each measure, a row for each way."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trilab.bench.machine import in_words
from trilab.bench.measured import Measured, spread
from trilab.report.page.written import short


def show(found: Measured, console: Console) -> None:
    """Print all tables of one kind, what it ran on, and what to know about it."""
    for measure in dict.fromkeys(one.measure for one in found.series):
        console.print(_table(found, measure))
    console.print(Text(f"{'Quick: too short to judge by. ' * found.quick}{in_words(found.machine)}"))
    for note in found.notes:
        console.print(Text(note, "dim"))
    console.print()


def _table(found: Measured, measure: str) -> Table:
    series = [one for one in found.series if one.measure == measure]
    cases = list(dict.fromkeys(one.case for one in series))
    ways = list(dict.fromkeys(one.way for one in series))
    units = sorted({one.unit for one in series})
    fitted = {way: exponents for way in ways if (exponents := found.exponents(measure, way))}
    title = f"{found.kind}: {measure}, {' or '.join(units)}"
    if any(one.way == found.reference for one in series):
        title += f" (× {found.reference})"
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column(Text("way"))
    for case in cases:
        table.add_column(Text(case), justify="right")
    if fitted:
        table.add_column(Text("T^p"), justify="right")
    for way in ways:
        cells = [_cell(found, case, measure, way) for case in cases]
        table.add_row(Text(way), *cells, *([_fit(fitted.get(way))] if fitted else []))
    return table


def _cell(found: Measured, case: str, measure: str, way: str) -> Text:
    one = found.find(case, measure, way)
    if one is None:
        return Text("")
    cell = Text(short(spread(one.values).median))
    ratios = found.ratios(case, measure, way, found.reference)
    if ratios and way != found.reference:
        of = spread(ratios)
        cell.append(f" ({short(of.median)} ×, {short(of.low)}–{short(of.high)})", "dim")
    return cell


def _fit(exponents: list[float] | None) -> Text:
    if not exponents:
        return Text("")
    of = spread(exponents)
    return Text(f"{of.median:.2f} ({of.low:.2f}–{of.high:.2f})")

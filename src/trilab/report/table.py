"""Variants → rows, and rows as a table for a terminal or as CSV."""

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from rich import box
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from trilab.report.references import Reference
from trilab.report.rows import Row

CSV_COLUMNS = (
    "agg",
    "n_seeds",
    "val_loss_mean",
    "val_loss_std",
    "diff_to_baseline",
    "n_params",
    "chars_per_second",
    "measure",
    "diff_low",
    "diff_high",
    "p",
    "p_holm",
    "verdict",
    "over",
    "seeds_needed",
    "best_val_loss_mean",
    "test_loss_mean",
    "flops_per_char",
    "state_size",
    "seconds",
)

_ANSWER_COLUMNS = ("answer_loss_mean", "answer_accuracy")  # where a row has them

_HALF = 7  # cells of the drawn difference on each side of its zero line
_BAR = f"{'better ':>{_HALF}}|{' worse':<{_HALF}}"
_EXPENDABLE = (_BAR, "chars/s", "parameters", "spread", "± 95 %", "+- 95 %", "seeds", "right", "verdict")
_COLOURS = {"better": "cyan", "worse": "magenta", "undecided": "dim"}
_NAME_WIDTH = 18  # longer names are folded before a column is left out; with it, all columns take 100 characters


class Named(Protocol):
    """A row of any table of strategies."""

    @property
    def name(self) -> str:
        """What stands first in it."""

    @property
    def is_baseline(self) -> bool:
        """Whether the others are compared with it."""


def csv_text(rows: Sequence[Row]) -> str:
    """The rows as CSV with a header: floats in full precision, what is not known left blank."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    with_answers = any(row.answer_accuracy is not None for row in rows)
    writer.writerow((*CSV_COLUMNS, *(_ANSWER_COLUMNS if with_answers else ())))
    for row in rows:
        difference, comparison = row.difference, row.comparison
        best, test, answers = (row.losses.get(measure) for measure in ("best_val_loss", "test_loss", "answer_loss"))
        writer.writerow(
            (
                row.name,
                len(row.seeds),
                row.losses["val_loss"].mean,
                row.losses["val_loss"].std,
                0.0 if row.is_baseline else difference and difference.mean,
                row.n_params,
                row.chars_per_second,
                row.measure,
                difference and difference.low,
                difference and difference.high,
                difference and difference.p,
                comparison and comparison.p_adjusted,
                comparison and comparison.verdict,
                comparison and comparison.over,
                comparison and comparison.seeds_needed,
                best and best.mean,
                test and test.mean,
                row.flops_per_char,
                row.state_size,
                row.seconds,
                *((answers and answers.mean, row.answer_accuracy) if with_answers else ()),
            )
        )
    return out.getvalue()


def make_table(rows: Sequence[Row], references: Sequence[Reference], console: Console) -> Table:
    """Rows and reference lines by their loss, as a table that fits the console.

    Where it is narrow, first the drawn differences are left out.
    """
    lines = [line for line in references if not line.whole_context]
    shown: list[Row | Reference] = sorted([*rows, *lines], key=lambda each: (_loss(each), each.name))
    columns = _columns(shown, ascii_only=console.options.ascii_only)
    return fitted(shown, columns, console, expendable=_EXPENDABLE, left=(_BAR, "verdict"))


def fitted(
    rows: Sequence[Named],
    columns: Mapping[str, list[Text]],
    console: Console,
    *,
    expendable: Sequence[str],
    left: Collection[str],
    folded: Mapping[str, int] | None = None,
) -> Table:
    """Named rows as a table that fits the console: long names are folded, then columns left out.

    Args:
        columns: header → a cell a row.
        expendable: headers to leave out, the first first.
        left: headers of columns that begin at their left.
        folded: header → characters that the column may be folded to before another is left out.
    """
    shown, folded, headers = dict(columns), folded or {}, iter(expendable)

    def table(name_width: int | None, widths: Mapping[str, int | None]) -> Table:
        made = Table(
            Column("strategy", overflow="fold", max_width=name_width),
            box=box.ASCII if console.options.ascii_only else box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
        )
        for header in shown:
            if header in widths:
                made.add_column(Text(header), overflow="fold", max_width=widths[header])
            else:
                made.add_column(Text(header), justify="left" if header in left else "right", no_wrap=True)
        for row, *cells in zip(rows, *shown.values(), strict=True):
            made.add_row(Text(in_encoding(row.name, console)), *cells, style="bold" if row.is_baseline else "")
        return made

    unbounded = console.options.update(width=10_000)
    while console.measure(table(_NAME_WIDTH, folded), options=unbounded).maximum > console.width:
        header = next(headers, None)
        if header is None:
            break
        shown.pop(header, None)
    return table(None, dict.fromkeys(folded))


def in_encoding(text: str, console: Console) -> str:
    """Text with whatever the console's encoding cannot write replaced by '?'."""
    return text.encode(console.encoding, "replace").decode(console.encoding)


def _columns(shown: Sequence[Row | Reference], *, ascii_only: bool) -> dict[str, list[Text]]:
    """Header → cells, of every column but the names."""
    rows = [each for each in shown if isinstance(each, Row)]
    scale = max((abs(d.mean) for row in rows if (d := row.difference) and d.mean is not None), default=0.0)
    each = [
        _cells(one, scale, ascii_only=ascii_only) if isinstance(one, Row) else {"loss": Text(f"{one.loss:.4f}", "dim")}
        for one in shown
    ]
    headers = dict.fromkeys(header for cells in sorted(each, key=len, reverse=True) for header in cells)
    return {header: [cells.get(header, Text()) for cells in each] for header in headers}


def _cells(row: Row, scale: float, *, ascii_only: bool) -> dict[str, Text]:
    """Header → the row's cell; the differences are drawn where there are any, `scale` being the largest."""
    plus_minus, dagger, zero_line = ("+-", "*", "|") if ascii_only else ("±", "†", "│")
    mean = row.difference.mean if row.difference else None
    return {
        "seeds": Text(str(len(row.seeds))),
        "loss": Text(f"{row.headline.mean:.4f}"),
        "spread": _number(row.headline.std, ".4f"),
        **({} if row.answer_accuracy is None else {"right": _number(row.answer_accuracy, ".1%")}),
        "difference": Text("baseline") if row.is_baseline else _number(mean, "+.4f"),
        f"{plus_minus} 95 %": _half_width(row, dagger),
        "verdict": _verdict(row),
        **({_BAR: _bar(mean, scale, zero_line)} if scale else {}),
        "parameters": _number(row.n_params, ","),
        "chars/s": _number(row.chars_per_second, ",.0f"),
    }


def _loss(shown: Row | Reference) -> float:
    return shown.headline.mean if isinstance(shown, Row) else shown.loss


def _half_width(row: Row, dagger: str) -> Text:
    """Half of the interval's width, marked where it is over text."""
    difference = row.difference
    if not row.comparison or not difference or difference.low is None or difference.high is None:
        return Text()
    return Text(f"{(difference.high - difference.low) / 2:.4f}{dagger if row.comparison.over == 'text' else ''}")


def _verdict(row: Row) -> Text:
    """And of how many seeds in all it would take, where it is undecided."""
    comparison = row.comparison
    if not comparison:
        return Text()
    more = f", {comparison.seeds_needed} seeds?" if comparison.seeds_needed else ""
    return Text(f"{comparison.verdict}{more}", _COLOURS.get(comparison.verdict, ""))


def _number(value: float | None, spec: str) -> Text:
    return Text("" if value is None else format(value, spec))


def _bar(difference: float | None, scale: float, zero_line: str) -> Text:
    """A bar that grows from the zero line, to the left for a lower loss, to the right for a higher one.

    Args:
        difference: nats per character; None draws the line alone.
        scale: the difference that fills a half, above 0.
        zero_line: the character of the line; "|" draws the bar in ASCII too.
    """
    halves = round(abs(difference or 0.0) / scale * _HALF * 2)
    if zero_line == "|":
        left = right = "#" * ((halves + 1) // 2)
    else:
        full = "█" * (halves // 2)
        left, right = "▐" * (halves % 2) + full, full + "▌" * (halves % 2)
    is_better = difference is not None and difference < 0
    return Text.assemble(
        (f"{left if is_better else '':>{_HALF}}", "cyan"),
        zero_line,
        (f"{'' if is_better else right:<{_HALF}}", "magenta"),
    )

"""Variants → rows, and rows as a table for a terminal or as CSV."""

import csv
import io
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rich import box
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from trilab.report.runs import number
from trilab.report.variants import Variant
from trilab.stats import PairedDifference, paired_difference, sample_std

CSV_COLUMNS = (
    "agg",
    "n_seeds",
    "val_loss_mean",
    "val_loss_std",
    "diff_to_baseline",
    "n_params",
    "chars_per_second",
)

_HALF = 7  # cells of the drawn difference on each side of its zero line
_BAR = f"{'better ':>{_HALF}}|{' worse':<{_HALF}}"
_EXPENDABLE = (_BAR, "chars/s", "parameters", "spread")
_NAME_WIDTH = 18  # longer names are folded before a column is left out; with it, all columns take 100 characters


class Named(Protocol):
    """A row of any table of strategies."""

    @property
    def name(self) -> str:
        """What stands first in it."""

    @property
    def is_baseline(self) -> bool:
        """Whether the others are compared with it."""


@dataclass(frozen=True)
class Row:
    """What the report says of one variant."""

    name: str
    n_seeds: int
    val_loss_mean: float
    """Mean over seeds of the final val loss, nats per character."""
    val_loss_std: float | None
    """Sample standard deviation over seeds, nats per character; None with one seed."""
    difference: PairedDifference | None
    """Val loss minus the baseline's, paired by seed; None where there is no baseline."""
    n_params: int | None
    chars_per_second: float | None
    """Mean over seeds."""
    is_baseline: bool

    @property
    def diff_to_baseline(self) -> float | None:
        """Mean of the paired differences, nats per character; None without a baseline or a common seed."""
        return self.difference.mean if self.difference else None


def find_baseline(variants: Sequence[Variant], baseline: str) -> tuple[Variant | None, str]:
    """The one variant of that name; or None and why not, in a sentence."""
    found = [v for v in variants if v.name == baseline] or [v for v in variants if v.label == baseline]
    if len(found) == 1:
        return found[0], ""
    if found:
        names = ", ".join(repr(variant.name) for variant in found)
        return None, f"No differences: the baseline {baseline!r} could be any of {names}. Choose one by its whole name."
    names = ", ".join(repr(variant.name) for variant in variants) or "none"
    return None, f"No differences: there is no finished run of the baseline {baseline!r}. Rows: {names}."


def make_rows(variants: Sequence[Variant], baseline: Variant | None) -> list[Row]:
    """One row a variant, the lowest mean val loss first."""
    rows = []
    for variant in variants:
        losses = variant.val_losses
        n_params = [n for run in variant.runs if isinstance(n := run.summary.get("n_params"), int)]
        speeds = [s for run in variant.runs if (s := number(run.summary.get("chars_per_second"))) is not None]
        rows.append(
            Row(
                name=variant.name,
                n_seeds=len(losses),
                val_loss_mean=statistics.mean(losses.values()),
                val_loss_std=sample_std(losses.values()),
                difference=paired_difference(losses, baseline.val_losses) if baseline else None,
                n_params=n_params[0] if n_params else None,
                chars_per_second=statistics.mean(speeds) if speeds else None,
                is_baseline=variant is baseline,
            )
        )
    return sorted(rows, key=lambda row: (row.val_loss_mean, row.name))


def csv_text(rows: Sequence[Row]) -> str:
    """The rows as CSV with a header: floats in full precision, what is not known left blank."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for row in rows:
        writer.writerow(
            (
                row.name,
                row.n_seeds,
                row.val_loss_mean,
                row.val_loss_std,
                row.diff_to_baseline,
                row.n_params,
                row.chars_per_second,
            )
        )
    return out.getvalue()


def make_table(rows: Sequence[Row], console: Console) -> Table:
    """The rows as a table that fits the console; where it is narrow, first the drawn differences are left out."""
    columns = _columns(rows, ascii_only=console.options.ascii_only)
    return fitted(rows, columns, console, expendable=_EXPENDABLE, left=(_BAR,))


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


def _columns(rows: Sequence[Row], *, ascii_only: bool) -> dict[str, list[Text]]:
    """Header → cells, of every column but the names."""
    differences = [row.diff_to_baseline for row in rows]
    scale = max((abs(difference) for difference in differences if difference is not None), default=0.0)
    zero_line = "|" if ascii_only else "│"
    drawn = {_BAR: [_bar(difference, scale, zero_line) for difference in differences]} if scale else {}
    return {
        "seeds": [Text(str(row.n_seeds)) for row in rows],
        "val loss": [Text(f"{row.val_loss_mean:.4f}") for row in rows],
        "spread": [_number(row.val_loss_std, ".4f") for row in rows],
        "difference": [Text("baseline") if row.is_baseline else _number(row.diff_to_baseline, "+.4f") for row in rows],
        **drawn,
        "parameters": [_number(row.n_params, ",") for row in rows],
        "chars/s": [_number(row.chars_per_second, ",.0f") for row in rows],
    }


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

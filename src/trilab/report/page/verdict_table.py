"""Rows and reference lines → cells of the verdict table: what is shown, and by what it is sorted."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from trilab.report.page import intervals
from trilab.report.page.written import count, difference, loss, p_value, seconds, share, short
from trilab.report.rows import Row
from trilab.report.terms import MEASURES

if TYPE_CHECKING:
    from trilab.report import Report


@dataclass(frozen=True)
class Cell:
    """One number."""

    shown: str = ""
    value: float | None = None
    """In full; None where there is none."""

    @property
    def data(self) -> str:
        """The value with all its digits, as report.json has it."""
        return "" if self.value is None else repr(self.value)


@dataclass(frozen=True)
class Column:
    """One column of numbers."""

    key: str
    name: str
    """In the table's head."""
    why: str
    """What it is, in a few words."""


@dataclass(frozen=True)
class Shown:
    """A row of the table."""

    place: int | None
    """Of a row of the report; None for a reference line."""
    name: str
    row: Row | None
    whole_context: bool
    interval: Markup
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class VerdictTable:
    """The whole of it."""

    columns: tuple[Column, ...]
    rows: tuple[Shown, ...]
    over_text: bool
    """Whether a row's interval is over stretches of text."""


_COLUMNS: tuple[tuple[Column, Callable[[Row], float | None], Callable[[float], str]], ...] = (
    (
        Column("difference", "difference", "loss minus the baseline's, paired by seed"),
        lambda row: row.difference.mean if row.difference else None,
        difference,
    ),
    (
        Column("low", "95 % from", "where the 95 % interval begins"),
        lambda row: row.difference.low if row.difference else None,
        difference,
    ),
    (
        Column("high", "to", "where the 95 % interval ends"),
        lambda row: row.difference.high if row.difference else None,
        difference,
    ),
    (
        Column("p_holm", "Holm p", "p of the paired t-test, adjusted for the number of rows"),
        lambda row: row.comparison.p_adjusted if row.comparison else None,
        p_value,
    ),
    (Column("seeds", "seeds", "trained with so many seeds"), lambda row: len(row.seeds), count),
    (
        Column("seeds_needed", "needed", "seeds that would decide it, about"),
        lambda row: row.comparison.seeds_needed if row.comparison else None,
        count,
    ),
    (Column("loss", "loss", "mean over seeds, nats per character"), lambda row: row.headline.mean, loss),
    (Column("std", "spread", "sample standard deviation over seeds"), lambda row: row.headline.std, loss),
)
_MEASURES = {
    "val_loss": Column("val_loss", "final loss", "final validation loss, mean over seeds"),
    "best_val_loss": Column("best_val_loss", "best", "best validation loss of the training, mean over seeds"),
    "test_loss": Column("test_loss", "test", "test loss of the final weights, mean over seeds"),
    "answer_loss": Column("answer_loss", "answers", "final validation loss of the answers alone, mean over seeds"),
}
_ACCURACY: tuple[Column, Callable[[Row], float | None], Callable[[float], str]] = (
    Column("answer_accuracy", "right", "share of the answers that are guessed right, mean over seeds"),
    lambda row: row.answer_accuracy,
    share,
)
_COSTS: tuple[tuple[Column, Callable[[Row], float | None], Callable[[float], str]], ...] = (
    (Column("n_params", "parameters", "trained parameters"), lambda row: row.n_params, count),
    (Column("training_flops", "FLOPs", "operations of the whole training"), lambda row: row.training_flops, short),
    (Column("seconds", "time", "wall time of a training, mean over seeds"), lambda row: row.seconds, seconds),
)


def table(report: "Report") -> VerdictTable:
    """Rows and reference lines by their loss. Columns that no row has anything for are left out."""
    losses = tuple(
        (_MEASURES[measure], lambda row, m=measure: row.losses[m].mean if m in row.losses else None, loss)
        for measure in MEASURES
        if measure != report.terms.measure
    )
    columns = [
        (column, of, written)
        for column, of, written in (*_COLUMNS, *losses, _ACCURACY, *_COSTS)
        if column.key in ("seeds", "loss") or any(of(row) is not None for row in report.rows)
    ]
    scale = intervals.shared_axis(report.rows, report.terms.margin)
    margin, base = report.terms.margin, report.baseline
    shown = [
        Shown(
            place=place,
            name=row.name,
            row=row,
            whole_context=False,
            interval=intervals.interval(row, scale, margin) if scale else Markup(""),
            cells=tuple(_cell(of(row), written) for _, of, written in columns),
        )
        for place, row in enumerate(report.rows)
    ]
    for line in report.references:
        drawn = intervals.reference(line, base.headline.mean, scale) if scale and base else Markup("")
        cells = (_cell(line.loss, loss) if column.key == "loss" else Cell() for column, _, _ in columns)
        shown.append(Shown(None, line.name, None, line.whole_context, drawn, tuple(cells)))
    at = next(k for k, (column, _, _) in enumerate(columns) if column.key == "loss")
    shown.sort(key=lambda each: (each.cells[at].value or 0.0, each.place is None, each.place or 0))
    over_text = any(row.comparison is not None and row.comparison.over == "text" for row in report.rows)
    return VerdictTable(tuple(column for column, _, _ in columns), tuple(shown), over_text)


def _cell(value: float | None, written: Callable[[float], str]) -> Cell:
    return Cell() if value is None else Cell(written(value), value)

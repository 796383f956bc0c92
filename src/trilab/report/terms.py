"""On what terms runs are compared: as their experiment says, or whoever asks for the report."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from trilab.errors import BadInput
from trilab.report.runs import Run, number

Measure = Literal["val_loss", "best_val_loss", "test_loss", "answer_loss"]
MEASURES: tuple[Measure, ...] = ("val_loss", "best_val_loss", "test_loss", "answer_loss")

IN_WORDS = {
    "val_loss": "final validation loss",
    "best_val_loss": "best validation loss",
    "test_loss": "test loss of the final weights",
    "answer_loss": "final validation loss of the answers alone",
}


@dataclass(frozen=True)
class Terms:
    """What is compared with what, by which measure.

    Raises:
        BadInput: a measure that there is not, a margin that is not above 0.
    """

    baseline: str = "none"
    """The row that the others are compared with, by its name, or a label that only one row has."""
    measure: Measure = "val_loss"
    """The headline: what rows are ordered and judged by."""
    margin: float = 0.005
    """Nats per character; what differs by surely less is called equal."""
    choose: str | None = None
    """A dotted key; of rows that differ in it alone, the one with the lowest mean val loss is compared."""

    def __post_init__(self) -> None:
        if self.measure not in MEASURES:
            raise BadInput(f"measure={self.measure!r} must be one of {', '.join(MEASURES)}.")
        if not 0 < self.margin < float("inf"):
            raise BadInput(f"margin={self.margin:g} must be above 0 and finite: nats per character.")

    def but(self, **given: Any) -> "Terms":
        """The same with what is given and not None."""
        return replace(self, **{name: value for name, value in given.items() if value is not None})


def terms_of(runs: Iterable[Run]) -> Terms:
    """What the first run's config says; what it does not say, or says wrongly, is as usual."""
    found: dict[str, Any] = {}
    for run in runs:
        section = run.config.get("report")
        if isinstance(section, dict):
            found = {field.name: section[field.name] for field in fields(Terms) if field.name in section}
            break
    if not isinstance(found.get("baseline", ""), str) or found.get("measure", "val_loss") not in MEASURES:
        return Terms()
    if (number(found.get("margin", 1)) or 0) <= 0 or not isinstance(found.get("choose"), str | None):
        return Terms()
    return Terms(**found)

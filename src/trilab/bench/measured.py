"""What was measured, as it stands in the JSON file: every raw repeat, and nothing that can be computed from them."""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trilab.atomic import replacing
from trilab.errors import BadInput

SCHEMA = 1
KINDS = ("agg", "train", "generate", "data", "sweep", "startup")


@dataclass(frozen=True)
class Spread:
    """Quartiles."""

    low: float
    median: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Of one or more values.

    >>> spread([3.0, 1.0, 2.0])
    Spread(low=1.5, median=2.0, high=2.5)
    """
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(low, median, high)


@dataclass(frozen=True)
class Series:
    """What one way came to, round by round.

    Args:
        case: what all ways of it had in common, such as a model's size.
        measure: what was looked at, such as "forward".
        way: how it was done.
        unit: of the values: "s", "characters/s", "MB".
        values: one a round; the same place of another series of this case is the same round.
        size: T in tokens, where cases differ by it.
    """

    case: str
    measure: str
    way: str
    unit: str
    values: tuple[float, ...]
    size: int | None = None


@dataclass(frozen=True)
class Measured:
    """One kind of measurement on one machine.

    Args:
        kind: one of KINDS.
        device: "cpu" or "cuda".
        quick: whether it was cut short.
        machine: what it ran on, see machine.py.
        reference: the way that the others are told against, in tables and pictures.
        series: all of them.
        notes: what a reader must know, one sentence each: what was cut, what is not counted.
    """

    kind: str
    device: str
    quick: bool
    machine: dict[str, Any]
    reference: str
    series: tuple[Series, ...]
    notes: tuple[str, ...] = ()
    schema: int = field(default=SCHEMA, kw_only=True)

    def find(self, case: str, measure: str, way: str) -> Series | None:
        """The series of these names, or None."""
        names = (case, measure, way)
        return next((one for one in self.series if (one.case, one.measure, one.way) == names), None)

    def ratios(self, case: str, measure: str, over: str, under: str) -> list[float]:
        """One way's values over another's, round by round; none where one of them was not measured."""
        one, other = self.find(case, measure, over), self.find(case, measure, under)
        if one is None or other is None:
            return []
        return [a / b for a, b in zip(one.values, other.values, strict=True)]

    def exponents(self, measure: str, way: str) -> list[float]:
        """p in "one row of T tokens costs T^p", of each round: by least squares on logarithms.

        Fitted is the larger half of the T that were measured. Values are of a fixed number of tokens in all, so that
        they grow by one power less than a row's. None where fewer than three T were measured.
        """
        sized = sorted(
            (one for one in self.series if one.size and (one.measure, one.way) == (measure, way)),
            key=lambda one: one.size or 0,
        )
        kept = sized[-max(3, math.ceil(len(sized) / 2)) :]
        if len(kept) < 3:
            return []
        xs = [math.log(one.size or 1) for one in kept]
        rounds = zip(*(one.values for one in kept), strict=False)
        return [1 + statistics.linear_regression(xs, list(map(math.log, values))).slope for values in rounds]


def save(path: Path, found: Sequence[Measured]) -> None:
    """Write them.

    Raises:
        BadInput: the file cannot be written.
    """
    try:
        with replacing(path) as file:
            content = {"schema": SCHEMA, "measured": [asdict(one) for one in found]}
            file.write((json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}. Choose a place that can be written to.") from error


def load(path: Path) -> list[Measured]:
    """What `save` has written; nothing where there is no such file.

    Raises:
        BadInput: it cannot be read, or is something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise BadInput(f"{path} is no JSON: {error}. Give a file of trilab bench's, or a new one.") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise BadInput(
            f"{path} was not written by this trilab bench, whose files have schema {SCHEMA}. Give another name."
        )
    try:
        return [_measured(one) for one in content["measured"]]
    except (KeyError, TypeError) as error:
        raise BadInput(f"{path} is damaged: {error}. Give another name, or measure anew.") from error


def _measured(content: dict[str, Any]) -> Measured:
    series = tuple(Series(**{**one, "values": tuple(one["values"])}) for one in content["series"])
    return Measured(**{**content, "series": series, "notes": tuple(content["notes"])})


def merged(before: Sequence[Measured], new: Sequence[Measured]) -> list[Measured]:
    """What was measured anew takes the place of what was known of the same kind and device."""
    anew = {(one.kind, one.device) for one in new}
    kept = [one for one in before if (one.kind, one.device) not in anew]
    return sorted([*kept, *new], key=lambda one: (KINDS.index(one.kind), one.device))

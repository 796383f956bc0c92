"""What every chart is made of: elements, scales, axes and labels that keep out of each other's way."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

from trilab.report.page.written import shortened, text

CHARACTER = 6.7  # pixels that a character of a label takes, about
LINE = 14.0  # pixels from one label to the next

Attributes = Mapping[str, str | float | int | None]


def element(name: str, attributes: Attributes, *children: str) -> Markup:
    """One element; numbers to a tenth of a pixel, attributes that are None left out, children that are text escaped."""
    written = "".join(f' {key}="{escape(_value(value))}"' for key, value in attributes.items() if value is not None)
    inside = "".join(str(child) if isinstance(child, Markup) else str(escape(text(child))) for child in children)
    return Markup(f"<{name}{written}>{inside}</{name}>")


def _value(value: str | float) -> str:
    return text(value) if isinstance(value, str) else pixels(value)


def pixels(value: float) -> str:
    """A coordinate to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def together(elements: Sequence[Markup]) -> Markup:
    """Elements one after the other."""
    return Markup("").join(elements)


def points(xs: Sequence[float], ys: Sequence[float]) -> str:
    """Coordinates of a polyline."""
    return " ".join(f"{pixels(x)},{pixels(y)}" for x, y in zip(xs, ys, strict=True))


@dataclass(frozen=True)
class Scale:
    """Values → pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value; beyond the scale's ends it goes on, up to where a picture ends."""
        low, high = self._placed(self.low), self._placed(self.high)
        part = (self._placed(value) - low) / (high - low)
        return self.start + min(max(part, -5.0), 6.0) * (self.end - self.start)

    def holds(self, value: float) -> bool:
        """Whether a value lies within."""
        return self.low <= value <= self.high

    def _placed(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def ticks(self, number: int = 5) -> list[float]:
        """Round values, about so many."""
        if self.log:
            low, high = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            for steps in ((1,), (1, 3), (1, 2, 5)):
                found = [m * 10.0**e for e in range(low, high + 1) for m in steps if self.holds(m * 10.0**e)]
                if len(found) >= 3:
                    return found[:: math.ceil(len(found) / (number + 2))]
        rough = (self.high - self.low) / number
        size = 10.0 ** math.floor(math.log10(rough))
        step = next(m * size for m in (1, 2, 2.5, 5, 10) if m * size >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, first + 50) if k * step <= self.high + step * 1e-9]


def scale(values: Sequence[float], start: float, end: float, *, log: bool = False, pad: float = 0.06) -> Scale:
    """A scale that holds all the values, with some room; equal values get room around them."""
    low, high = min(values), max(values)
    if log and low > 0 and high / low > 4:
        room = (high / low) ** pad
        return Scale(low / room, high * room, start, end, log=True)
    room = (high - low) * pad
    if high - low <= 1e-9 * max(abs(low), abs(high), 1e-9):
        room = max(abs(high) * 0.05, 1e-3)
    return Scale(low - room, high + room, start, end)


def rounded(ticks: Sequence[float]) -> Callable[[float], str]:
    """How to write ticks so that neighbours differ: with as many digits as their distance needs."""
    step = min((b - a for a, b in pairwise(ticks)), default=1.0)
    largest = max((abs(tick) for tick in ticks), default=1.0)
    if largest >= 1e5 or (largest < 1e-3 and largest > 0):
        digits = max(1, math.ceil(math.log10(largest / step)) + 1)
        return lambda tick: f"{tick:.{digits}g}".replace("-", "\N{MINUS SIGN}")
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    if round(step * 10**digits, 6) % 1:  # a step of 2.5
        digits += 1
    return lambda tick: f"{tick + 0.0:,.{digits}f}".replace("-", "\N{MINUS SIGN}")


@dataclass(frozen=True)
class Frame:
    """A chart's field with its axes."""

    x: Scale
    y: Scale
    x_title: str
    y_title: str
    x_written: Callable[[float], str] | None = None

    def drawn(self) -> Markup:
        """Grid, ticks and titles."""
        x_ticks, y_ticks = self.x.ticks(7), self.y.ticks(7)
        x_written, y_written = self.x_written or rounded(x_ticks), rounded(y_ticks)
        left, right, bottom, top = self.x.start, self.x.end, self.y.start, self.y.end
        parts = []
        for tick in y_ticks:
            y = self.y(tick)
            parts.append(element("line", {"class": "grid", "x1": left, "x2": right, "y1": y, "y2": y}))
            parts.append(element("text", {"class": "tick end", "x": left - 8, "y": y + 4}, y_written(tick)))
        for tick in x_ticks:
            x = self.x(tick)
            parts.append(element("line", {"class": "axis", "x1": x, "x2": x, "y1": bottom, "y2": bottom + 4}))
            parts.append(element("text", {"class": "tick middle", "x": x, "y": bottom + 18}, x_written(tick)))
        parts.append(element("line", {"class": "axis", "x1": left, "x2": right, "y1": bottom, "y2": bottom}))
        middle = (left + right) / 2
        parts.append(element("text", {"class": "title middle", "x": middle, "y": bottom + 38}, self.x_title))
        parts.append(element("text", {"class": "title", "x": 0, "y": top - 14}, self.y_title))
        return element("g", {"class": "frame"}, *parts)


def spread(places: Sequence[float], low: float, high: float, distance: float = LINE) -> list[float]:
    """Places moved as little as it takes to be a distance apart, in their order, between two ends where they fit."""
    groups: list[tuple[float, list[int]]] = []  # the middle of a run of labels, and whose they are
    for place in sorted(range(len(places)), key=lambda k: places[k]):
        members = [place]
        while True:
            half = distance * (len(members) - 1) / 2
            middle = sum(places[k] for k in members) / len(members)
            middle = max(low + half, min(high - half, middle))
            if not groups or middle - groups[-1][0] >= distance * (len(groups[-1][1]) + len(members)) / 2:
                break
            members = groups.pop()[1] + members
        groups.append((middle, members))
    found = [0.0] * len(places)
    for middle, members in groups:
        for k, place in enumerate(members):
            found[place] = middle + (k - (len(members) - 1) / 2) * distance
    return found


def without_outliers(values: Sequence[float]) -> float:
    """The highest value that is worth an axis: what is above it is so far off that the rest would be a line."""
    kept = sorted(values)
    while len(kept) > 2 and kept[-1] - kept[-2] > 3 * (kept[-2] - kept[0]) > 0:
        kept.pop()
    return kept[-1]


@dataclass(frozen=True)
class Label:
    """A name at the right of where a line ends."""

    names: Sequence[str]
    y: float
    attributes: Attributes


def labels(shown: Sequence[Label], x: float, low: float, high: float) -> list[Markup]:
    """Names one below the other at the right, each with a thin line to where its own line ends."""
    found = []
    for label, y in zip(shown, spread([label.y for label in shown], low, high), strict=True):
        lead = points([x + 3, x + 10, x + 20, x + 24], [label.y, label.y, y, y])
        found.append(
            element(
                "g",
                {**label.attributes},
                element("polyline", {"class": "leader", "points": lead}),
                element("text", {"class": "label", "x": x + 28, "y": y + 4}, joined(label.names)),
            )
        )
    return found


def joined(names: Sequence[str]) -> str:
    """Names of one and the same line, as far as there is room."""
    whole = " = ".join(names)
    if len(whole) <= 24:
        return whole
    return shortened(names[0], 24) if len(names) == 1 else f"{shortened(names[0], 14)} = {len(names) - 1} more"


def picture(width: float, height: float, about: tuple[str, str, str], extra: Attributes, *parts: Markup) -> Markup:
    """A chart with its title and description for those who do not see it.

    Args:
        width, height: of its field, in pixels.
        about: an id that no other picture has, a title, a description.
        extra: further attributes.
        parts: what is drawn.
    """
    name, title, description = about
    return element(
        "svg",
        {
            "class": "chart",
            "viewBox": f"0 0 {pixels(width)} {pixels(height)}",
            "role": "img",
            "aria-label": title,
            "aria-describedby": f"{name}-desc",
            **extra,
        },
        element("desc", {"id": f"{name}-desc"}, description),
        *parts,
    )

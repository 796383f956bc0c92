"""Differences to the baseline as small drawings on one axis."""

from collections.abc import Sequence

from markupsafe import Markup

from trilab.report.page.svg import Attributes, Scale, element, picture, points, rounded, together
from trilab.report.references import Reference
from trilab.report.rows import Row

WIDTH, HEIGHT, MIDDLE = 200.0, 24.0, 12.0
_ROOM = 8.0


def shared_axis(rows: Sequence[Row], margin: float) -> Scale | None:
    """One that holds zero, the margin and every interval but those far out; None where there is no difference.

    Intervals that are far wider than the differences, and rows that are far worse than all others, would leave the rest
    too small to see: they end in an arrow.
    """
    differences = [row.difference for row in rows]
    means = [d.mean for d in differences if d is not None and d.mean is not None]
    if not means:
        return None
    kept = sorted(means, key=abs)
    while len(kept) > 2 and kept[-1] > 6 * max(abs(kept[-2]), margin):
        kept.pop()
    most = max(abs(kept[-1]) * 2, 3 * margin)
    ends = [
        min(max(end, -most), most)
        for d in differences
        if d is not None and d.mean is not None and abs(d.mean) <= most
        for end in (d.mean, d.mean if d.low is None else d.low, d.mean if d.high is None else d.high)
    ]
    low, high = min([*ends, -2 * margin]), max([*ends, 2 * margin])
    room = (high - low) * 0.04
    return Scale(low - room, high + room, _ROOM, WIDTH - _ROOM)


def axis(scale: Scale, margin: float) -> Markup:
    """The axis, for the head of the column."""
    ticks = scale.ticks(5)
    written = rounded(ticks)
    parts = [
        element(
            "g",
            {},
            element("line", {"class": "axis", "x1": scale(t), "x2": scale(t), "y1": 18, "y2": 24}),
            element("text", {"class": "tick middle", "x": scale(t), "y": 13}, written(t)),
        )
        for t in ticks
        if 14 <= scale(t) <= WIDTH - 14 or len(ticks) < 3
    ]
    description = f"From {written(scale.low)} to {written(scale.high)} nats; equal is within {margin:g} of zero."
    about = ("interval-axis", "Axis of the differences: better at the left of zero, worse at the right", description)
    return picture(WIDTH, HEIGHT, about, {"width": WIDTH, "height": HEIGHT}, *parts)


def interval(row: Row, scale: Scale, margin: float) -> Markup:
    """A row's difference with its interval. Its numbers stand beside it, so a screen reader passes over it."""
    difference, comparison = row.difference, row.comparison
    parts = [_zero(scale, margin)]
    if row.is_baseline:
        parts.append(element("circle", {"class": "dot", "cx": scale(0.0), "cy": MIDDLE, "r": 4}))
    elif difference is not None and difference.mean is not None and comparison is not None:
        if difference.low is not None and difference.high is not None:
            parts.append(_whisker(difference.low, difference.high, scale, dashed=comparison.over == "text"))
        if scale.holds(difference.mean):
            parts.append(_mean(scale(difference.mean), comparison.verdict))
        else:
            parts.append(_arrow(difference.mean > 0))
    look = f"verdict-{comparison.verdict}" if comparison else "verdict-none"
    return _small(look, *parts)


def reference(line: Reference, base: float, scale: Scale) -> Markup:
    """A reference line's difference to the baseline's mean loss, where it lies on the axis."""
    if not scale.holds(line.loss - base):
        return Markup("")
    x = scale(line.loss - base)
    return _small("verdict-none", element("line", {"class": "reference-mark", "x1": x, "x2": x, "y1": 4, "y2": 20}))


def _small(look: str, *parts: Markup) -> Markup:
    attributes: Attributes = {
        "class": f"interval {look}",
        "viewBox": f"0 0 {WIDTH:g} {HEIGHT:g}",
        "width": WIDTH,
        "height": HEIGHT,
        "aria-hidden": "true",
        "focusable": "false",
    }
    return element("svg", attributes, *parts)


def _zero(scale: Scale, margin: float) -> Markup:
    left, right = scale(-margin), scale(margin)
    return together(
        [
            element("rect", {"class": "margin", "x": left, "y": 0, "width": right - left, "height": HEIGHT}),
            element("line", {"class": "zero", "x1": scale(0.0), "x2": scale(0.0), "y1": 0, "y2": HEIGHT}),
        ]
    )


def _whisker(low: float, high: float, scale: Scale, *, dashed: bool) -> Markup:
    start, end = max(low, scale.low), min(high, scale.high)
    if start > end:
        return Markup("")
    parts = [
        element(
            "line",
            {
                "class": f"whisker{' dashed' if dashed else ''}",
                "x1": scale(start),
                "x2": scale(end),
                "y1": MIDDLE,
                "y2": MIDDLE,
            },
        )
    ]
    for value, edge, beyond in ((low, start, low < scale.low), (high, end, high > scale.high)):
        x = scale(edge)
        if beyond:
            parts.append(_arrow(value > 0))
        else:
            parts.append(element("line", {"class": "whisker", "x1": x, "x2": x, "y1": MIDDLE - 4, "y2": MIDDLE + 4}))
    return together(parts)


def _mean(x: float, verdict: str) -> Markup:
    """Its form tells the verdict too: full where decided, hollow where not, a square where equal."""
    if verdict == "equal":
        return element("rect", {"class": "mean", "x": x - 4, "y": MIDDLE - 4, "width": 8, "height": 8})
    return element("circle", {"class": "mean", "cx": x, "cy": MIDDLE, "r": 4.5})


def _arrow(to_the_right: bool) -> Markup:
    x, tip = (WIDTH - 7, WIDTH - 1) if to_the_right else (7.0, 1.0)
    return element("polygon", {"class": "arrow", "points": points([x, tip, x], [MIDDLE - 5, MIDDLE, MIDDLE + 5])})

"""Loss drawn over something, a line a row: learning curves, loss by position."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from trilab.report.page.svg import (
    CHARACTER,
    LINE,
    Frame,
    Label,
    Scale,
    element,
    joined,
    labels,
    picture,
    pixels,
    points,
    scale,
    without_outliers,
)
from trilab.report.page.written import count, difference, listed, loss, shortened
from trilab.report.references import Reference
from trilab.report.rows import Row

WIDTH, LEFT, TOP, BOTTOM = 1080.0, 58.0, 34.0, 48.0
MOST_POINTS = 120  # of a line, so that the page stays small
MOST_COLUMNS = 16  # of the table with its numbers
Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels


@dataclass(frozen=True)
class Line:
    """What one row came to, or several that came to the same."""

    rows: tuple[int, ...]
    """Their places in the report."""
    names: tuple[str, ...]
    look: str
    xs: tuple[int, ...]
    ys: tuple[float, ...]
    """Mean over the seeds."""
    lows: tuple[float, ...]
    """The lowest over the seeds."""
    highs: tuple[float, ...]
    n_seeds: int


@dataclass(frozen=True)
class Chart:
    """A chart, and its numbers as a table."""

    drawing: Markup
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    """Name, and a cell a column; what is not known is empty."""
    cut: str = ""
    """What is not drawn, in a sentence."""


def curves(rows: Sequence[Row], look: Sequence[str]) -> list[Line]:
    """Validation loss over steps: at every step that all seeds of a row have come to."""
    found = []
    for place, row in enumerate(rows):
        of_seeds = [curve for curve in row.curves.values() if curve]
        steps = sorted(set.intersection(*(set(curve) for curve in of_seeds))) if of_seeds else []
        if steps:
            found.append(_line(place, row, look[place], steps, [[curve[s] for s in steps] for curve in of_seeds]))
    return _merged(found)


def positions(rows: Sequence[Row], look: Sequence[str]) -> list[Line]:
    """Final validation loss over the position in the window, which begins at 1: so many characters have been read."""
    found = []
    for place, row in enumerate(rows):
        if row.loss_by_position:
            xs = range(1, len(row.loss_by_position) + 1)
            found.append(_line(place, row, look[place], list(xs), [list(row.loss_by_position)]))
    return _merged(found)


def _line(place: int, row: Row, look: str, xs: Sequence[int], of_seeds: Sequence[Sequence[float]]) -> Line:
    stride = -(-len(xs) // MOST_POINTS)
    kept = sorted({*range(0, len(xs), stride), len(xs) - 1})
    at = [[values[k] for values in of_seeds] for k in kept]
    return Line(
        rows=(place,),
        names=(row.name,),
        look=look,
        xs=tuple(xs[k] for k in kept),
        ys=tuple(sum(values) / len(values) for values in at),
        lows=tuple(min(values) for values in at),
        highs=tuple(max(values) for values in at),
        n_seeds=len(of_seeds),
    )


def _merged(lines: Sequence[Line]) -> list[Line]:
    """Lines that lie on each other as one, with all their names."""
    found: dict[tuple[object, ...], Line] = {}
    for line in lines:
        key = (line.xs, line.ys, line.lows, line.highs)
        first = found.get(key)
        if first is None:
            found[key] = line
        else:
            look = line.look if line.look == "look-baseline" else first.look
            found[key] = replace(first, rows=first.rows + line.rows, names=first.names + line.names, look=look)
    return list(found.values())


def chart(
    lines: Sequence[Line],
    references: Sequence[Reference],
    *,
    about: tuple[str, str, str],
    x_title: str,
    zoomed: bool,
    with_gain: bool = False,
) -> Chart | None:
    """The lines with the reference lines that lie among them; None where there is no line.

    Args:
        lines, references: what to draw.
        about: see `picture`.
        x_title: of the horizontal axis.
        zoomed: whether the vertical axis leaves out the first quarter of the way, where all lines are steep.
        with_gain: whether the table tells by how much each line falls in all.
    """
    if not lines:
        return None
    height = max(400.0, LINE * len(lines) + TOP + BOTTOM + 20)
    xs = [x for line in lines for x in line.xs]
    first, last = min(xs), max(xs)
    from_here = first + (last - first) / 4 if zoomed else first
    highest = without_outliers([line.ys[-1] for line in lines])
    seen = [
        value
        for line in lines
        if line.ys[-1] <= highest
        for x, low, high in zip(line.xs, line.lows, line.highs, strict=True)
        if x >= from_here or len(line.xs) < 3
        for value in (low, high)
    ]
    right = WIDTH - 40 - CHARACTER * max(len(joined(line.names)) for line in lines)
    across = scale(xs, LEFT, right, pad=0.0 if last > first else 0.06)
    up = scale(seen, height - BOTTOM, TOP)
    frame = Frame(across, up, x_title, "loss, nats per character", count)
    ends = [Label(line.names, min(max(up(line.ys[-1]), TOP), height - BOTTOM), _of(line)) for line in lines]
    clip = f"{about[0]}-field"
    field = {"x": LEFT, "y": TOP - 4, "width": right - LEFT + 3, "height": height - BOTTOM - TOP + 8}
    bands = [_band(line, across, up) for line in lines if line.n_seeds > 1]
    strokes = [_stroke(line, across, up) for line in lines]
    drawing = picture(
        WIDTH,
        height,
        about,
        {
            "data-x-low": repr(across.low),
            "data-x-high": repr(across.high),
            "data-x-start": pixels(across.start),
            "data-x-end": pixels(across.end),
        },
        element("clipPath", {"id": clip}, element("rect", field)),
        frame.drawn(),
        element("g", {"clip-path": f"url(#{clip})"}, *bands, *reference_lines(references, frame)[0], *strokes),
        element("line", {"class": "cursor", "x1": LEFT, "x2": LEFT, "y1": TOP, "y2": height - BOTTOM}),
        *labels(ends, right, TOP, height - BOTTOM),
    )
    cut = ""
    if max(max(line.highs) for line in lines) > up.high:
        off = [" = ".join(line.names) for line in lines if line.ys[-1] > highest]
        what = f"what is above it, such as {listed(off)}," if off else "what was above it early in training"
        cut = f"The axis ends at {loss(up.high, 2)}: {what} is not drawn."
    return Chart(drawing, *_table(lines, with_gain=with_gain), cut)


def _of(line: Line) -> dict[str, str]:
    return {"class": f"of-row {line.look}", "data-row": " ".join(str(place) for place in line.rows)}


def _stroke(line: Line, across: Scale, up: Scale) -> Markup:
    xs, ys = [across(x) for x in line.xs], [up(y) for y in line.ys]
    drawn = element("polyline", {"class": "stroke", "points": points(xs, ys)})
    easy_to_hit = element("polyline", {"class": "reach", "points": points(xs, ys)})
    if len(xs) == 1:
        drawn = element("circle", {"class": "dot", "cx": xs[0], "cy": ys[0], "r": 4})
    said = {
        "data-name": " = ".join(line.names),
        "data-xs": " ".join(str(x) for x in line.xs),
        "data-ys": " ".join(loss(y) for y in line.ys),
    }
    return element("g", {**_of(line), **said}, drawn, easy_to_hit)


def _band(line: Line, across: Scale, up: Scale) -> Markup:
    forth, back = [across(x) for x in line.xs], [across(x) for x in reversed(line.xs)]
    outline = points([*forth, *back], [*(up(y) for y in line.lows), *(up(y) for y in reversed(line.highs))])
    return element("g", _of(line), element("polygon", {"class": "band", "points": outline}))


def same_everywhere(references: Iterable[Reference]) -> list[Reference]:
    """Those that lose as much at one position of a window as at another: one character is before every guess."""
    return [line for line in references if line.reads is not None and line.reads <= 1]


def reference_lines(references: Sequence[Reference], frame: Frame) -> tuple[list[Markup], list[Box]]:
    """Those within the chart, and where their names stand; names only where they do not lie on each other.

    Args:
        references: the highest loss first.
        frame: whose vertical axis is a loss.
    """
    found: list[Markup] = []
    named: list[Box] = []
    for line in references:
        if line.whole_context or not frame.y.holds(line.loss):
            continue
        y = frame.y(line.loss)
        title = element("title", {}, f"{line.name}: {loss(line.loss)}")
        parts = [title, element("line", {"x1": frame.x.start, "x2": frame.x.end, "y1": y, "y2": y})]
        if not named or y - named[-1][3] >= LINE - 2:
            left, name = frame.x.start + 6, shortened(line.name)
            parts.append(element("text", {"x": left, "y": y - 4}, name))
            named.append((left, y - LINE, left + CHARACTER * len(name), y))
        found.append(element("g", {"class": "reference"}, *parts))
    return found, named


def _table(
    lines: Sequence[Line], *, with_gain: bool
) -> tuple[tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]]:
    """Columns, and a name with a cell a column for each line."""
    xs = sorted({x for line in lines for x in line.xs})
    stride = -(-len(xs) // MOST_COLUMNS)
    kept = [x for k, x in enumerate(xs) if k % stride == 0 or k == len(xs) - 1]
    at: list[tuple[str, Mapping[int, float]]] = [
        (" = ".join(line.names), dict(zip(line.xs, line.ys, strict=True))) for line in lines
    ]
    cells = [[loss(of[x]) if x in of else "" for x in kept] for _, of in at]
    columns = [count(x) for x in kept]
    if with_gain:
        columns.append("first to last")
        for line, row in zip(lines, cells, strict=True):
            row.append(difference(line.ys[-1] - line.ys[0]))
    return tuple(columns), tuple((name, tuple(row)) for (name, _), row in zip(at, cells, strict=True))

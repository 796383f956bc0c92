"""Loss against what it costs, with the rows that no other beats in both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from trilab.report.page.lines import BOTTOM, LEFT, TOP, WIDTH, Box, reference_lines
from trilab.report.page.svg import CHARACTER, LINE, Frame, element, picture, points, scale, without_outliers
from trilab.report.page.written import loss, seconds, short, shortened
from trilab.report.references import Reference
from trilab.report.rows import Row

_HEIGHT = 440.0


@dataclass(frozen=True)
class Cost:
    """One kind of cost."""

    key: str
    name: str
    of: Callable[[Row], float | None]
    written: Callable[[float], str]


COSTS = (
    Cost("parameters", "Parameters", lambda row: row.n_params, short),
    Cost("flops", "Training FLOPs", lambda row: row.training_flops, short),
    Cost("seconds", "Seconds of training", lambda row: row.seconds, seconds),
)


@dataclass(frozen=True)
class CostChart:
    """A chart, and which rows are on its front."""

    cost: Cost
    drawing: Markup
    front: tuple[str, ...]
    """From the cheapest to the one with the lowest loss."""
    unknown: tuple[str, ...]
    """Rows whose cost was not recorded."""
    above: tuple[str, ...]
    """Rows whose loss is too far above all others for the axis; the front is of those that are drawn."""


def cost_charts(rows: Sequence[Row], references: Sequence[Reference], look: Sequence[str]) -> list[CostChart]:
    """A chart for every kind of cost that a row tells, with the reference lines that lie among the rows' losses."""
    charts = (_chart(cost, rows, references, look) for cost in COSTS)
    return [chart for chart in charts if chart is not None]


def front(points: Sequence[tuple[float, float]]) -> list[int]:
    """The places of the points (cost, loss) that no other is at most as high as in both and lower in one.

    From the cheapest on; of equal ones the first.
    """
    found: list[int] = []
    for place in sorted(range(len(points)), key=lambda k: (*points[k], k)):
        if not found or points[place][1] < points[found[-1]][1]:
            found.append(place)
    return found


def _chart(cost: Cost, rows: Sequence[Row], references: Sequence[Reference], look: Sequence[str]) -> CostChart | None:
    known = [(place, value) for place, row in enumerate(rows) if (value := cost.of(row)) is not None]
    if not known:
        return None
    unknown = tuple(row.name for place, row in enumerate(rows) if place not in dict(known))
    highest = without_outliers([rows[place].headline.mean for place, _ in known])
    above = tuple(rows[place].name for place, _ in known if rows[place].headline.mean > highest)
    known = [(place, value) for place, value in known if rows[place].headline.mean <= highest]
    at = [(value, rows[place].headline.mean) for place, value in known]
    right = WIDTH - 20 - CHARACTER * max(len(shortened(rows[place].name)) for place, _ in known)
    across = scale([x for x, _ in at], LEFT, right, log=True, pad=0.08)
    up = scale([y for _, y in at], _HEIGHT - BOTTOM, TOP, pad=0.1)
    frame = Frame(across, up, cost.name.lower(), "loss, nats per character", cost.written)
    best = front(at)
    steps_x: list[float] = []
    steps_y: list[float] = []
    for k in best:  # a staircase: with so much to spend, this is the lowest loss so far
        steps_x += [across(at[k][0])] * (2 if steps_y else 1)
        steps_y += ([steps_y[-1]] if steps_y else []) + [up(at[k][1])]
    steps_x.append(across.end)
    steps_y.append(steps_y[-1])
    places = [(across(x), up(y)) for x, y in at]
    untrained, taken = reference_lines(references, frame)
    texts = _labels([shortened(rows[place].name) for place, _ in known], places, taken)
    dots = []
    for k, (place, value) in enumerate(known):
        row, (x, y) = rows[place], places[k]
        said = f"{row.name}: loss {loss(row.headline.mean)}, {cost.written(value)}"
        if cost.key != "seconds":
            said += f" {cost.name.lower()}"
        on_front = "on the front" if k in best else ""
        dots.append(
            element(
                "g",
                {
                    "class": f"of-row point {look[place]}{' on-front' if on_front else ''}",
                    "data-row": str(place),
                    "data-say": f"{said}{', ' if on_front else ''}{on_front}",
                },
                element("circle", {"class": "reach", "cx": x, "cy": y, "r": 11}),
                element("circle", {"class": "dot", "cx": x, "cy": y, "r": 5}),
                *texts[k],
            )
        )
    names = tuple(rows[known[k][0]].name for k in best)
    title = f"Loss against {cost.name.lower()}"
    description = f"One point a row. On the Pareto front, from the cheapest: {', '.join(names)}."
    drawing = picture(
        WIDTH,
        _HEIGHT,
        (f"cost-{cost.key}", title, description),
        {},
        frame.drawn(),
        *untrained,
        element("polyline", {"class": "front", "points": points(steps_x, steps_y)}),
        *dots,
    )
    return CostChart(cost, drawing, names, unknown, above)


def _labels(
    names: Sequence[str], places: Sequence[tuple[float, float]], elsewhere: Sequence[Box]
) -> list[list[Markup]]:
    """A label for each point, beside it or near it; one without room shows only when its row is pointed at.

    Args:
        names, places: of the points.
        elsewhere: where there is other text.
    """
    dots = [(x - 6, y - 6, x + 6, y + 6) for x, y in places]
    taken = [*elsewhere]
    found: list[list[Markup]] = []
    for k, (name, (x, y)) in enumerate(zip(names, places, strict=True)):
        width = len(name) * CHARACTER
        others = [*dots[:k], *dots[k + 1 :], *taken]
        candidates = (
            (left, y + move - 6.5, left + width, y + move + 6.5)
            for move in sorted((step * LINE / 2 for step in range(-7, 8)), key=abs)
            for left in (x + 10, x - 10 - width)
        )
        box = next((candidate for candidate in candidates if _free(candidate, others)), None)
        if box is None:
            found.append([element("text", {"class": "label crowded", "x": x + 10, "y": y + 4}, name)])
            continue
        taken.append(box)
        middle = (box[1] + box[3]) / 2
        parts = [element("text", {"class": "label", "x": box[0], "y": middle + 4}, name)]
        if abs(middle - y) > LINE / 2:
            end = box[0] - 2 if box[0] > x else box[2] + 2
            parts.insert(0, element("line", {"class": "leader", "x1": x, "y1": y, "x2": end, "y2": middle}))
        found.append(parts)
    return found


def _free(box: Box, taken: Sequence[Box]) -> bool:
    left, top, right, bottom = box
    if left < LEFT or right > WIDTH or top < 4 or bottom > _HEIGHT - BOTTOM + 4:
        return False
    return all(right < a or left > c or bottom < b or top > d for a, b, c, d in taken)

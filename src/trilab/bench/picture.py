"""What was measured as a picture of each kind: costs over T as lines, everything else as ratios to the reference."""

from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from trilab.atomic import replacing
from trilab.bench.measured import Measured, Series, spread
from trilab.errors import BadInput
from trilab.report.page.svg import CHARACTER, LINE, Frame, Label, element, labels, picture, points, scale
from trilab.report.page.written import short
from trilab.report.results import standing_alone

WIDTH, LEFT, TOP, BOTTOM = 1080.0, 58.0, 34.0, 48.0
LOOKS = 6


def write_pictures(found: Sequence[Measured], folder: Path) -> dict[str, Path]:
    """Write one a kind: <kind>.svg, of a GPU <kind>-cuda.svg.

    Returns:
        The files by their names without .svg; what has nothing to draw has none.
    Raises:
        BadInput: a file cannot be written.
    """
    written = {}
    for one in found:
        name = one.kind if one.device == "cpu" else f"{one.kind}-{one.device}"
        drawing = over_time(one, name) if one.kind == "agg" else against_reference(one, name)
        if drawing is None:
            continue
        path = folder / f"{name}.svg"
        try:
            with replacing(path) as file:
                file.write(standing_alone(drawing).encode())
        except OSError as error:
            raise BadInput(
                f"{path} cannot be written: {error.strerror}. Choose a place that can be written to."
            ) from error
        written[name] = path
    return written


def over_time(found: Measured, name: str) -> Markup | None:
    """Seconds of the measure that costs most over T, a line a way; None where nothing was measured over T."""
    of: dict[str, list[Series]] = {}
    for one in found.series:
        if one.size and one.unit == "s":
            of.setdefault(one.measure, []).append(one)
    if not of:
        return None
    measure, series = max(of.items(), key=lambda item: max(spread(one.values).median for one in item[1]))
    ways = list(dict.fromkeys(one.way for one in series))
    medians = {(one.way, one.size or 0): spread(one.values).median for one in series}
    height = max(400.0, LINE * len(ways) + TOP + BOTTOM + 20)
    last = max(size for _, size in medians)
    right = WIDTH - 60 - CHARACTER * (max(map(len, ways)) + 8)
    across = scale([size for _, size in medians], LEFT, right, log=True, pad=0.0)
    up = scale(list(medians.values()), height - BOTTOM, TOP, log=True)
    lines, ends = [], []
    for place, way in enumerate(ways):
        at = sorted((size, value) for (other, size), value in medians.items() if other == way)
        look = "look-baseline" if way == found.reference else f"look-{place % LOOKS}"
        line = points([across(size) for size, _ in at], [up(value) for _, value in at])
        lines.append(element("g", {"class": look}, element("polyline", {"class": "stroke", "points": line})))
        cut = f" to {at[-1][0]:,}" if at[-1][0] < last else ""
        ends.append(Label([f"{way}{cut}"], up(at[-1][1]), {"class": look}))
    return picture(
        WIDTH,
        height,
        (name, f"{found.kind}: {measure} over T", f"Seconds of {measure} at a fixed B · T, over T tokens."),
        {},
        Frame(across, up, "T, tokens (B · T is fixed)", f"{measure}, seconds", lambda size: f"{size:,.0f}").drawn(),
        *lines,
        *labels(ends, right, TOP, height - BOTTOM),
    )


def against_reference(found: Measured, name: str) -> Markup | None:
    """Each way's ratio to the reference, median and quartiles; None where there is no other way."""
    rows = []
    one_measure = len({one.measure for one in found.series}) == 1
    one_case = len({one.case for one in found.series}) == 1
    for one in found.series:
        ratios = found.ratios(one.case, one.measure, one.way, found.reference)
        if one.way != found.reference and ratios:
            before, after = f"{one.measure}: " * (not one_measure), f" ({one.case})" * (not one_case)
            rows.append((f"{before}{one.way}{after}", spread(ratios)))
    if not rows:
        return None
    left = 20 + CHARACTER * max(len(label) for label, _ in rows)
    height = TOP + BOTTOM + 24.0 * len(rows)
    width = left + 520
    ends = [value for _, of in rows for value in (of.low, of.high)]
    across = scale([*ends, 1.0], left, width - 70, log=True)
    parts = [
        element(
            "line",
            {"class": "axis", "x1": across(1), "x2": across(1), "y1": TOP - 8, "y2": height - BOTTOM},
        ),
        element("text", {"class": "title middle", "x": across(1), "y": TOP - 14}, found.reference),
    ]
    for place, (label, of) in enumerate(rows):
        y = TOP + 24.0 * place + 12
        parts.append(
            element(
                "g",
                {"class": f"look-{place % LOOKS}"},
                element("text", {"class": "end", "x": left - 10, "y": y + 4}, label),
                element("polyline", {"class": "leader", "points": points([across(of.low), across(of.high)], [y, y])}),
                element("circle", {"class": "dot", "cx": across(of.median), "cy": y, "r": 4}),
                element("text", {"x": across(of.high) + 8, "y": y + 4}, f"{short(of.median)} ×"),
            )
        )
    parts += [
        element("text", {"class": "tick middle", "x": across(tick), "y": height - BOTTOM + 18}, short(tick))
        for tick in across.ticks(7)
    ]
    title = f"{found.kind}: ratios to {found.reference}"
    about = (name, title, "Median and quartiles of the ratios within rounds.")
    caption = element(
        "text", {"class": "title middle", "x": (left + width) / 2, "y": height - 8}, f"× {found.reference}"
    )
    return picture(width, height, about, {}, *parts, caption)

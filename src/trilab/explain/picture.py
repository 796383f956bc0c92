"""A table of weights as a small drawing, one coloured cell a weight, that reads on light and dark pages alike."""

import html
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from torch import Tensor

from trilab.colours import colours
from trilab.influence import ROUNDING, future

GRID = "#80808080"  # between and around the cells; half transparent: seen on white and on black
LEAK = "#e0007a"
NAME = "#6e7781"  # as far from white as from black
SIDE = 96  # pixels of one drawing
GAP = 12
COLUMNS = 8  # drawings side by side in a gallery


def svg(matrix: Tensor, title: str) -> str:
    """One table as a file of its own.

    Args:
        matrix: (T, T), row t for output t.
        title: what a screen reader says.
    """
    return _document(SIDE, SIDE, title, _cells(matrix))


def gallery(pictures: Sequence[tuple[str, Tensor]], title: str) -> str:
    """Many tables side by side, each with its name below."""
    step, row = SIDE + 2 * GAP, SIDE + 3 * GAP
    parts = []
    for i, (name, matrix) in enumerate(pictures):
        down, across = divmod(i, COLUMNS)
        parts.append(f'<g transform="translate({across * step + GAP} {down * row})">')
        parts += _cells(matrix)
        parts.append(f'<text x="{SIDE // 2}" y="{SIDE + 16}">{html.escape(name)}</text>')
        parts.append("</g>")
    rows = math.ceil(len(pictures) / COLUMNS)
    style = f"<style>text{{font:12px ui-monospace,Menlo,Consolas,monospace;fill:{NAME};text-anchor:middle}}</style>"
    return _document(min(len(pictures), COLUMNS) * step, rows * row - GAP, title, [style, *parts])


def shares(matrix: Tensor) -> list[list[float]]:
    """Each weight as a part of the largest, by size: -1 … 1; rounding is 0."""
    parts = matrix / (matrix.abs().max().item() or 1.0)
    shares: list[list[float]] = parts.masked_fill(parts.abs() <= ROUNDING, 0.0).tolist()
    return shares


def colour(share: float) -> str:
    """#rrggbb of a weight that is this part of the largest, -1 … 1."""
    return f"#{bytes(colours(share)).hex()}"


def _cells(matrix: Tensor) -> Iterator[str]:
    time = len(matrix)
    side = SIDE / time
    leaks, parts = future(matrix), shares(matrix)
    steps = "".join(f"h{-side:g}v{-side:g}" for _ in range(time))
    yield f'<path fill="{GRID}" stroke="{GRID}" d="M0 0V{SIDE}H{SIDE}{steps}z"/>'
    for t, s in product(range(time), repeat=2):
        if s <= t or leaks[t, s]:
            fill = LEAK if leaks[t, s] else colour(parts[t][s])
            x, y, wide = s * side + 0.5, t * side + 0.5, side - 1
            yield f'<path fill="{fill}" d="M{x:g} {y:g}h{wide:g}v{wide:g}h{-wide:g}z"/>'


def _document(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    lines = [f'{head} role="img">', f"<title>{html.escape(title, quote=False)}</title>", *parts, "</svg>"]
    return "\n".join(lines) + "\n"

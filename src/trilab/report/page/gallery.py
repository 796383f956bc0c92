"""Tables of weights as pictures: a cell a weight, one scale of colours for all of them."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from trilab.colours import colours
from trilab.report.page.written import loss, signless
from trilab.report.rows import Row
from trilab.report.tables import LayerTables, read_tables

MOST_WITH_VALUES = 16  # positions of a table whose weights can be read one by one
Table = NDArray[np.float32]

_MOST_HEADS = 8
_LEVELS = 31  # of each sign
_NOTHING = 2 * _LEVELS + 1  # the palette's place for what lies above the diagonal
_ROOM = 350_000  # characters that all pictures may take together
_SIDE = 128  # pixels on the page, about


@dataclass(frozen=True)
class Picture:
    """One table."""

    when: str
    """before, after; or both, where they are the same"""
    source: str
    """A data URI."""
    side: int
    """Width and height on the page, in pixels: the same whole number for every cell."""
    size: int
    """Positions."""
    values: str
    """The weights row by row up to the diagonal, apart by blanks; empty where there are too many to read."""
    words: str
    """For those who do not see it."""


@dataclass(frozen=True)
class HeadPictures:
    """Of one head of one layer."""

    layer: int
    head: int
    pictures: tuple[Picture, ...]


@dataclass(frozen=True)
class RowPictures:
    """All tables of a row."""

    place: int
    name: str
    seed: int
    heads: tuple[HeadPictures, ...]
    n_heads: int
    """A layer's, of which the first are shown."""
    n_shown: int
    """Heads a layer."""
    several: bool
    """Whether a picture must say which layer and head it is."""


@dataclass(frozen=True)
class Gallery:
    """What is shown."""

    rows: tuple[RowPictures, ...]
    without: tuple[str, ...]
    """Rows without a table."""
    left_out: tuple[str, ...]
    """Rows for whose tables there was no room."""
    legend: str
    """A data URI: from −1 to 1."""


def gallery(rows: Sequence[Row]) -> Gallery | None:
    """The tables of each row's first seed that has left them; None where no row has any.

    Where they take more room than the page has, only the first heads of each layer are shown, then only the first rows.
    """
    found = {place: seed_and_layers for place, row in enumerate(rows) if (seed_and_layers := _read(row))}
    if not found:
        return None

    def drawn(n_heads: int) -> list[RowPictures]:
        return [_of_row(place, rows[place].name, seed, layers, n_heads) for place, (seed, layers) in found.items()]

    shown = drawn(1)
    n_heads = min(_MOST_HEADS, _ROOM // _room(shown))
    if n_heads > 1:
        shown = drawn(n_heads)
    while len(shown) > 1 and _room(shown) > _ROOM:
        shown.pop()
    without = tuple(row.name for place, row in enumerate(rows) if place not in found)
    left_out = tuple(rows[place].name for place in list(found)[len(shown) :])
    return Gallery(tuple(shown), without, left_out, _legend())


def _read(row: Row) -> tuple[int, list[LayerTables]] | None:
    """The first seed that has left tables, and these."""
    return next(((run.seed, layers) for run in row.runs if (layers := read_tables(run.folder))), None)


def _room(shown: Sequence[RowPictures]) -> int:
    return sum(len(p.source) + len(p.values) + 300 for row in shown for head in row.heads for p in head.pictures)


def _of_row(place: int, name: str, seed: int, layers: Sequence[LayerTables], most_heads: int) -> RowPictures:
    n_heads = max(len(table) for layer in layers for _, table in _different(layer))
    n_shown = min(n_heads, most_heads)
    heads = (
        HeadPictures(layer.layer, head, pictures)
        for layer in layers
        for head in range(n_shown)
        if (pictures := _pictures(layer, head, f"{name}, layer {layer.layer}, head {head}"))
    )
    return RowPictures(place, name, seed, tuple(heads), n_heads, n_shown, several=len(layers) > 1 or n_heads > 1)


def _pictures(layer: LayerTables, head: int, whose: str) -> tuple[Picture, ...]:
    return tuple(_picture(when, table[head], whose) for when, table in _different(layer) if head < len(table))


def _different(layer: LayerTables) -> list[tuple[str, Table]]:
    """A layer's tables with what to say of them; one where training has changed nothing."""
    if layer.before is not None and layer.after is not None and np.array_equal(layer.before, layer.after):
        return [("before and after", layer.after)]
    return [(when, table) for when, table in (("before", layer.before), ("after", layer.after)) if table is not None]


def _picture(when: str, table: Table, whose: str) -> Picture:
    size = len(table)
    below = table[np.tril_indices(size)]
    readable = size <= MOST_WITH_VALUES
    return Picture(
        when=when,
        source=_uri(table),
        side=size * max(1, -(-_SIDE // size)),
        size=size,
        values=" ".join(f"{weight:.3g}" for weight in below) if readable else "",
        words=f"Weights of {whose}, {when} training: {size} × {size}, {_short(below.min())} to {_short(below.max())}",
    )


def _short(weight: float) -> str:
    return signless(f"{weight:.2g}") if abs(weight) < 1000 else loss(float(weight))


def _uri(table: Table) -> str:
    """A PNG, a pixel a weight; nothing above the diagonal."""
    size = len(table)
    places = _levels(table)
    places[np.triu_indices(size, 1)] = _NOTHING
    return _png(places)


def _levels(parts: Table) -> NDArray[np.uint8]:
    """Weights → places in the palette, whose colours are as far apart as those of `colours`; beyond ±1 its ends."""
    steps = np.sqrt(np.minimum(np.abs(parts), 1)) * _LEVELS
    found: NDArray[np.uint8] = (np.rint(np.copysign(steps, parts)) + _LEVELS).astype(np.uint8)
    return found


@cache
def _palette() -> bytes:
    steps = np.arange(-_LEVELS, _LEVELS + 1) / _LEVELS
    return colours(np.copysign(steps**2, steps)).tobytes() + bytes(3)


def _png(places: NDArray[np.uint8]) -> str:
    image = Image.fromarray(places)
    image.putpalette(_palette())
    file = io.BytesIO()
    image.save(file, "PNG", transparency=_NOTHING, optimize=False)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _legend() -> str:
    line = np.linspace(-1, 1, 121, dtype=np.float32)
    return _png(_levels(line)[None, :])

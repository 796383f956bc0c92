"""tables.npz of a run → its tables of weights before and after training."""

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_NAME = re.compile(r"(before|after)/layer_(\d{1,4})")
_MOST = 64  # positions, and heads: more is not ours


@dataclass(frozen=True)
class LayerTables:
    """The tables of one layer."""

    layer: int
    before: NDArray[np.float32] | None
    """(H, T, T), row t what output t is made of; None where it is not known."""
    after: NDArray[np.float32] | None
    """(H, T, T)."""


def read_tables(run: Path) -> list[LayerTables]:
    """The layers that have a table, in their order; none where the file is missing or broken, or for what is no table.

    Args:
        run: the run's folder.
    """
    found: dict[int, dict[str, NDArray[np.float32]]] = {}
    try:
        # Opened here: numpy leaves it open where it is broken.
        with (run / "tables.npz").open("rb") as content, np.load(content, allow_pickle=False) as file:
            for name in file.files:
                matched = _NAME.fullmatch(name)
                if matched and (table := _table(file[name])) is not None:
                    found.setdefault(int(matched[2]), {})[matched[1]] = table
    except (OSError, ValueError, TypeError, KeyError, EOFError, MemoryError, zipfile.BadZipFile, NotImplementedError):
        return []
    return [LayerTables(layer, of.get("before"), of.get("after")) for layer, of in sorted(found.items())]


def _table(array: object) -> NDArray[np.float32] | None:
    """As it is drawn; None for what is no stack of square tables of finite numbers."""
    if not isinstance(array, np.ndarray) or array.ndim != 3 or array.dtype.kind != "f":
        return None
    heads, rows, columns = array.shape
    if rows != columns or not 0 < heads <= _MOST or not 0 < rows <= _MOST or not np.isfinite(array).all():
        return None
    return array.astype(np.float32)

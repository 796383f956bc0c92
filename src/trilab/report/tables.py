"""tables.npz of a run → its tables of weights before and after training."""

import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trilab.atomic import opened

_NAME = re.compile(r"(before|after)/layer_(\d{1,4})")
_MOST = 64  # positions, and heads: more is not ours
# what numpy and zipfile make of files that are damaged, encrypted, packed otherwise, or something else
_BROKEN = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    EOFError,
    MemoryError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)


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
        with opened(run / "tables.npz") as content, np.load(content, allow_pickle=False) as file:
            for name in file.files:
                matched = _NAME.fullmatch(name)
                # a packed file can say little and hold much
                small = matched and file.zip.getinfo(f"{name}.npy").file_size <= 8 * _MOST**3 + 4096
                if matched and small and (table := _table(file[name])) is not None:
                    found.setdefault(int(matched[2]), {})[matched[1]] = table
    except _BROKEN:
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

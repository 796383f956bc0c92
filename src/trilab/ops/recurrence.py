"""recurrence.c, compiled: the kernels on the CPU."""

import ctypes
from functools import cache
from pathlib import Path

from trilab.ops import native

SOURCES = tuple(Path(__file__).with_name(name) for name in ("recurrence.c", "threads.h", "prefix_of.h", "scan_of.h"))


@cache
def library() -> ctypes.CDLL | None:
    """The kernels, or None where they cannot be compiled; see `trilab.ops.native.library`."""
    return native.library(SOURCES, "Running sums and recurrences go by torch's own operations, which are slower")

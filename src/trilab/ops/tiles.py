"""Kernels made of tiles.h: compiled for processors with wide registers and fused products, which they wait for."""

import ctypes
import platform
from pathlib import Path

import torch

from trilab.ops import native

HEADERS = ("tiles.h", "threads.h")

LANES = 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8  # as in tiles.h
PANEL = 2 * LANES

_X86 = ("x86_64", "AMD64")


def library(source: str, otherwise: str) -> ctypes.CDLL | None:
    """One of the C files beside this one, compiled; None where it cannot be, or the processor is too plain.

    Args:
        source: its name.
        otherwise: as for `trilab.ops.native.library`.
    """
    flags = ["-ffp-contract=fast", "-lm"]
    if platform.machine() in _X86:
        if torch.backends.cpu.get_cpu_capability() == "DEFAULT":  # neither AVX2 nor fused products
            return None
        flags += ["-mavx512f"] if LANES == 16 else ["-mavx2", "-mfma"]
    sources = tuple(Path(__file__).with_name(name) for name in (source, *HEADERS))
    return native.library(sources, otherwise, tuple(flags))

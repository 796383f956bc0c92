"""Prefix sums and recurrences on the CPU, by the compiled kernels."""

import ctypes
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from trilab.ops.recurrence import library

NUMBERS_A_THREAD = 2**16  # of x; for fewer, starting a thread costs more than it saves

_LONG, _INT, _AT = ctypes.c_long, ctypes.c_int, ctypes.c_void_p
_FACTORS = [_AT, _LONG, _LONG, _INT]
_ARGUMENTS = {
    "prefix": [_LONG, _LONG, _LONG, _INT, _INT, _LONG, _AT, _AT],
    "scan": [_LONG] * 5 + _FACTORS * 2 + [_AT] * 2,
    "scan_backward": [_LONG] * 5 + _FACTORS * 2 + [_AT] * 6,
}
_NAMES = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bfloat16"}


def prefix(x: Tensor, mean: bool, adjoint: bool) -> Tensor:
    """See `trilab.ops.prefix`; float16, in which nobody trains on a CPU, is widened and rounded again."""
    if x.dtype == torch.float16:
        return prefix(x.float(), mean, adjoint).to(x.dtype)
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        rows, time, channels = len(x), x.shape[1], x.numel() // (len(x) * x.shape[1])
        function = _kernel("prefix", x.dtype)
        function(rows, time, channels, mean, adjoint, _threads(x), x.data_ptr(), y.data_ptr())
    return y


def scan(a: Tensor, b: Tensor | None, x: Tensor) -> Tensor:
    """See `trilab.ops.scan.registered_scan`."""
    a, b, x = _rows(a), None if b is None else _rows(b), x.contiguous()
    h = torch.empty_like(x)
    if x.numel():
        _kernel("scan", x.dtype)(*_sizes(a, b, x), *_factors(a, x), *_factors(b, x), x.data_ptr(), h.data_ptr())
    return h


def scan_backward(
    a: Tensor, b: Tensor | None, x: Tensor, h: Tensor, into: Tensor, to_a: bool, to_b: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """See `trilab.ops.scan.registered_scan_backward`."""
    a, b, x, into = _rows(a), None if b is None else _rows(b), x.contiguous(), into.contiguous()
    gradients = torch.empty_like(x), _gradient(a, x, wanted=to_a), _gradient(b, x, wanted=to_b)
    if x.numel():
        places = (tensor.data_ptr() if tensor.numel() else None for tensor in gradients)
        given = (x.data_ptr(), h.data_ptr(), into.data_ptr())
        _kernel("scan_backward", x.dtype)(*_sizes(a, b, x), *_factors(a, x), *_factors(b, x), *given, *places)
    return gradients


@cache
def _kernel(name: str, dtype: torch.dtype) -> Callable[..., None]:
    kernels = library()
    assert kernels is not None, "who calls this has asked whether there are kernels"
    function: Any = getattr(kernels, f"{name}_{_NAMES[dtype]}")
    function.argtypes, function.restype = _ARGUMENTS[name], None
    return function  # type: ignore[no-any-return]


def _threads(x: Tensor) -> int:
    return max(1, min(torch.get_num_threads(), x.numel() // NUMBERS_A_THREAD))


def _sizes(a: Tensor, b: Tensor | None, x: Tensor) -> tuple[int, int, int, int, int]:
    """Rows, tokens, channels, channels of one head (all where each has factors of its own), threads."""
    channels = x.numel() // (len(x) * x.shape[1])
    shared = (factors for factors in (a, b) if factors is not None and factors.shape != x.shape)
    heads = max((math.prod(factors.shape[2:]) for factors in shared), default=1)
    return len(x), x.shape[1], channels, channels // heads, _threads(x)


def _factors(factors: Tensor | None, x: Tensor) -> tuple[int | None, int, int, bool]:
    if factors is None:
        return None, 0, 0, False
    return factors.data_ptr(), factors.stride(0), factors.stride(1), factors.shape == x.shape


def _gradient(factors: Tensor | None, x: Tensor, *, wanted: bool) -> Tensor:
    """Where it goes; of one number for many channels it is added up, from zero."""
    if not wanted or factors is None:
        return x.new_empty(0)
    return x.new_empty(x.shape) if factors.shape == x.shape else x.new_zeros(factors.shape)


def _rows(factors: Tensor) -> Tensor:
    """The same numbers, those of one row and time side by side; rows and times may be the same numbers again."""
    if factors.is_contiguous() or factors.numel() == 0 or factors[0, 0].is_contiguous():
        return factors
    return factors.contiguous()

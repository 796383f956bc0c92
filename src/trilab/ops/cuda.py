"""Prefix sums and recurrences on CUDA, by Triton kernels.

A program has the channels of one block, of one row of the batch, and goes through time chunk by chunk: within a chunk
all tokens at once, a state from chunk to chunk. Sums are kept in float32, of float64 in float64.
"""

# What Triton compiles has no types of Python's, and Triton itself none that a checker could read.
# mypy: disable-error-code="import-untyped, import-not-found, no-untyped-def, untyped-decorator, unused-ignore"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

TIME = 32  # tokens of a chunk
CHANNELS = 32  # of a program; a row of them is one transaction of memory


@triton.jit
def _then(a, h, a_next, h_next):
    """First one stretch of time, then the next: what is left of a state before both, and the state after both."""
    return a * a_next, h * a_next + h_next


@triton.jit
def _prefix(x_at, y_at, time, channels, MEAN: tl.constexpr, ADJOINT: tl.constexpr, T: tl.constexpr, C: tl.constexpr):
    c = tl.program_id(1) * C + tl.arange(0, C)
    row = tl.program_id(0).to(tl.int64) * time * channels
    wide = tl.float64 if x_at.dtype.element_ty == tl.float64 else tl.float32
    total = tl.zeros((C,), wide)
    for chunk in range(tl.cdiv(time, T)):
        t = chunk * T + tl.arange(0, T)
        t = time - 1 - t if ADJOINT else t
        inside = ((t >= 0) & (t < time))[:, None] & (c < channels)[None, :]
        at = row + t[:, None].to(tl.int64) * channels + c[None, :]
        x = tl.load(x_at + at, mask=inside, other=0).to(wide)
        count = tl.maximum(t + 1, 1).to(wide)[:, None]
        if MEAN and ADJOINT:
            x = tl.where(inside, x / count, 0)
        sums = total[None, :] + tl.cumsum(x, 0)
        total += tl.sum(x, 0)
        y = sums / count if MEAN and not ADJOINT else sums
        tl.store(y_at + at, y.to(y_at.dtype.element_ty), mask=inside)


@triton.jit
def _scan(
    a_at, b_at, x_at, h_at, time, channels, size,
    a_row, a_time, b_row, b_time, A_WIDE: tl.constexpr, B_WIDE: tl.constexpr, B: tl.constexpr,
    T: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * C + tl.arange(0, C)
    a_c = c if A_WIDE else c // size
    b_c = c if B_WIDE else c // size
    wide = x_at.dtype.element_ty
    state = tl.zeros((C,), wide)
    for chunk in range(tl.cdiv(time, T)):
        t = (chunk * T + tl.arange(0, T))[:, None].to(tl.int64)
        inside = (t < time) & (c < channels)[None, :]
        at = (row * time + t) * channels + c[None, :]
        x = tl.load(x_at + at, mask=inside, other=0)
        a = tl.load(a_at + row * a_row + t * a_time + a_c[None, :], mask=inside, other=1)
        if B:
            x *= tl.load(b_at + row * b_row + t * b_time + b_c[None, :], mask=inside, other=0)
        left, h = tl.associative_scan((a, x), 0, _then)
        h += tl.where(left == 0, 0, left * state[None, :])  # what is forgotten is forgotten, were it infinite
        tl.store(h_at + at, h, mask=inside)
        state = tl.sum(tl.where(tl.arange(0, T)[:, None] == T - 1, h, 0), 0)


@triton.jit
def _scan_backward(
    a_at, b_at, x_at, h_at, into_at, to_x_at, to_a_at, to_b_at, time, channels, size,
    a_row, a_time, b_row, b_time, A_WIDE: tl.constexpr, B_WIDE: tl.constexpr, B: tl.constexpr,
    TO_A: tl.constexpr, TO_B: tl.constexpr, T: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * C + tl.arange(0, C)
    a_c = c if A_WIDE else c // size
    b_c = c if B_WIDE else c // size
    wide = x_at.dtype.element_ty
    state = tl.zeros((C,), wide)
    for chunk in range(tl.cdiv(time, T)):
        t = (time - 1 - (chunk * T + tl.arange(0, T)))[:, None].to(tl.int64)  # from the end
        inside = (t >= 0) & (c < channels)[None, :]
        at = (row * time + t) * channels + c[None, :]
        into = tl.load(into_at + at, mask=inside, other=0)
        later = a_at + row * a_row + (t + 1) * a_time + a_c[None, :]
        a = tl.load(later, mask=inside & (t + 1 < time), other=1)
        left, arrived = tl.associative_scan((a, into), 0, _then)
        arrived += tl.where(left == 0, 0, left * state[None, :])
        state = tl.sum(tl.where(tl.arange(0, T)[:, None] == T - 1, arrived, 0), 0)
        to_x = arrived
        if B:
            to_x *= tl.load(b_at + row * b_row + t * b_time + b_c[None, :], mask=inside, other=0)
        tl.store(to_x_at + at, to_x, mask=inside)
        if TO_A:
            before = tl.load(h_at + at - channels, mask=inside & (t > 0), other=0)
            tl.store(to_a_at + at, arrived * before, mask=inside)
        if TO_B:
            x = tl.load(x_at + at, mask=inside, other=0)
            tl.store(to_b_at + at, arrived * x, mask=inside)


def prefix(x: Tensor, mean: bool, adjoint: bool) -> Tensor:
    """See `trilab.ops.prefix`."""
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        time, channels = x.shape[1], x.numel() // (len(x) * x.shape[1])
        grid = len(x), triton.cdiv(channels, CHANNELS)
        _prefix[grid](x, y, time, channels, mean, adjoint, TIME, CHANNELS)
    return y


def scan(a: Tensor, b: Tensor | None, x: Tensor) -> Tensor:
    """See `trilab.ops.scan.registered_scan`."""
    a, b, x = _rows(a), None if b is None else _rows(b), x.contiguous()
    h = torch.empty_like(x)
    if x.numel():
        grid, sizes, factors = _call(a, b, x)
        _scan[grid](a, a if b is None else b, x, h, *sizes, *factors, TIME, CHANNELS)
    return h


def scan_backward(
    a: Tensor, b: Tensor | None, x: Tensor, h: Tensor, into: Tensor, to_a: bool, to_b: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """See `trilab.ops.scan.registered_scan_backward`."""
    a, b, x, into = _rows(a), None if b is None else _rows(b), x.contiguous(), into.contiguous()
    wanted = True, to_a, to_b and b is not None
    gradients = [x.new_empty(x.shape if part else 0) for part in wanted]
    if x.numel():
        grid, sizes, factors = _call(a, b, x)
        given = a, a if b is None else b, x, h, into
        _scan_backward[grid](*given, *gradients, *sizes, *factors, *wanted[1:], TIME, CHANNELS)
    # of one number for all channels of a head: the programs, in any order, have one each
    to_x, *to_factors = gradients
    summed_a, summed_b = (
        gradient if not part or factors is None else gradient.sum_to_size(factors.shape)
        for gradient, factors, part in zip(to_factors, (a, b), wanted[1:], strict=True)
    )
    return to_x, summed_a, summed_b


def _rows(factors: Tensor) -> Tensor:
    """The same numbers, those of one row and time side by side; rows and times may be the same numbers again."""
    if factors.is_contiguous() or factors.numel() == 0 or factors[0, 0].is_contiguous():
        return factors
    return factors.contiguous()


def _call(a: Tensor, b: Tensor | None, x: Tensor) -> tuple[Any, Any, Any]:
    """The grid, the sizes, and how the factors lie."""
    channels = x.numel() // (len(x) * x.shape[1])
    heads = min(factors[0, 0].numel() for factors in (a, b) if factors is not None)
    second = a if b is None else b
    strides = a.stride(0), a.stride(1), second.stride(0), second.stride(1)
    kinds = a.shape == x.shape, second.shape == x.shape, b is not None
    return (
        (len(x), triton.cdiv(channels, CHANNELS)),
        (x.shape[1], channels, channels // heads),
        (*strides, *kinds),
    )

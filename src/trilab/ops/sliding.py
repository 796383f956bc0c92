"""Sums over the last few positions: y_t = x_{t-size+1} + … + x_t."""

from typing import Any

import torch
from torch import Tensor

AT_ONCE = 2**17  # numbers summed at once: they and their sums stay in a processor's cache
LEAST_CHANNELS = 16  # of a long text: fewer would be less than what a processor fetches at a time


def sliding_sum(x: Tensor, size: int) -> Tensor:
    """y_t = Σ_j x_{t-j}, j < size, for all t at once; before the first position there are zeros.

    A sum of 2n is one of n and the one n positions before it, so that sums of 1, 2, 4, … make up any size. Nothing is
    subtracted, as differences of running sums would: no digits are lost, and what has left the window leaves no trace.
    O(T·log size) additions a channel, gradients too; O(T) memory, nothing is kept for the gradient.

    Args:
        x: (B, T, C), T ≥ 1.
        size: positions of one sum, this one included, at least 1.
    Returns:
        (B, T, C).
    """
    y: Tensor = _SlidingSum.apply(x, size)  # type: ignore[no-untyped-call]
    return y


def sliding_sum_loop(x: Tensor, size: int) -> Tensor:
    """The slow truth of `sliding_sum`."""
    return torch.stack([x[:, max(0, t + 1 - size) : t + 1].sum(1) for t in range(x.shape[1])], 1)


def sliding_sum_additions(size: int) -> int:
    """Additions for each number of `sliding_sum`, and of its gradient."""
    return size.bit_length() + size.bit_count() - 2


class _SlidingSum(torch.autograd.Function):
    """The gradient is the same sum over the next few positions; autograd would fill up with zeros at each addition."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, size: int) -> Tensor:
        ctx.size = size
        return _sums(x, size, 1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _sums(gradient, ctx.size, -1), None


def _sums(x: Tensor, size: int, direction: int) -> Tensor:
    """Sums over the last (direction 1) or the next (-1) `size` positions, some rows or channels at a time."""
    if torch.compiler.is_compiling():  # which makes one pass of it all
        return _sums_of_part(x, size, direction)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    time, channels = x.shape[1:]
    rows, columns = max(1, AT_ONCE // (time * channels)), max(LEAST_CHANNELS, AT_ONCE // time)
    for some, into in zip(torch.split(x, rows), torch.split(y, rows), strict=True):
        for part, place in zip(torch.split(some, columns, 2), torch.split(into, columns, 2), strict=True):
            place.copy_(_sums_of_part(part, size, direction))
    return y


def _sums_of_part(x: Tensor, size: int, direction: int) -> Tensor:
    left = min(size, x.shape[1])
    total: Tensor | None = None
    place, width, some = 0, 1, x  # some: sums of `width`
    while True:
        if left & 1:
            total = some if total is None else _plus(total, some, direction * place)
            place += width
        left >>= 1
        if not left:
            assert total is not None
            return total.clone() if total is x else total
        some = _plus(some, some, direction * width)
        width *= 2


def _plus(x: Tensor, y: Tensor, later: int) -> Tensor:
    """x_t + y_{t-later}, y being zero where it is not."""
    if later > 0:
        return torch.cat([x[:, :later], x[:, later:] + y[:, :-later]], 1)
    return torch.cat([x[:, :later] + y[:, -later:], x[:, later:]], 1)

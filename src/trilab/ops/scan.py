"""First-order recurrences over time: h_t = a_t · h_{t-1} + x_t."""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad


def scan(a: Tensor, x: Tensor) -> Tensor:
    """h_t = a_t · h_{t-1} + x_t for all t at once, h before the first being 0.

    In chunks of ⌈√T⌉ tokens: first inside all of them side by side, as if nothing came before, then from chunk to
    chunk: about 2·√T steps instead of T. O(T) arithmetic and memory, gradients too. Nothing is divided by and no
    logarithm is taken: stable for any |a| ≤ 1, zeros too. What a later position holds never reaches an earlier one.

    Args:
        a: (B|1, T, …) factors, with as many dimensions as x, each that of x or 1.
        x: (B, T, …), T ≥ 1.
    Returns:
        (B, T, …), shape of x.
    Source:
        Blelloch, Prefix sums and their applications, 1990, with two levels in place of a tree.
    """
    time = x.shape[1]
    size = math.isqrt(time - 1) + 1  # ⌈√T⌉
    a_in, x_in = _chunks(a, size), _chunks(x, size)
    inside, decay = [x_in[0]], [a_in[0]]  # h of each chunk by itself; what is left of an h before it
    for a_t, x_t in zip(a_in[1:], x_in[1:], strict=True):
        inside.append(a_t * inside[-1] + x_t)
        decay.append(a_t * decay[-1])
    before = _padded(scan_loop(decay[-1], inside[-1]), 1, -1)  # (B, chunks, …), h at the end of the chunk before
    h = torch.stack([h_t + decay_t * before for h_t, decay_t in zip(inside, decay, strict=True)], 2)
    return h.flatten(1, 2)[:, :time]


def scan_loop(a: Tensor, x: Tensor) -> Tensor:
    """The slow truth of `scan`."""
    h, states = torch.zeros_like(x[:, 0]), []
    for a_t, x_t in zip(a.unbind(1), x.unbind(1), strict=True):
        h = a_t * h + x_t
        states.append(h)
    return torch.stack(states, 1)


def _chunks(x: Tensor, size: int) -> tuple[Tensor, ...]:
    """(B, T, …) → the first positions of all chunks, (B, ⌈T / size⌉, …), the second ones, … the last; zeros past T."""
    whole = _padded(x, 0, -x.shape[1] % size)
    return whole.reshape(x.shape[0], -1, size, *x.shape[2:]).unbind(2)


def _padded(x: Tensor, before: int, after: int) -> Tensor:
    """x with so many zeros before its first and after its last position; negative: positions fewer."""
    return pad(x, (0, 0) * (x.ndim - 2) + (before, after))

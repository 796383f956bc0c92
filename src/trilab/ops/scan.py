"""First-order recurrences over time: h_t = a_t · h_{t-1} + x_t."""

import torch
from torch import Tensor
from torch.nn.functional import pad


def scan(a: Tensor, x: Tensor) -> Tensor:
    """h_t = a_t · h_{t-1} + x_t for all t at once, h before the first being 0.

    By doubling: after k rounds every position has summed the 2^k terms that end there, so there are ⌈log2 T⌉ rounds
    of whole-tensor operations. Nothing is divided by and no logarithm is taken: stable for any |a| ≤ 1, zeros too.
    What a later position holds never reaches an earlier one, nor does the number of rounds: the extra ones add 0.

    Args:
        a: (B|1, T, …) factors, with as many dimensions as x, each that of x or 1.
        x: (B, T, …).
    Returns:
        (B, T, …), shape of x.
    Source:
        Hillis and Steele, Data parallel algorithms, 1986.
    """
    step = 1
    while step == 1 or step < x.shape[1]:  # one round at least: a single token too gives `a` its gradient, of zeros
        x = x + a * _delay(x, step)
        a = a * _delay(a, step)
        step *= 2
    return x


def scan_loop(a: Tensor, x: Tensor) -> Tensor:
    """The slow truth of `scan`."""
    h, states = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        h = a[:, t] * h + x[:, t]
        states.append(h)
    return torch.stack(states, 1)


def _delay(x: Tensor, step: int) -> Tensor:
    """x moved `step` positions later, zeros before it."""
    return pad(x[:, : x.shape[1] - step], (0, 0) * (x.ndim - 2) + (step, 0))

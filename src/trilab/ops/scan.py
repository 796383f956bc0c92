"""First-order recurrences over time: h_t = a_t · h_{t-1} + b_t · x_t."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from trilab.ops import cpu
from trilab.ops.paths import at_once, has_kernels
from trilab.ops.recurrence import library

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def scan(a: Tensor, x: Tensor, b: Tensor | None = None) -> Tensor:
    """h_t = a_t · h_{t-1} + b_t · x_t for all t at once, h before the first being 0.

    One pass over memory by compiled kernels where there are some, in chunks by torch's own operations elsewhere.
    O(T) arithmetic and memory, gradients too, of any order. Nothing is divided by and no logarithm is taken: stable for
    any |a| ≤ 1, zeros too. What a later position holds never reaches an earlier one. Halves are computed in float32.

    Args:
        a: (B|1, T|1, …) factors, with as many dimensions as x, each that of x or 1.
        x: (B, T, …), T ≥ 1.
        b: as a; None for ones.
    Returns:
        (B, T, …), shape of x.
    """
    dtype = torch.promote_types(a.dtype, x.dtype)
    if b is not None:
        dtype = torch.promote_types(dtype, b.dtype)
    wide = torch.promote_types(dtype, torch.float32)
    a, b, x = a.to(wide), None if b is None else b.to(wide), x.to(wide)
    return (_scan(*_fitted(a, b, x), x) if has_kernels(x) else _chunked(a, b, x)).to(dtype)


def scan_loop(a: Tensor, x: Tensor, b: Tensor | None = None) -> Tensor:
    """The slow truth of `scan`."""
    a = a.expand(-1, x.shape[1], *a.shape[2:])
    x = x if b is None else b * x
    h, states = torch.zeros_like(x[:, 0]), []
    for a_t, x_t in zip(a.unbind(1), x.unbind(1), strict=True):
        h = a_t * h + x_t
        states.append(h)
    return torch.stack(states, 1)


def _fitted(a: Tensor, b: Tensor | None, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Factors as kernels take them: (B, T, …) with a number for each channel, or for all of a head, views if need be.

    Heads are the first of the further dimensions, and the same for a and b.
    """
    shapes = {factors.shape[2:] for factors in (a, b) if factors is not None}
    shape = shapes.pop() if len(shapes) == 1 else x.shape[2:]
    heads = 0
    while heads < len(shape) and shape[heads] == x.shape[2 + heads]:
        heads += 1
    if any(size != 1 for size in shape[heads:]):
        shape = x.shape[2:]
    shape = x.shape[:2] + shape
    a = a if a.shape == shape else a.expand(shape)
    return a, b if b is None or b.shape == shape else b.expand(shape)


def _scan(a: Tensor, b: Tensor | None, x: Tensor) -> Tensor:
    h: Tensor
    if not at_once(a, b, x):
        h = registered_scan(a, b, x)
    elif torch.is_grad_enabled() and (a.requires_grad or x.requires_grad or (b is not None and b.requires_grad)):
        h = _Scan.apply(a, b, x)  # type: ignore[no-untyped-call]
    else:
        h = _forward(a, b, x)
    return h


def _scan_backward(
    a: Tensor, b: Tensor | None, x: Tensor, h: Tensor, into: Tensor, to_a: bool, to_b: bool
) -> tuple[Tensor, Tensor, Tensor]:
    gradients: tuple[Tensor, Tensor, Tensor]
    if at_once(a, b, x, h, into):
        gradients = _backward(a, b, x, h, into, to_a, to_b)
    else:
        gradients = registered_scan_backward(a, b, x, h, into, to_a, to_b)
    return gradients


def _forward(a: Tensor, b: Tensor | None, x: Tensor) -> Tensor:
    if x.is_cpu:
        return cpu.scan(a, b, x) if library() else _chunked(a, b, x).contiguous()
    from trilab.ops import cuda  # Triton is not on every machine

    h: Tensor = cuda.scan(a, b, x)
    return h


def _backward(
    a: Tensor, b: Tensor | None, x: Tensor, h: Tensor, into: Tensor, to_a: bool, to_b: bool
) -> tuple[Tensor, Tensor, Tensor]:
    if x.is_cpu:
        if library():
            return cpu.scan_backward(a, b, x, h, into, to_a, to_b)
        nothing = x.new_empty(0)
        of_a, of_b, of_x = _gradients_with_graph(a, b, x, h, into)
        return of_x.contiguous(), of_a if to_a else nothing, nothing.clone() if of_b is None or not to_b else of_b
    from trilab.ops import cuda

    gradients: tuple[Tensor, Tensor, Tensor] = cuda.scan_backward(a, b, x, h, into, to_a, to_b)
    return gradients


@torch.library.custom_op("trilab::scan", mutates_args=(), device_types="cpu")
def registered_scan(a: Tensor, b: Tensor | None, x: Tensor) -> Tensor:
    """h of (a, b, x) as `_fitted` gives them, of one dtype, float32 or float64; contiguous."""
    return _forward(a, b, x)


@torch.library.custom_op("trilab::scan_backward", mutates_args=(), device_types="cpu")
def registered_scan_backward(
    a: Tensor, b: Tensor | None, x: Tensor, h: Tensor, into: Tensor, to_a: bool, to_b: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, a and b, for `into` arriving at h; empty for factors where not wanted."""
    return _backward(a, b, x, h, into, to_a, to_b)


registered_scan.register_kernel("cuda")(_forward)
registered_scan_backward.register_kernel("cuda")(_backward)


@registered_scan.register_fake
def _(a: Tensor, b: Tensor | None, x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


@registered_scan_backward.register_fake
def _(
    a: Tensor, b: Tensor | None, x: Tensor, h: Tensor, into: Tensor, to_a: bool, to_b: bool
) -> tuple[Tensor, Tensor, Tensor]:
    nothing = x.new_empty(0)
    return (
        x.new_empty(x.shape),
        x.new_empty(a.shape) if to_a else nothing,
        nothing.clone() if b is None or not to_b else x.new_empty(b.shape),
    )


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor | None, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs, output)


def _gradients(ctx: Any, into: Tensor) -> Gradients:
    a, b, x, h = ctx.saved_tensors
    wanted_a, wanted_b, wanted_x = ctx.needs_input_grad
    if torch.is_grad_enabled():  # gradients of the gradients are wanted
        to_a, to_b, to_x = _gradients_with_graph(a, b, x, h, into)
    else:
        to_x, to_a, to_b = _scan_backward(a, b, x, h, into, wanted_a, wanted_b)
    return to_a if wanted_a else None, to_b if wanted_b else None, to_x if wanted_x else None


def _gradients_with_graph(
    a: Tensor, b: Tensor | None, x: Tensor, h: Tensor, into: Tensor
) -> tuple[Tensor, Tensor | None, Tensor]:
    """The gradient of a recurrence is one that runs from the end: g_t = a_{t+1} g_{t+1} + into_t arrives at h_t."""
    arrived = scan(_padded(a, -1, 1).flip(1), into.flip(1)).flip(1)
    to_a = (arrived * _padded(h, 1, -1)).sum_to_size(a.shape)
    if b is None:
        return to_a, None, arrived
    return to_a, (arrived * x).sum_to_size(b.shape), arrived * b


registered_scan.register_autograd(_gradients, setup_context=_keep)


class _Scan(torch.autograd.Function):
    """The same gradients for calls that need no dispatcher, at half the cost."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor | None, x: Tensor) -> Tensor:
        h = _forward(a, b, x)
        _keep(ctx, (a, b, x), h)
        return h

    @staticmethod
    def backward(ctx: Any, into: Tensor) -> Gradients:
        return _gradients(ctx, into)


def _chunked(a: Tensor, b: Tensor | None, x: Tensor) -> Tensor:
    """Where there is no kernel.

    In chunks of ⌈√T⌉ tokens: first inside all of them side by side, as if nothing came before, then from chunk to
    chunk: about 2·√T steps instead of T.

    Source:
        Blelloch, Prefix sums and their applications, 1990, with two levels in place of a tree.
    """
    time = x.shape[1]
    size = math.isqrt(time - 1) + 1  # ⌈√T⌉
    a, x = a.expand(-1, time, *a.shape[2:]), x if b is None else b * x
    a_in, x_in = _chunks(a, size), _chunks(x, size)
    inside, decay = [x_in[0]], [a_in[0]]  # h of each chunk by itself; what is left of an h before it
    for a_t, x_t in zip(a_in[1:], x_in[1:], strict=True):
        inside.append(a_t * inside[-1] + x_t)
        decay.append(a_t * decay[-1])
    before = _padded(scan_loop(decay[-1], inside[-1]), 1, -1)  # (B, chunks, …), h at the end of the chunk before
    h = torch.stack([h_t + decay_t * before for h_t, decay_t in zip(inside, decay, strict=True)], 2)
    return h.flatten(1, 2)[:, :time]


def _chunks(x: Tensor, size: int) -> tuple[Tensor, ...]:
    """(B, T, …) → the first positions of all chunks, (B, ⌈T / size⌉, …), the second ones, … the last; zeros past T."""
    whole = _padded(x, 0, -x.shape[1] % size)
    return whole.reshape(x.shape[0], -1, size, *x.shape[2:]).unbind(2)


def _padded(x: Tensor, before: int, after: int) -> Tensor:
    """x with so many zeros before its first and after its last position; negative: positions fewer."""
    return pad(x, (0, 0) * (x.ndim - 2) + (before, after))

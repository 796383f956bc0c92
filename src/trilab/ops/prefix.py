"""Sums and means of everything so far: y_t = x_0 + … + x_t, and the same divided by t + 1."""

from typing import Any

import torch
from torch import Tensor

from trilab.ops import cpu
from trilab.ops.paths import at_once, has_kernels
from trilab.ops.recurrence import library


def prefix_sum(x: Tensor) -> Tensor:
    """y_t = x_0 + … + x_t for all t at once.

    Kept in double on the CPU, in at least float32 elsewhere. Gradients of any order. O(T·C), at the speed of memory.

    Args:
        x: (B, T, …) floating point.
    Returns:
        (B, T, …), dtype of x.
    """
    return _prefix(x, mean=False, adjoint=False)


def prefix_mean(x: Tensor) -> Tensor:
    """y_t = (x_0 + … + x_t) / (t + 1) for all t at once; all else as `prefix_sum`."""
    return _prefix(x, mean=True, adjoint=False)


def prefix_loop(x: Tensor, *, mean: bool) -> Tensor:
    """The slow truth of both."""
    total, y = torch.zeros_like(x[:, 0]), []
    for t, x_t in enumerate(x.unbind(1)):
        total = total + x_t
        y.append(total / (t + 1) if mean else total)
    return torch.stack(y, 1)


def _prefix(x: Tensor, *, mean: bool, adjoint: bool) -> Tensor:
    """y = A x, or its adjoint y = Aᵀ x, which is also its gradient: the sums run from the end, of x_t / (t + 1)."""
    if not has_kernels(x):
        return _by_torch(x, mean, adjoint)
    y: Tensor
    if not at_once(x):
        y = registered_prefix(x, mean, adjoint)
    elif torch.is_grad_enabled() and x.requires_grad:
        y = _Prefix.apply(x, mean, adjoint)  # type: ignore[no-untyped-call]
    else:
        y = _forward(x, mean, adjoint)
    return y


def _by_torch(x: Tensor, mean: bool, adjoint: bool) -> Tensor:
    """Where there is no kernel."""
    wide = torch.promote_types(x.dtype, torch.float32)  # 65,536 ones already overflow float16
    y = x.to(wide)  # not by cumsum(dtype=…), whose gradient is rounded before it is summed
    counts = torch.arange(1, x.shape[1] + 1, dtype=wide, device=x.device).view(-1, *[1] * (x.ndim - 2))
    if adjoint:
        y = (y / counts if mean else y).flip(1).cumsum(1).flip(1)
    else:
        y = y.cumsum(1) / counts if mean else y.cumsum(1)
    return y.to(x.dtype)


def _forward(x: Tensor, mean: bool, adjoint: bool) -> Tensor:
    if x.is_cpu:
        return cpu.prefix(x, mean, adjoint) if library() else _by_torch(x, mean, adjoint)
    from trilab.ops import cuda  # Triton is not on every machine

    y: Tensor = cuda.prefix(x, mean, adjoint)
    return y


@torch.library.custom_op("trilab::prefix", mutates_args=(), device_types="cpu")
def registered_prefix(x: Tensor, mean: bool, adjoint: bool) -> Tensor:
    """`_prefix` as an operation that torch.compile knows."""
    return _forward(x, mean, adjoint)


registered_prefix.register_kernel("cuda")(_forward)


@registered_prefix.register_fake
def _(x: Tensor, mean: bool, adjoint: bool) -> Tensor:
    return x.new_empty(x.shape)


def _keep(ctx: Any, inputs: tuple[Tensor, bool, bool], output: Tensor) -> None:
    _, ctx.mean, ctx.adjoint = inputs


def _gradient(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
    return _prefix(gradient, mean=ctx.mean, adjoint=not ctx.adjoint), None, None


registered_prefix.register_autograd(_gradient, setup_context=_keep)


class _Prefix(torch.autograd.Function):
    """The same gradient for calls that need no dispatcher, at half the cost."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mean: bool, adjoint: bool) -> Tensor:
        ctx.mean, ctx.adjoint = mean, adjoint
        return _forward(x, mean, adjoint)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _gradient(ctx, gradient)

"""triangular_product.c, compiled: products with a lower-triangular table on a CPU, values and gradients."""

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor

from trilab.ops import tiles
from trilab.ops.paths import at_once, looked_into
from trilab.ops.tiles import LANES, PANEL


class _Job(ctypes.Structure):
    """`struct job`."""

    _fields_ = (
        *((name, ctypes.c_long) for name in ("batch", "heads", "time", "columns")),
        *((name, ctypes.c_void_p) for name in ("table", "v", "into", "y", "to_table", "to_v", "scratch")),
    )


def serves(A: Tensor, v: Tensor) -> bool:
    """Whether `triangular_product_by_kernel` may be called; slower than torch's own operations only at one panel."""
    heads, time, _ = A.shape
    return (
        v.is_cpu
        and at_once(A, v)
        and not looked_into()
        and A.dtype == v.dtype == torch.float32
        and time % PANEL == 0
        and v.shape[2] % (heads * LANES) == 0
        and v.numel() > 0
        and len(v) * heads >= torch.get_num_threads()  # each has one at least
        and library() is not None
    )


def triangular_product_by_kernel(A: Tensor, v: Tensor) -> Tensor:
    """As `trilab.ops.triangle.triangular_product`, for float32 on a CPU.

    Half of the full product, but for what the diagonal's tiles hold beside the triangle, and of both its gradients;
    their own gradients are torch's.

    Args:
        A: (H, T, T), exactly zero above the diagonal; T a multiple of PANEL.
        v: (B, T, H·N); N a multiple of LANES.
    Returns:
        (B, T, H·N).
    """
    if torch.is_grad_enabled() and (A.requires_grad or v.requires_grad):
        y: Tensor = _Product.apply(A, v)  # type: ignore[no-untyped-call]
        return y
    return _forward(A, v)


@cache
def library() -> ctypes.CDLL | None:
    """The kernels, or None; see `trilab.ops.tiles.library`."""
    kernels = tiles.library("triangular_product.c", "Static tables go by torch's own operations, which are slower")
    if kernels is not None:
        kernels.scratch_size.argtypes, kernels.scratch_size.restype = (), ctypes.c_long
        for function in (kernels.forward, kernels.backward):
            function.argtypes, function.restype = (ctypes.POINTER(_Job), ctypes.c_long), None
    return kernels


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, A: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(A, v)
        return _forward(A, v)

    @staticmethod
    def backward(ctx: Any, into: Tensor) -> tuple[Tensor | None, ...]:
        A, v = ctx.saved_tensors
        if torch.is_grad_enabled():  # gradients of the gradients are wanted
            heads = v.unflatten(2, (len(A), -1)).transpose(1, 2)
            y = (A @ heads).transpose(1, 2).flatten(2)
            return torch.autograd.grad(y, (A, v), into, create_graph=True)
        to_table, to_v = (
            torch.zeros(A.shape) if ctx.needs_input_grad[0] else None,
            torch.empty(v.shape) if ctx.needs_input_grad[1] else None,
        )
        _call("backward", A, v, into=into.contiguous(), to_table=to_table, to_v=to_v)
        return to_table, to_v


def _forward(A: Tensor, v: Tensor) -> Tensor:
    y = torch.empty(v.shape)
    _call("forward", A, v, y=y)
    return y


def _call(name: str, A: Tensor, v: Tensor, **others: Tensor | None) -> None:
    kernels = library()
    assert kernels is not None, "who calls this has asked whether there are kernels"
    heads, time, _ = A.shape
    threads = torch.get_num_threads()
    given = {"table": A.contiguous(), "v": v.contiguous(), **others}  # kept until the end
    given["scratch"] = torch.empty(threads, kernels.scratch_size())
    places = {key: x.data_ptr() for key, x in given.items() if x is not None}
    job = _Job(len(v), heads, time, v.shape[2] // heads, **places)
    getattr(kernels, name)(ctypes.byref(job), threads)

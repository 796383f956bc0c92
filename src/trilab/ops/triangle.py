"""Products with a lower-triangular matrix, and softmax into one, that leave its upper half out."""

from typing import Any

import torch
from torch import Tensor

from trilab.ops.paths import looked_into
from trilab.ops.triangular_product import serves, triangular_product_by_kernel

MOST_BLOCKS = 8  # of rows: more of them skip more of the triangle, in products too small to be fast
LEAST_ROWS = 64  # of one block
WIDE = 128  # columns of a head from which on a CPU is faster at a product for each row of the batch than at a copy


def triangular_product(A: Tensor, v: Tensor) -> Tensor:
    """y = A v with A lower-triangular, in blocks of rows: each is multiplied with the columns that it can see.

    What lies above the diagonal need not be zero as far as it is skipped; its gradient is zero there. With 8 blocks of
    rows 9/16 of the full product are left, and of both its gradients; half on a CPU, where there is a kernel. O(T²·N·B)
    time, O(T²) memory for a table.

    Args:
        A: (H, T, T), exactly zero above the diagonal.
        v: (B, T, H·N), dtype and device of A: H heads of N columns.
    Returns:
        (B, T, H·N).
    """
    if serves(A, v):
        return triangular_product_by_kernel(A, v)
    batch, time, columns = v.shape
    v = v.reshape(batch, time, len(A), -1)
    if v.shape[-1] < WIDE or v.device.type != "cpu" or torch.compiler.is_compiling():
        # the rows of the batch side by side: one product a head, and block, that is large enough to be fast
        v = v.permute(2, 1, 0, 3).reshape(1, len(A), time, -1)
        y: Tensor = _TriangularProduct.apply(A, v)  # type: ignore[no-untyped-call]
        return y.view(len(A), time, batch, -1).permute(2, 1, 0, 3).reshape(batch, time, columns)
    y = _TriangularProduct.apply(A, v.transpose(1, 2))  # type: ignore[no-untyped-call]
    return y.transpose(1, 2).reshape(batch, time, columns)


def triangular_product_full(A: Tensor, v: Tensor) -> Tensor:
    """The slow truth of `triangular_product`."""
    batch, time, columns = v.shape
    return (A @ v.reshape(batch, time, len(A), -1).transpose(1, 2)).transpose(1, 2).reshape(batch, time, columns)


def triangular_product_flops(time: int, columns: int) -> int:
    """Operations of one (T, T) table in `triangular_product`; each of its two gradients takes as many."""
    return 2 * columns * sum((end - start) * end for start, end in _blocks(time))


def causal_softmax(affinities: Tensor, seen: Tensor) -> Tensor:
    """Softmax of each row over what it can see; zero beyond. Gradients of any order.

    Args:
        affinities: (R, T), the last R of T rows.
        seen: (R, T) booleans, the same rows of a lower triangle.
    Returns:
        (R, T).
    """
    rows, time = affinities.shape
    if rows < max(time, 2 * LEAST_ROWS) or torch.compiler.is_compiling() or looked_into():
        return causal_softmax_full(affinities, seen)
    y: Tensor = _CausalSoftmax.apply(affinities, seen)  # type: ignore[no-untyped-call]
    return y


def causal_softmax_full(affinities: Tensor, seen: Tensor) -> Tensor:
    """The slow truth of `causal_softmax`."""
    return affinities.masked_fill(~seen, -torch.inf).softmax(-1)


class _CausalSoftmax(torch.autograd.Function):
    """In the blocks of rows that the product takes."""

    @staticmethod
    def forward(ctx: Any, affinities: Tensor, seen: Tensor) -> Tensor:
        weights = torch.zeros_like(affinities)
        for start, end in _blocks(len(affinities)):
            some = affinities[start:end, :end].clone()
            some[:, start:].masked_fill_(~seen[start:end, start:end], -torch.inf)
            weights[start:end, :end] = some.softmax(-1)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        of_affinities = torch.zeros_like(weights)
        for start, end in _blocks(len(weights)):
            place = slice(start, end), slice(end)
            of_affinities[place] = torch.ops.aten._softmax_backward_data(
                gradient[place], weights[place], -1, weights.dtype
            )
        return of_affinities, None


class _TriangularProduct(torch.autograd.Function):
    """(H, T, T) and (B, H, T, N) → (B, H, T, N).

    Autograd would fill each block's gradient up with zeros and add them all, which costs more than is skipped.
    """

    @staticmethod
    def forward(ctx: Any, A: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(A, v)
        y = torch.empty_like(v)
        for row, into in zip(v, y, strict=True):
            for start, end in _blocks(v.shape[2]):
                _product(A[:, start:end, :end], row[:, :end], into=into[:, start:end])
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        A, v = ctx.saved_tensors
        of_table = torch.zeros_like(A) if ctx.needs_input_grad[0] else None
        of_values = torch.empty_like(v) if ctx.needs_input_grad[1] else None
        for number, (row, given) in enumerate(zip(v, gradient, strict=True)):
            for start, end in _blocks(v.shape[2]):
                if of_table is not None:
                    _add_product(given[:, start:end], row[:, :end].mT, to=of_table[:, start:end, :end])
                if of_values is not None:
                    _product(A[:, start:, start:end].mT, given[:, start:], into=of_values[number, :, start:end])
        return of_table, of_values


def _product(a: Tensor, b: Tensor, *, into: Tensor) -> None:
    if torch.compiler.is_compiling():  # which takes no out= that is part of a larger tensor
        into.copy_(a @ b)
    else:
        torch.bmm(a, b, out=into)


def _add_product(a: Tensor, b: Tensor, *, to: Tensor) -> None:
    if torch.compiler.is_compiling():
        to += a @ b
    else:
        torch.baddbmm(to, a, b, out=to)


def _blocks(time: int) -> list[tuple[int, int]]:
    """First row of each block and the first after it."""
    rows = max(LEAST_ROWS, -(-time // MOST_BLOCKS))
    return [(start, min(start + rows, time)) for start in range(0, time, rows)]

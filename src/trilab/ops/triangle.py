"""Products with a lower-triangular matrix that leave its upper half out."""

from typing import Any

import torch
from torch import Tensor

MOST_BLOCKS = 8  # of rows: more of them skip more of the triangle, in products too small to be fast
LEAST_ROWS = 64  # of one block


def triangular_product(A: Tensor, v: Tensor) -> Tensor:
    """y = A v with A lower-triangular, in blocks of rows: each is multiplied with the columns that it can see.

    What lies above the diagonal need not be zero as far as it is skipped; its gradient is zero there. With 8 blocks of
    rows 9/16 of the full product are left, and of both its gradients. O(T²·N) time, O(T²) memory for a table.

    Args:
        A: (H, T, T), exactly zero above the diagonal.
        v: (H, T, N), dtype and device of A.
    Returns:
        (H, T, N).
    """
    y: Tensor = _TriangularProduct.apply(A, v)  # type: ignore[no-untyped-call]
    return y


def triangular_product_full(A: Tensor, v: Tensor) -> Tensor:
    """The slow truth of `triangular_product`."""
    return A @ v


def triangular_product_flops(time: int, columns: int) -> int:
    """Operations of one (T, T) table in `triangular_product`; each of its two gradients takes as many."""
    return 2 * columns * sum((end - start) * end for start, end in _blocks(time))


class _TriangularProduct(torch.autograd.Function):
    """Autograd would fill each block's gradient up with zeros and add them all, which costs more than is skipped."""

    @staticmethod
    def forward(ctx: Any, A: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(A, v)
        y = torch.empty_like(v)
        for start, end in _blocks(v.shape[1]):
            _product(A[:, start:end, :end], v[:, :end], into=y[:, start:end])
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        A, v = ctx.saved_tensors
        of_table = torch.zeros_like(A) if ctx.needs_input_grad[0] else None
        of_values = torch.empty_like(v) if ctx.needs_input_grad[1] else None
        for start, end in _blocks(v.shape[1]):
            if of_table is not None:
                _product(gradient[:, start:end], v[:, :end].mT, into=of_table[:, start:end, :end])
            if of_values is not None:
                _product(A[:, start:, start:end].mT, gradient[:, start:], into=of_values[:, start:end])
        return of_table, of_values


def _product(a: Tensor, b: Tensor, *, into: Tensor) -> None:
    if torch.compiler.is_compiling():  # which takes no out= that is part of a larger tensor
        into.copy_(a @ b)
    else:
        torch.bmm(a, b, out=into)


def _blocks(time: int) -> list[tuple[int, int]]:
    """First row of each block and the first after it."""
    rows = max(LEAST_ROWS, -(-time // MOST_BLOCKS))
    return [(start, min(start + rows, time)) for start in range(0, time, rows)]

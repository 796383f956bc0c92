"""The Triton kernels against their loops, in Triton's interpreter: run by test_cuda.py with TRITON_INTERPRET=1."""

import sys
import warnings
from itertools import product

import torch
from torch import Tensor

from trilab.ops import cuda
from trilab.ops.prefix import prefix_loop
from trilab.ops.scan import _fitted, scan_loop

# small chunks and blocks, so that short texts with few channels fill several of both
cuda.TIME, cuda.CHANNELS = 4, 4

# a, b and x, T being 6
FACTORS = [
    ((2, 6, 5), (2, 6, 5), (2, 6, 5)),
    ((2, 6, 5), None, (2, 6, 5)),
    ((1, 6, 2, 1), (1, 6, 2, 1), (2, 6, 2, 3)),
    ((1, 1, 3), None, (1, 6, 3)),
]


def check_prefix() -> None:
    for time, mean, dtype in product((1, 4, 9), (False, True), (torch.float32, torch.float64, torch.bfloat16)):
        x = torch.randn(2, time, 5).to(dtype)
        exact = x.double().requires_grad_()
        y = prefix_loop(exact, mean=mean)
        cotangent = torch.randn_like(x)
        (gradient,) = torch.autograd.grad(y, exact, cotangent.double())
        torch.testing.assert_close(cuda.prefix(x, mean, False), y.detach().to(dtype))
        torch.testing.assert_close(cuda.prefix(cotangent, mean, True), gradient.to(dtype))


def check_scan() -> None:
    for (of_a, of_b, of_x), dtype in product(FACTORS, (torch.float32, torch.float64)):
        a, x = torch.randn(of_a, dtype=dtype).tanh(), torch.randn(of_x, dtype=dtype)
        a, b = _fitted(a, None if of_b is None else torch.randn(of_b, dtype=dtype), x)
        leaves = [part.clone().requires_grad_() for part in (a, x, b) if part is not None]
        h, cotangent = scan_loop(*leaves), torch.randn_like(x)
        expected = torch.autograd.grad(h, leaves, cotangent)
        torch.testing.assert_close(cuda.scan(a, b, x), h.detach())
        to_x, to_a, to_b = cuda.scan_backward(a, b, x, h.detach(), cotangent, True, True)
        ours = [to_a, to_x, to_b][: len(leaves)]
        torch.testing.assert_close(ours, list(expected))
        alone, *nothing = cuda.scan_backward(a, b, x, h.detach(), cotangent, False, False)
        assert torch.equal(alone, to_x)
        assert [part.numel() for part in nothing] == [0, 0]


def check_future() -> None:
    a, x = torch.rand(1, 6, 5), torch.randn(1, 6, 5)
    before = both(a, x)
    a[:, 2], x[:, 2] = torch.inf, torch.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's, about products with infinity
        after = both(a, x)
    for now, then in zip(after, before, strict=True):
        assert torch.equal(now[:, :2], then[:, :2])


def both(a: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    return cuda.scan(a, None, x), cuda.prefix(x, True, False)


if __name__ == "__main__":
    torch.manual_seed(0)
    {"prefix": check_prefix, "scan": check_scan, "future": check_future}[sys.argv[1]]()

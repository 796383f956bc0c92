"""The scan is its loop: values and gradients, every length, factors that broadcast."""

import pytest
import torch
from torch import Tensor

from trilab.ops.scan import scan, scan_loop

# lengths around whole numbers of chunks: ⌈√T⌉ chunks of ⌈√T⌉ tokens
LENGTHS = [*range(1, 12), 15, 16, 17, 63, 64, 65]


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("time", LENGTHS)
@pytest.mark.parametrize("factors", [(2, 3, 4), (1, 3, 4), (2, 1, 1), (1, 1, 4)])
def test_the_scan_is_its_loop_with_gradients(factors: tuple[int, int, int], time: int) -> None:
    torch.manual_seed(time)
    rows, *rest = factors
    a, x = drawn(rows, time, *rest).tanh(), drawn(2, time, 3, 4)
    torch.testing.assert_close(scan(a, x), scan_loop(a, x))
    cotangent = torch.randn(2, time, 3, 4, dtype=torch.float64)
    ours = torch.autograd.grad(scan(a, x), [a, x], cotangent)
    theirs = torch.autograd.grad(scan_loop(a, x), [a, x], cotangent)
    torch.testing.assert_close(ours, theirs)


def test_the_arguments_stay_as_they_are() -> None:
    a, x = torch.rand(1, 9, 2), torch.randn(2, 9, 2)
    kept = a.clone(), x.clone()
    scan(a, x)
    assert torch.equal(a, kept[0])
    assert torch.equal(x, kept[1])


@pytest.mark.parametrize("t", range(16))
def test_what_a_later_position_holds_never_reaches_an_earlier_one(t: int) -> None:
    torch.manual_seed(0)
    a, x = torch.rand(2, 16, 3), torch.randn(2, 16, 3)
    before = scan(a, x)
    a[:, t], x[:, t] = torch.inf, torch.nan
    assert torch.equal(scan(a, x)[:, :t], before[:, :t])


def test_factors_of_zero_forget_and_factors_of_one_sum() -> None:
    x = torch.randn(2, 10, 3, dtype=torch.float64)
    assert torch.equal(scan(torch.zeros_like(x), x), x)
    torch.testing.assert_close(scan(torch.ones_like(x), x), x.cumsum(1))


def test_a_thousand_tiny_factors_underflow_to_zero_and_never_to_nan() -> None:
    a = torch.full((1, 1000, 1), 1e-30, requires_grad=True)
    x = torch.full((1, 1000, 1), 1e30, requires_grad=True)
    y = scan(a, x)
    assert y.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(y.sum() * 1e-30, [a, x]))

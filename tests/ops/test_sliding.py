"""The sliding sum is its loop: values and gradients, every size and length; it keeps digits and forgets."""

import pytest
import torch
from torch import Tensor

from trilab.ops import sliding
from trilab.ops.sliding import sliding_sum, sliding_sum_loop


def drawn(*shape: int) -> Tensor:
    torch.manual_seed(0)
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("at_once", [1, 2**17])  # numbers: row by row, some channels each, and all together
@pytest.mark.parametrize("time", [1, 2, 5, 16, 17])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 16, 40])
def test_it_is_its_loop_with_gradients(size: int, time: int, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliding, "AT_ONCE", at_once)
    monkeypatch.setattr(sliding, "LEAST_CHANNELS", 3)  # of 4
    x = drawn(3, time, 4)
    fast, slow = sliding_sum(x, size), sliding_sum_loop(x, size)
    torch.testing.assert_close(fast, slow)
    cotangent = torch.randn_like(fast)
    ours, theirs = (torch.autograd.grad(y, x, cotangent)[0] for y in (fast, slow))
    torch.testing.assert_close(ours, theirs)


def test_its_gradient_is_that_of_small_differences() -> None:
    assert torch.autograd.gradcheck(lambda x: sliding_sum(x, 3), drawn(2, 6, 2))


def test_what_has_left_the_window_leaves_no_trace_and_what_comes_later_is_not_seen() -> None:
    x = torch.randn(1, 12, 1)
    before = sliding_sum(x, 3)
    x[:, 5] = torch.inf
    after = sliding_sum(x, 3)
    assert torch.equal(after[:, :5], before[:, :5])
    assert torch.equal(after[:, 8:], before[:, 8:])
    assert after[:, 5:8].isinf().all()


def test_a_small_sum_after_large_numbers_keeps_its_digits() -> None:
    x = torch.tensor([1e9, -3e8, 0.1, 0.2])[None, :, None]
    assert torch.equal(sliding_sum(x, 2)[0, 3, 0], x[0, 2, 0] + x[0, 3, 0])
    running = x.cumsum(1)
    assert running[0, 3, 0] - running[0, 1, 0] == 0  # what a difference of running sums would have given


def test_the_argument_stays_as_it_is_and_the_result_is_another_tensor() -> None:
    x = torch.randn(2, 5, 3)
    kept = x.clone()
    for size in (1, 4):
        sliding_sum(x, size).zero_()
        assert torch.equal(x, kept)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # the compiler's own
def test_it_is_compiled_without_a_break_and_stays_the_same() -> None:
    torch._dynamo.reset()
    x = drawn(3, 9, 2)
    quick = torch.compile(lambda x: sliding_sum(x, 5).sin(), backend="aot_eager", fullgraph=True)
    ours, theirs = (torch.autograd.grad(f(x).sum(), x) for f in (quick, lambda x: sliding_sum(x, 5).sin()))
    torch.testing.assert_close(ours, theirs)
    torch._dynamo.reset()

"""Linear attention with decay, in chunks, is the recurrence that it stands for."""

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from trilab.ops import chunks
from trilab.ops.chunks import (
    CHUNK,
    linear_attention,
    linear_attention_flops,
    linear_attention_loop,
    linear_attention_step,
    segment_sums,
)

B, H, D, E = 2, 3, 4, 5


def drawn(time: int, *, rows: int = B, heads: int = H, scale: float = 1.0) -> list[Tensor]:
    """q, k, v and log-decays between 0 and about -scale."""
    torch.manual_seed(0)
    shapes = [(B, H, time, D), (B, H, time, D), (B, H, time, E), (rows, heads, time)]
    q, k, v, log_decay = (torch.randn(shape, dtype=torch.float64) for shape in shapes)
    return [part.requires_grad_() for part in (q, k, v, -scale * log_decay.abs())]


@pytest.mark.parametrize("scale", [0.01, 1.0, 1e6])
@pytest.mark.parametrize("time", [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 7])
def test_chunks_give_what_one_token_after_another_gives_with_gradients(time: int, scale: float) -> None:
    inputs = drawn(time, scale=scale)
    fast, slow = linear_attention(*inputs), linear_attention_loop(*inputs)
    torch.testing.assert_close(fast, slow)
    for y in (fast, slow):
        assert y.shape == (B, H, time, E)
    cotangent = torch.randn_like(fast)
    ours, theirs = (torch.autograd.grad(y, inputs, cotangent) for y in (fast, slow))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("rows", "heads"), [(1, 1), (1, H), (B, 1)])
def test_decays_may_be_shared_by_rows_and_heads(rows: int, heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK", 3)
    q, k, v, log_decay = drawn(8, rows=rows, heads=heads)
    expanded = log_decay.expand(B, H, -1)
    torch.testing.assert_close(linear_attention(q, k, v, log_decay), linear_attention(q, k, v, expanded))
    torch.testing.assert_close(linear_attention_loop(q, k, v, log_decay), linear_attention_loop(q, k, v, expanded))


def test_without_decay_it_is_the_masked_product() -> None:
    q, k, v, _ = drawn(2 * CHUNK + 7)
    y = linear_attention(q, k, v, q.new_zeros(1, 1, q.shape[2]))
    torch.testing.assert_close(y, (q @ k.mT).tril() @ v)


def test_a_factor_of_zero_forgets_all_before_it() -> None:
    q, k, v, log_decay = drawn(8)
    log_decay = log_decay.detach().index_fill(2, torch.tensor([4]), -torch.inf)
    late = [part[:, :, 4:] for part in (q, k, v, log_decay)]
    torch.testing.assert_close(linear_attention(q, k, v, log_decay)[:, :, 4:], linear_attention(*late))


def test_a_step_leaves_the_past_that_it_is_given_as_it_was() -> None:
    past = torch.randn(B, H, D, E, dtype=torch.float64)
    before = past.clone()
    linear_attention_step(*drawn(1), past)
    assert torch.equal(past, before)


def test_a_small_sum_beside_large_ones_keeps_its_digits() -> None:
    x = torch.tensor([-1e9, -1e9, -0.1, -0.2], dtype=torch.float32)
    sums = segment_sums(x)
    assert sums[3, 1] == x[2] + x[3]
    running = x.cumsum(0)
    assert running[3] - running[1] == 0  # what a difference of running sums would have given


def test_sums_over_the_future_are_minus_infinity_and_bring_no_nan_into_the_gradient() -> None:
    x = torch.full((5,), -1e30, requires_grad=True)
    sums = segment_sums(x)
    assert torch.equal(sums.isinf(), torch.ones(5, 5).triu(1).bool())
    sums.exp().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("time", [1, CHUNK, CHUNK + 1, 2 * CHUNK + 7])
def test_the_stated_flops_are_the_counted_ones(time: int) -> None:
    inputs = drawn(time)
    with FlopCounterMode(display=False) as forward:
        y = linear_attention(*inputs)
    with FlopCounterMode(display=False) as backward:
        y.sum().backward()
    stated = B * H * linear_attention_flops(time, D, E)
    assert (stated, 2 * stated) == (forward.get_total_flops(), backward.get_total_flops())

"""Attention by fused kernels, and in blocks under a window, is the masked softmax: values and gradients."""

import pytest
import torch
from torch import Tensor

from trilab.ops.attention import LEAST_ROWS, attention, window_attention, window_attention_pairs

SCALE = 0.3


def drawn(time: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, time, 3, 4, dtype=dtype).transpose(1, 2).requires_grad_() for _ in range(3)]


def plain(q: Tensor, k: Tensor, v: Tensor, size: int) -> Tensor:
    """The slow truth, with a table of all pairs."""
    band = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril().triu(1 - size)
    return (SCALE * q @ k.mT).masked_fill(~band, -torch.inf).softmax(-1) @ v


# one block, a whole number of blocks, a last one that is not full; windows narrower and wider than the least block,
# and one for whose first rows the kernel meets 512 keys in a row that none may look at
@pytest.mark.parametrize(
    ("time", "size"),
    [(1, 1), (5, 2), (5, 5), (5, 9), (32, 3), (33, 3), (64, 1), (97, 32), (97, 33), (200, 80), (1300, 600)],
)
def test_a_window_in_blocks_is_the_banded_softmax_with_gradients(time: int, size: int) -> None:
    inputs = drawn(time)
    fast, slow = window_attention(*inputs, size, scale=SCALE), plain(*inputs, size)
    torch.testing.assert_close(fast, slow)
    ours, theirs = (torch.autograd.grad(y.sin().sum(), inputs) for y in (fast, slow))
    torch.testing.assert_close(ours, theirs)


def test_a_bias_and_a_single_query_are_added_and_seen_as_said() -> None:
    q, k, v = drawn(7)
    bias = torch.randn(1, 3, 7, 7, dtype=torch.float64)
    expected = (SCALE * q @ k.mT + bias).softmax(-1) @ v
    torch.testing.assert_close(attention(q, k, v, bias, scale=SCALE), expected)
    last = attention(q[:, :, -1:], k, v, scale=SCALE)
    torch.testing.assert_close(last, plain(q, k, v, 7)[:, :, -1:])


def test_under_autocast_on_a_cpu_it_stays_in_the_dtype_of_the_queries() -> None:
    inputs = drawn(40, torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fast = [attention(*inputs, scale=SCALE), window_attention(*inputs, 3, scale=SCALE)]
    assert torch.equal(fast[0], attention(*inputs, scale=SCALE))
    assert torch.equal(fast[1], window_attention(*inputs, 3, scale=SCALE))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [3, 40])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_where_a_gradient_is_wanted_half_precision_is_computed_in_float32(
    dtype: torch.dtype, size: int, dropout: float
) -> None:
    def trained(inputs: list[Tensor], y_dtype: torch.dtype) -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        y = window_attention(*inputs, size, scale=SCALE, dropout=dropout).to(y_dtype)
        return y, *torch.autograd.grad(y, inputs, torch.ones_like(y))

    half = [x.detach().to(dtype).requires_grad_() for x in drawn(40)]
    found = trained(half, dtype)
    expected = trained([x.detach().float().requires_grad_() for x in half], dtype)
    assert all(torch.equal(one, other.to(dtype)) for one, other in zip(found, expected, strict=True))


def test_a_bias_in_half_precision_is_widened_too() -> None:
    q, k, v = (x.detach().bfloat16().requires_grad_() for x in drawn(7))
    bias = torch.randn(1, 3, 7, 7).bfloat16()
    y = attention(q, k, v, bias, scale=SCALE)
    assert torch.equal(y, attention(q.float(), k.float(), v.float(), bias.float(), scale=SCALE).bfloat16())


def test_the_pairs_of_a_window_are_few() -> None:
    assert window_attention_pairs(5, 9) == 25
    pairs = window_attention_pairs(100 * LEAST_ROWS, 2)
    assert pairs == LEAST_ROWS**2 + 99 * LEAST_ROWS * (LEAST_ROWS + 1)

"""What the strategies do beyond the laws: their knobs, their precision, and the formulas they stand for."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from trilab.agg.attention import SelfAttention
from trilab.agg.base import Aggregation, merge_heads, split_heads
from trilab.agg.cumsum import CumsumMean
from trilab.agg.loop import LoopMean
from trilab.agg.matmul import MatmulMean
from trilab.agg.none import Identity
from trilab.agg.random import RandomWeights
from trilab.agg.softmax import SoftmaxMean
from trilab.agg.sum import PrefixSum
from trilab.agg.table import LearnedTable
from trilab.agg.window import WindowMean
from trilab.errors import BadInput

AVERAGES = [LoopMean, MatmulMean, SoftmaxMean, CumsumMean, WindowMean, RandomWeights, LearnedTable]
HALF = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("strategy", AVERAGES)
def test_the_mean_of_a_constant_is_that_constant_in_half_precision(
    strategy: Callable[[int, int], Aggregation], dtype: torch.dtype
) -> None:
    constants = torch.tensor([0.7, 1.0, 1.9, 3.3, 1000.0], dtype=dtype).expand(1, 4096, 5)
    aggregation = strategy(5, 4096).to(dtype)
    assert torch.equal(aggregation(constants), constants)


def test_the_mean_of_65536_ones_in_float16_is_one() -> None:
    ones = torch.ones(1, 65_536, 1, dtype=torch.float16)
    assert torch.equal(CumsumMean(1, 65_536)(ones), ones)
    assert ones.cumsum(1).isinf().any()  # what accumulating in float16 would have given


@pytest.mark.parametrize("dtype", HALF)
def test_a_running_sum_in_half_precision_is_rounded_once(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 1000, 3).to(dtype)
    assert torch.equal(PrefixSum(3, 1000)(x), x.float().cumsum(1).to(dtype))


@pytest.mark.parametrize("dtype", HALF)
def test_attention_stays_finite_in_half_precision_where_scores_would_overflow(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    attention = SelfAttention(8, 16, n_head=2).to(dtype)
    x = (1e4 * torch.randn(2, 16, 8)).to(dtype)
    assert (attention.query(x) @ attention.key(x).mT).float().abs().max() > torch.finfo(torch.float16).max
    assert attention(x).isfinite().all()


def test_identity_returns_the_values_themselves() -> None:
    x = torch.randn(2, 8, 4)
    assert torch.equal(Identity(4, 8)(x), x)


def test_a_window_of_one_is_the_identity_and_a_window_of_block_size_the_uniform_mean() -> None:
    x = torch.randn(2, 8, 4)
    assert torch.equal(WindowMean(4, 8, size=1)(x), x)
    torch.testing.assert_close(WindowMean(4, 8, size=8)(x), SoftmaxMean(4, 8)(x))
    assert torch.equal(WindowMean(4, 8, size=100)(x), WindowMean(4, 8, size=8)(x))


def test_random_affinities_are_drawn_from_the_seed_saved_and_never_trained() -> None:
    torch.manual_seed(7)
    first = RandomWeights(4, 8)
    torch.manual_seed(7)
    second = RandomWeights(4, 8)
    assert torch.equal(first.affinities, second.affinities)
    assert not torch.equal(first.affinities, RandomWeights(4, 8).affinities)
    assert list(first.state_dict()) == ["affinities"]
    assert not list(first.parameters())


def test_a_learned_table_starts_as_the_uniform_mean_and_moves_from_there() -> None:
    torch.manual_seed(0)
    table, x = LearnedTable(4, 8), torch.randn(2, 8, 4)
    assert torch.equal(table(x), SoftmaxMean(4, 8)(x))
    table(x).square().sum().backward()
    with torch.no_grad():
        table.affinities -= 0.1 * table.affinities.grad
    assert not torch.allclose(table(x), SoftmaxMean(4, 8)(x))


@pytest.mark.parametrize("n_head", [1, 2, 4])
def test_attention_is_scaled_dot_product_attention_with_gradients(n_head: int) -> None:
    torch.manual_seed(0)
    attention = SelfAttention(8, 8, n_head=n_head).double()
    attention.project(value=True, output=True)
    attention.double()
    x = torch.randn(3, 7, 8, dtype=torch.float64, requires_grad=True)
    heads = [split_heads(part(x), n_head) for part in (attention.query, attention.key, attention.value)]
    reference = attention.output(merge_heads(scaled_dot_product_attention(*heads, is_causal=True)))
    inputs = [x, *attention.parameters()]
    ours = torch.autograd.grad(attention(x).sin().sum(), inputs)
    theirs = torch.autograd.grad(reference.sin().sum(), inputs)
    torch.testing.assert_close(attention(x), reference)
    torch.testing.assert_close(ours, theirs)


def test_scaling_keeps_the_spread_of_affinities_apart_from_the_head_size() -> None:
    torch.manual_seed(0)
    x = torch.randn(16, 8, 256)
    sharpness = {}
    for scaled in (True, False):
        attention = SelfAttention(256, 8, scaled=scaled)
        torch.nn.init.normal_(attention.query.weight, std=256**-0.5)  # queries and keys of variance one
        torch.nn.init.normal_(attention.key.weight, std=256**-0.5)
        sharpness[scaled] = attention.weights(x)[:, :, -1].amax(-1).mean().item()
    assert sharpness[True] < 0.5 < 0.9 < sharpness[False]


def test_dropout_of_weights_acts_in_training_only_and_keeps_their_mean() -> None:
    torch.manual_seed(0)
    attention, x = SelfAttention(4, 8, dropout=0.5), torch.randn(1, 8, 4).expand(4000, 8, 4)
    whole, drawn = attention.eval().weights(x), attention.train().weights(x)
    assert (drawn[:, 0, 0, 0] == 0).float().mean().item() == pytest.approx(0.5, abs=0.05)
    torch.testing.assert_close(drawn.mean(0), whole[0], atol=0.05, rtol=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(WindowMean, size=0), "agg.size=0 must be at least 1"),
        (partial(RandomWeights, scale=float("nan")), "agg.scale=nan must be a finite number"),
        (partial(SelfAttention, dropout=1.0), r"agg.dropout=1.0 must lie in \[0, 1\)"),
        (partial(SelfAttention, dropout=-0.1), r"agg.dropout=-0.1 must lie in \[0, 1\)"),
        (partial(SelfAttention, n_head=3), "n_embd=4 is not divisible by agg.n_head=3"),
        (partial(SelfAttention, n_head=0), "n_head=0 must be at least 1"),
    ],
)
def test_a_knob_that_cannot_work_is_refused_with_its_value(
    make: Callable[[int, int], Aggregation], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        make(4, 8)

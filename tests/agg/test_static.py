"""What the strategies with one table for every text do beyond the laws."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from trilab.agg import base
from trilab.agg.base import Aggregation
from trilab.agg.conv import ShortConvolution
from trilab.agg.cumsum import CumsumMean
from trilab.agg.ema import ExponentialMean
from trilab.agg.long_conv import LongConvolution
from trilab.agg.none import Identity
from trilab.agg.random import RandomWeights
from trilab.agg.relative import RelativeWeights
from trilab.agg.softmax import SoftmaxMean
from trilab.agg.table import LearnedTable
from trilab.errors import BadInput

HALF = [torch.float16, torch.bfloat16]


def stream(aggregation: Aggregation, x: Tensor) -> Tensor:
    """All outputs, one token at a time."""
    state, outputs = aggregation.init_state(x[:, 0]), []
    for t in range(x.shape[1]):
        y, state = aggregation.step(x[:, t], state)
        outputs.append(y)
    return torch.stack(outputs, 1)


def test_relative_weights_start_as_the_uniform_mean() -> None:
    x = torch.randn(2, 8, 4)
    assert torch.equal(RelativeWeights(4, 8, n_head=2).weights(x)[0, 0], SoftmaxMean(4, 8).weights(x)[0, 0])


def test_what_relative_weights_learn_of_a_distance_holds_at_every_position_of_that_head() -> None:
    relative, x = RelativeWeights(4, 8, n_head=2), torch.randn(2, 8, 4)
    with torch.no_grad():
        relative.affinities[0, 0] = 100  # the first head looks at this token
        relative.affinities[1, 1] = 100  # the second one at the token before
    torch.testing.assert_close(relative(x)[:, :, :2], x[:, :, :2])
    torch.testing.assert_close(relative(x)[:, 1:, 2:], x[:, :-1, 2:])


@pytest.mark.parametrize("make", [LearnedTable, RandomWeights, partial(RelativeWeights, n_head=2)])
def test_a_large_table_skips_its_upper_half_and_gives_the_same_with_gradients(
    make: Callable[[int, int], Aggregation], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    aggregation = make(4, 150).double()
    for parameter in aggregation.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, 150, 4, dtype=torch.float64, requires_grad=True)
    wanted = [x, *aggregation.parameters()]

    def result() -> tuple[int, list[Tensor]]:
        with FlopCounterMode(display=False) as counter:
            y = aggregation(x)
            y.sin().sum().backward()
        flops = aggregation.flops(150)
        assert counter.get_total_flops() == 2 * (flops.forward + flops.backward)  # rows of the batch
        gradients = [part.grad for part in wanted if part.grad is not None]
        aggregation.zero_grad()
        x.grad = None
        return flops.forward, [y, *gradients]

    whole, expected = result()
    monkeypatch.setattr(base, "TRIANGULAR_FROM", 150)
    half, got = result()
    assert half < 0.7 * whole
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("n_head", [1, 2, 4])
def test_half_lives_share_the_octaves_between_one_token_and_block_size_equally(n_head: int) -> None:
    decay = ExponentialMean(8, 256, n_head=n_head).decay(torch.float64)
    octaves = (-math.log(2) / decay.log()).log2()  # of the half-lives
    expected = 8 * (torch.arange(n_head) + 0.5) / n_head  # 256 tokens are 8 octaves
    torch.testing.assert_close(octaves, expected.double(), rtol=1e-5, atol=1e-5)


def test_a_moving_average_is_corrected_for_its_beginning_as_adam_does() -> None:
    ema, x = ExponentialMean(3, 40).double(), torch.randn(2, 40, 3, dtype=torch.float64)
    gamma, mean, corrected = ema.decay(torch.float64).item(), torch.zeros(2, 3, dtype=torch.float64), []
    for t in range(40):
        mean = gamma * mean + (1 - gamma) * x[:, t]
        corrected.append(mean / (1 - gamma ** (t + 1)))
    torch.testing.assert_close(ema(x), torch.stack(corrected, 1))


@pytest.mark.parametrize("run", [Aggregation.forward, stream], ids=["whole", "stream"])
@pytest.mark.parametrize(("theta", "limit"), [(-1e5, Identity), (1e5, SoftmaxMean)])
def test_a_decay_of_zero_is_no_mixing_and_a_decay_of_one_the_uniform_mean(
    theta: float, limit: Callable[[int, int], Aggregation], run: Callable[[Aggregation, Tensor], Tensor]
) -> None:
    ema, x = ExponentialMean(4, 8), torch.randn(2, 8, 4)
    torch.nn.init.constant_(ema.theta, theta)
    torch.testing.assert_close(run(ema, x), limit(4, 8)(x))
    torch.testing.assert_close(ema.weights(x), limit(4, 8).weights(x))


@pytest.mark.parametrize("theta", [-1e5, -18.0, 0.0, 18.0, 1e5])
def test_the_gradient_of_a_decay_loses_no_digits_near_zero_and_one(theta: float) -> None:
    ema, exact = ExponentialMean(4, 30), ExponentialMean(4, 30).double()
    x, cotangent = torch.randn(2, 2, 30, 4)
    for strategy in (ema, exact):
        torch.nn.init.constant_(strategy.theta, theta)
    (ema(x) * cotangent).sum().backward()
    (exact.loop(x.double(), x.double()) * cotangent).sum().backward()
    assert ema.theta.grad is not None
    torch.testing.assert_close(ema.theta.grad, exact.theta.grad.float(), atol=0, rtol=1e-4)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("strategy", [partial(ExponentialMean, n_head=5), RelativeWeights])
def test_the_mean_of_a_constant_is_that_constant_in_half_precision(
    strategy: Callable[[int, int], Aggregation], dtype: torch.dtype
) -> None:
    constants = torch.tensor([0.7, 1.0, 1.9, 3.3, 1000.0], dtype=dtype).expand(1, 1000, 5)
    assert torch.equal(strategy(5, 1000).to(dtype)(constants), constants)


@pytest.mark.parametrize("strategy", [CumsumMean, partial(ExponentialMean, n_head=2)])
def test_sums_carried_from_token_to_token_may_leave_the_range_of_float16(
    strategy: Callable[[int, int], Aggregation],
) -> None:
    large = torch.full((1, 300, 2), 1000.0, dtype=torch.float16)
    aggregation = strategy(2, 300).half()
    for parameter in aggregation.parameters():
        torch.nn.init.constant_(parameter, 20.0)  # remember everything
    assert torch.equal(stream(aggregation, large), large)
    assert large.sum(1).isinf().all()


def test_the_loop_of_random_weights_scales_them_too() -> None:
    torch.manual_seed(0)
    sharp, x = RandomWeights(4, 8, scale=10.0), torch.randn(2, 8, 4)
    torch.testing.assert_close(sharp.loop(x, x), sharp(x))


def test_a_running_mean_goes_on_past_block_size() -> None:
    tokens = torch.arange(1.0, 101.0)[None, :, None]
    assert torch.equal(stream(CumsumMean(1, 8), tokens), (tokens + 1) / 2)


@pytest.mark.parametrize("j", [0, 1, 3])
def test_a_filter_of_a_single_one_delays_the_text(j: int) -> None:
    x = torch.randn(2, 8, 4)
    short, long = ShortConvolution(4, 8, size=4), LongConvolution(4, 8)
    for strategy in (short, long):
        with torch.no_grad():
            strategy.filter.zero_()[:, j] = 1
    delayed = torch.cat([torch.zeros(2, j, 4), x[:, : 8 - j]], dim=1)
    assert torch.equal(short(x), delayed)
    torch.testing.assert_close(long(x), delayed, rtol=0, atol=1e-6)


@pytest.mark.parametrize("size", [1, 3, 8, 20])
def test_a_short_filter_and_a_long_one_that_ends_early_are_the_same(size: int) -> None:
    short, long = ShortConvolution(4, 8, size=size).double(), LongConvolution(4, 8).double()
    with torch.no_grad():
        long.filter.zero_()[:, :size] = short.filter[:, :8]
    x = torch.randn(2, 8, 4, dtype=torch.float64)
    torch.testing.assert_close(short(x), long(x))
    torch.testing.assert_close(short.weights(x), long.weights(x))
    torch.testing.assert_close(stream(short, x), stream(long, x))


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("strategy", [ShortConvolution, LongConvolution])
def test_a_convolution_in_half_precision_is_rounded_once(
    strategy: Callable[[int, int], Aggregation], dtype: torch.dtype
) -> None:
    aggregation, x = strategy(4, 100).to(dtype), torch.randn(2, 100, 4).to(dtype)
    assert torch.equal(aggregation(x), aggregation.float()(x.float()).to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("block_size", [8, 7, 257, 1000])
def test_a_transform_moves_outputs_before_a_change_by_rounding_only(block_size: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    long, x = LongConvolution(2, block_size).to(dtype), torch.randn(3, block_size, 2, dtype=dtype)
    before = long(x)
    x[:, -1] = 1e4
    moved = (long(x) - before)[:, :-1].abs().amax(1)  # (B, C)
    assert (moved <= 2 * torch.finfo(dtype).eps * long.filter.norm(dim=1) * x.norm(dim=1)).all()


def test_a_short_convolution_starts_at_a_third_of_the_variance_of_its_input() -> None:
    torch.manual_seed(0)
    assert ShortConvolution(1024, 64)(torch.randn(8, 64, 1024)).var().item() == pytest.approx(1 / 3, abs=0.03)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(ShortConvolution, size=0), r"agg.size=0 must be at least 1: tokens of one sum"),
        (partial(RelativeWeights, n_head=3), "n_embd=4 is not divisible by agg.n_head=3"),
        (partial(ExponentialMean, n_head=3), "n_embd=4 is not divisible by agg.n_head=3"),
        (partial(ExponentialMean, n_head=0), "agg.n_head=0 must be at least 1"),
    ],
)
def test_a_knob_that_cannot_work_is_refused_with_its_value(
    make: Callable[[int, int], Aggregation], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        make(4, 8)

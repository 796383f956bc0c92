"""What Karpathy's lecture "Let's build GPT" says about averaging the past, each claim a test.

The toy throughout: seed 1337, x of shape (B, T, C) = (4, 8, 2). The numbers are docs/lecture.md's.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from trilab.agg.attention import SelfAttention
from trilab.agg.base import About, Aggregation
from trilab.agg.cumsum import CumsumMean
from trilab.agg.loop import LoopMean
from trilab.agg.matmul import MatmulMean
from trilab.agg.none import Identity
from trilab.agg.random import RandomWeights
from trilab.agg.softmax import SoftmaxMean
from trilab.agg.table import LearnedTable
from trilab.agg.window import WindowMean
from trilab.corpora import tiny_shakespeare
from trilab.generation.generate import generate
from trilab.loss import mean_nats, summed_nats
from trilab.model import LanguageModel
from trilab.optim import Optim, adamw
from trilab.vocabulary import Vocabulary
from trilab.windows import TrainWindows, ValidationBatches, gather, split

B, T, C = 4, 8, 2
FOUR_WAYS = [LoopMean, MatmulMean, SoftmaxMean, CumsumMean]


@pytest.fixture
def x() -> Tensor:
    torch.manual_seed(1337)
    return torch.randn(B, T, C)


def prefix_means(x: Tensor) -> Tensor:
    """The lecture's version 1, word for word: a loop over the batch and a loop over time."""
    xbow = torch.zeros_like(x)
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            xprev = x[b, : t + 1]  # (t + 1, C)
            xbow[b, t] = torch.mean(xprev, 0)
    return xbow


class Operations(TorchDispatchMode):
    """Counts calls of each operation, and the elements that they gave out: one addition each in a cumulative sum."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: dict[str, int] = {}
        self.elements: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            name = func.overloadpacket.__name__
            self.calls[name] = self.calls.get(name, 0) + 1
            self.elements[name] = self.elements.get(name, 0) + out.numel()
        return out


# 1. Four ways to one mean.


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-8), (torch.float32, 1e-7)])
@pytest.mark.parametrize("way", FOUR_WAYS)
def test_1_for_loop_matmul_softmax_and_cumsum_give_the_same_prefix_means(
    x: Tensor, way: type[Aggregation], dtype: torch.dtype, atol: float
) -> None:
    # 1e-8 is allclose's own; in float32 it is too little for one mean that happens to be near zero.
    assert torch.allclose(way(C, T)(x.to(dtype)), prefix_means(x.to(dtype)), atol=atol)


@pytest.mark.parametrize("way", FOUR_WAYS)
def test_1_the_four_ways_agree_in_gradients(x: Tensor, way: type[Aggregation]) -> None:
    def gradient(mean: Any) -> Tensor:
        leaf = x.clone().requires_grad_()
        (mean(leaf).sin()).sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    assert torch.allclose(gradient(way(C, T)), gradient(prefix_means))


@pytest.mark.parametrize("way", FOUR_WAYS)
def test_1_row_0_is_the_first_token_and_row_7_the_mean_of_all_eight(x: Tensor, way: type[Aggregation]) -> None:
    y = way(C, T)(x)
    assert torch.equal(y[:, 0], x[:, 0])
    assert torch.allclose(y[:, 7], x.mean(1))


@pytest.mark.parametrize("time", [8, 64, 256, 1000, 1024])
def test_1_the_hand_normalised_and_the_softmax_matrix_are_equal_bit_for_bit(time: int) -> None:
    x = torch.zeros(1, time, C)
    assert torch.equal(MatmulMean(C, time).weights(x), SoftmaxMean(C, time).weights(x))


# 2. A matrix product sums, a triangle sums the past, a normalised triangle averages it.

ONES, TRIL = torch.ones(3, 3), torch.ones(3, 3).tril()
VALUES = torch.tensor([[2.0, 7.0], [6.0, 4.0], [6.0, 5.0]])


def test_2_ones_give_the_column_sums_three_times() -> None:
    assert (ONES @ VALUES).tolist() == [[14, 16]] * 3


def test_2_a_triangle_of_ones_gives_running_sums() -> None:
    assert (TRIL @ VALUES).tolist() == [[2, 7], [8, 11], [14, 16]]


def test_2_a_row_normalised_triangle_gives_running_means() -> None:
    means = (TRIL / TRIL.sum(1, keepdim=True)) @ VALUES
    torch.testing.assert_close(means, torch.tensor([[2, 7], [4, 5.5], [14 / 3, 16 / 3]]))


def test_2_without_keepdim_the_wrong_axis_is_normalised() -> None:
    wrong = TRIL / TRIL.sum(1)  # the row sums are laid along the columns
    assert torch.equal(wrong, TRIL / torch.tensor([[1.0, 2.0, 3.0]]))
    assert wrong.sum(1).tolist() == pytest.approx([1, 3 / 2, 11 / 6])


# 3. Shapes.


def test_3_a_table_of_time_by_time_broadcasts_over_the_batch(x: Tensor) -> None:
    table = MatmulMean(C, T).weights(x)[0, 0]  # (T, T)
    y = table @ x  # (T, T) @ (B, T, C) → (B, T, C)
    assert y.shape == (B, T, C)
    for b in range(B):
        torch.testing.assert_close(y[b], table @ x[b])


def test_3_the_mask_is_one_for_the_batch_and_data_dependent_affinities_are_not(x: Tensor) -> None:
    assert SoftmaxMean(C, T).weights(x).shape == (1, 1, T, T)
    weights = SelfAttention(C, T).weights(x)
    assert weights.shape == (B, 1, T, T)
    assert not torch.allclose(weights[0], weights[1])


# 4. Minus infinity, not -1e9.


def masked(affinities: Tensor, fill: float) -> Tensor:
    time = affinities.shape[-1]
    return affinities.masked_fill(~torch.ones(time, time, dtype=torch.bool).tril(), fill).softmax(-1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_4_minus_1e9_underflows_to_an_exact_zero_at_ordinary_scales(dtype: torch.dtype) -> None:
    torch.manual_seed(1337)
    scores = (100 * torch.randn(64, 64)).to(dtype)
    assert torch.equal(masked(scores, -1e9), masked(scores, -torch.inf))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_4_scores_that_outbid_minus_1e9_leak(dtype: torch.dtype) -> None:
    scores = torch.full((T, T), -2e9, dtype=dtype)
    assert masked(scores, -1e9)[0].tolist() == pytest.approx([0] + [1 / 7] * 7, rel=1e-2)
    assert torch.equal(masked(scores, -torch.inf)[0], torch.eye(T, dtype=dtype)[0])


def test_4_float16_cannot_hold_minus_1e9() -> None:
    with pytest.raises(RuntimeError, match="overflow"):
        masked(torch.zeros(T, T, dtype=torch.float16), -1e9)
    assert masked(torch.zeros(T, T, dtype=torch.float16), -torch.inf).isfinite().all()


def test_4_a_fully_masked_row_is_uniform_with_a_finite_mask_and_not_a_number_with_infinity() -> None:
    assert torch.equal(torch.full((T,), -1e9).softmax(-1), torch.full((T,), 1 / T))
    assert torch.full((T,), -torch.inf).softmax(-1).isnan().all()


def test_4_attention_gives_the_future_exactly_nothing_whatever_the_scores(x: Tensor) -> None:
    attention = SelfAttention(C, T)
    with torch.no_grad():
        attention.query.weight.copy_(-1e6 * torch.eye(C))
        attention.key.weight.copy_(1e6 * torch.eye(C))
    weights = attention.weights(x)  # each token's score with itself is about -1e12
    assert not weights.triu(1).any()
    assert torch.allclose(weights.sum(-1), torch.ones(()))


# 5. The mask is a buffer.

WITH_MASK = [MatmulMean, SoftmaxMean, RandomWeights, LearnedTable, SelfAttention]


@pytest.mark.parametrize("strategy", WITH_MASK)
def test_5_the_mask_is_a_buffer_that_is_neither_trained_nor_saved(strategy: type[Aggregation]) -> None:
    aggregation = strategy(C, T)
    assert "tril" in dict(aggregation.named_buffers())
    assert "tril" not in dict(aggregation.named_parameters())
    assert "tril" not in aggregation.state_dict()
    assert not aggregation.get_buffer("tril").requires_grad


@pytest.mark.parametrize("strategy", WITH_MASK)
def test_5_the_mask_follows_the_device(strategy: type[Aggregation]) -> None:
    aggregation = strategy(C, T).to("meta")
    assert aggregation.get_buffer("tril").device.type == "meta"
    assert aggregation(torch.empty(B, T, C, device="meta")).device.type == "meta"


@pytest.mark.parametrize("strategy", WITH_MASK)
def test_5_the_mask_is_cropped_to_the_tokens_there_are(x: Tensor, strategy: type[Aggregation]) -> None:
    aggregation = strategy(C, T)
    short, whole = aggregation.weights(x[:, :5]), aggregation.weights(x)
    assert short.shape[-2:] == (5, 5)
    torch.testing.assert_close(short, whole[..., :5, :5])


# 6. No further back than block_size.


def tiny_model(block_size: int = 8) -> LanguageModel:
    return LanguageModel(65, block_size, SelfAttention, n_embd=8).eval()


def test_6_positions_past_block_size_raise() -> None:
    model = tiny_model()
    assert model(torch.zeros(1, 8, dtype=torch.int64)).shape == (1, 8, 65)
    with pytest.raises(ValueError, match="9 characters are more than block_size=8"):
        model(torch.zeros(1, 9, dtype=torch.int64))


def test_6_generation_crops_to_the_last_block_size_characters() -> None:
    model = tiny_model()
    prompt = torch.randint(65, (1, 30), generator=torch.Generator().manual_seed(1337))
    lengths = []
    model.register_forward_pre_hook(lambda _, args: lengths.append(args[0].shape[1]))
    whole, last = (
        generate(model, tokens, 24, generator=torch.Generator().manual_seed(1337))
        for tokens in (prompt, prompt[:, -8:])
    )
    assert whole.shape == (1, 54)
    assert torch.equal(whole[:, 30:], last[:, 8:])
    assert set(lengths) == {8}


# 7. What embeddings and positions are worth without mixing.


def trained(steps: int = 3000, **options: Any) -> float:
    """Validation loss on Tiny Shakespeare, in nats per character, of a model without mixing."""
    text = tiny_shakespeare.read(str(Path(__file__).parents[1] / "data" / "tiny_shakespeare.txt")).text
    vocabulary = Vocabulary.of(text)
    splits = split(torch.from_numpy(vocabulary.encode(text)), block_size=T, origin="Tiny Shakespeare")
    model = LanguageModel(len(vocabulary), T, Identity, **options)
    optimizer = adamw(model, Optim(lr=1e-2))
    windows = TrainWindows(splits.train, block_size=T, batch_size=32, seed=1337)
    for step in range(steps):
        inputs, targets = gather(splits.train, windows.starts(step), T)
        optimizer.zero_grad()
        mean_nats(model(inputs), targets).backward()
        optimizer.step()
    nats = 0.0
    with torch.no_grad():
        for batch in ValidationBatches(len(splits.val), T, 4096):
            inputs, targets = gather(splits.val, batch.starts, batch.length)
            nats += summed_nats(model(inputs), targets).item()
    return nats / (len(splits.val) - 1)


def test_7_embedding_indirection_gains_nothing_over_the_bigram_table() -> None:
    table = trained(lm_head=False, n_embd=None, positions=False)
    indirection = trained(n_embd=32, positions=False)
    assert 2.45 < table < 2.52
    assert 0 < indirection - table < 0.05


def test_7_positions_alone_change_almost_nothing() -> None:
    assert trained(n_embd=32, positions=True) == pytest.approx(trained(n_embd=32, positions=False), abs=0.02)


# 8. The zeros of version 3 can be anything.


def test_8_a_banded_mask_is_the_double_loop_over_this_and_the_previous_three(x: Tensor) -> None:
    loop = torch.stack([torch.stack([x[b, max(0, t - 3) : t + 1].mean(0) for t in range(T)]) for b in range(B)])
    torch.testing.assert_close(WindowMean(C, T, size=4)(x), loop)


def test_8_the_first_raw_rows_of_the_band_have_less_and_softmax_divides_each_by_its_own_sum(x: Tensor) -> None:
    band = torch.ones(T, T).tril().triu(-3)
    assert band.sum(1).tolist() == [1, 2, 3, 4, 4, 4, 4, 4]
    torch.testing.assert_close(WindowMean(C, T, size=4).weights(x)[0, 0], band / band.sum(1, keepdim=True))


def test_8_random_rows_are_not_negative_sum_to_one_and_are_zero_above_the_diagonal(x: Tensor) -> None:
    weights = RandomWeights(C, T).weights(x)
    assert (weights >= 0).all()
    assert not weights.triu(1).any()
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 1, T))


def test_8_large_random_affinities_tend_to_one_hot_rows_and_small_ones_to_uniform_rows(x: Tensor) -> None:
    def last_rows(scale: float) -> Tensor:
        torch.manual_seed(1337)
        return torch.stack([RandomWeights(C, T, scale=scale).weights(x)[0, 0, -1] for _ in range(200)])

    peaks = {scale: last_rows(scale).amax(1).mean().item() for scale in (0.0, 0.1, 1.0, 10.0, 1e6)}
    assert peaks[0.0] == 1 / T
    assert peaks[0.1] == pytest.approx(0.145, abs=0.01)
    assert peaks[1.0] == pytest.approx(0.36, abs=0.03)
    assert peaks[10.0] == pytest.approx(0.87, abs=0.03)
    assert peaks[1e6] == 1


# 9. Cost and generality.


@pytest.mark.parametrize("time", [64, 128, 256])
def test_9_the_matmul_takes_two_operations_for_each_pair_of_positions(time: int) -> None:
    with FlopCounterMode(display=False) as counter:
        MatmulMean(C, time)(torch.zeros(B, time, C))
    assert counter.get_total_flops() == 2 * B * time * time * C


@pytest.mark.parametrize("time", [64, 128, 256])
def test_9_the_cumulative_sum_writes_each_position_once_or_takes_one_addition_and_one_division(time: int) -> None:
    x = torch.zeros(B, time, C)
    with Operations() as counted:
        CumsumMean(C, time)(x)
    by_kernel = {"prefix": B * time * C}
    by_torch = {"cumsum": B * time * C, "div": B * time * C, "arange": time, "view": time}
    assert counted.elements in (by_kernel, by_torch)  # as this machine has a C compiler or not


def test_9_the_matmul_takes_any_weights(x: Tensor) -> None:
    table = torch.randn(T, T).tril()

    class Whatever(Aggregation):
        about = About(formula="A = what you like")

        def weights(self, x: Tensor) -> Tensor:
            return table[None, None]

    loop = torch.stack([sum(table[t, s] * x[:, s] for s in range(t + 1)) for t in range(T)], dim=1)
    torch.testing.assert_close(Whatever(C, T)(x), loop)


# 10. At the size of gpt.py.


def test_10_at_full_size_one_matmul_replaces_16384_means() -> None:
    batch, time, channels = 64, 256, 384
    torch.manual_seed(1337)
    x = torch.randn(batch, time, channels)
    with Operations() as counted:
        y = MatmulMean(channels, time)(x)
    assert counted.calls["bmm"] == 1
    assert y.flatten(0, 1).shape == (16_384, channels)
    for b, t in ((0, 0), (13, 37), (63, 255)):
        torch.testing.assert_close(y[b, t], x[b, : t + 1].mean(0))


def test_10_the_double_loop_takes_one_mean_for_each_row_and_position(x: Tensor) -> None:
    with Operations() as counted:
        prefix_means(x)
    assert counted.calls["mean"] == B * T

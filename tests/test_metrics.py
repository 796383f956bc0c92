"""Validation metrics: sums and counts, equal however the text is cut and dealt."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torchmetrics import Metric

from trilab import metrics
from trilab.loss import char_nats
from trilab.metrics import (
    Accuracy,
    BitsPerChar,
    Loss,
    LossByBlock,
    LossByPosition,
    Perplexity,
    answer_metrics,
    validation_metrics,
)

ALL = [Loss, BitsPerChar, Perplexity, Accuracy]
V = 65


def draw(batch: int, time: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, time, V, generator=generator), torch.randint(V, (batch, time), generator=generator)


def measured(metric: Metric, *batches: tuple[Tensor, Tensor]) -> float:
    for logits, targets in batches:
        metric.update(logits, targets)
    return float(metric.compute())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_a_uniform_guess_costs_ln_v_nats_log2_v_bits_and_has_perplexity_v(dtype: torch.dtype) -> None:
    batch = torch.zeros(3, 8, V, dtype=dtype), draw(3, 8)[1]
    assert measured(Loss(), batch) == pytest.approx(math.log(V), rel=1e-6)
    assert measured(BitsPerChar(), batch) == pytest.approx(math.log2(V), rel=1e-6)
    assert measured(Perplexity(), batch) == pytest.approx(V, rel=1e-5)  # 65.86 if computed in bfloat16


def test_a_hand_computed_case() -> None:
    logits = torch.tensor([[[1.0, 3.0], [1.0, 1.0], [1.0, 7.0]]]).log()
    batch = logits, torch.tensor([[1, 0, 0]])  # given 3/4, 1/2, 1/8
    nats = (math.log(4 / 3) + math.log(2) + math.log(8)) / 3
    assert measured(Loss(), batch) == pytest.approx(nats, rel=1e-6)
    assert measured(BitsPerChar(), batch) == pytest.approx(nats / math.log(2), rel=1e-6)
    assert measured(Perplexity(), batch) == pytest.approx((4 / 3 * 2 * 8) ** (1 / 3), rel=1e-6)


def test_accuracy_is_the_share_of_likeliest_guesses_that_are_right() -> None:
    logits = nn.functional.one_hot(torch.tensor([[0, 1, 2, 3], [4, 4, 4, 4]]), 5).float()
    assert measured(Accuracy(), (logits, torch.tensor([[0, 1, 2, 0], [4, 4, 0, 3]]))) == 5 / 8


@pytest.mark.parametrize("metric", ALL)
def test_uneven_batches_give_what_one_pass_over_the_whole_gives(metric: type[Metric]) -> None:
    logits, targets = draw(13, 8)
    cut = [(logits[a:b], targets[a:b]) for a, b in ((0, 5), (5, 6), (6, 12))]
    ragged = [(logits[12:, :3], targets[12:, :3]), (logits[12:, 3:], targets[12:, 3:])]
    assert measured(metric(), *cut, *ragged) == pytest.approx(measured(metric(), (logits, targets)), rel=1e-12)


@pytest.mark.parametrize("metric", ALL)
def test_two_processes_merged_as_torchmetrics_merges_them_equal_one(metric: type[Metric]) -> None:
    logits, targets = draw(7, 8)

    def gather(state: Tensor, group: object) -> list[Tensor]:
        (name,) = (name for name, value in first.metric_state.items() if value is state)
        return [state, second.metric_state[name]]

    first = metric(dist_sync_fn=gather, distributed_available_fn=lambda: True)
    second = metric()
    first.update(logits[:2], targets[:2])
    second.update(logits[2:], targets[2:])
    assert float(first.compute()) == pytest.approx(measured(metric(), (logits, targets)), rel=1e-12)


def test_perplexity_survives_one_impossible_character_among_many() -> None:
    # 1,023 uniform guesses and one at 600 nats more: softmax, then logarithm, would be infinite
    logits = torch.zeros(1, 1024, V)
    logits[0, 17, 1] = -600.0
    targets = torch.ones(1, 1024, dtype=torch.int64)
    wanted = math.exp((1023 * math.log(V) + 600 + math.log(V - 1)) / 1024)
    assert measured(Perplexity(), (logits, targets)) == pytest.approx(wanted, rel=1e-5)
    assert wanted == pytest.approx(116.8, abs=0.1)


@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric")  # torchmetrics' word on it
@pytest.mark.parametrize("metric", ALL)
def test_before_the_first_character_a_metric_is_nan(metric: type[Metric]) -> None:
    assert math.isnan(float(metric().compute()))
    assert math.isnan(measured(metric(), (torch.zeros(0, 8, V), torch.zeros(0, 8, dtype=torch.int64))))


@pytest.mark.parametrize("metric", ALL)
def test_reset_begins_anew(metric: type[Metric]) -> None:
    one = metric()
    measured(one, draw(3, 8))
    one.reset()
    assert measured(one, draw(2, 8, seed=1)) == measured(metric(), draw(2, 8, seed=1))


LOWER: dict[str, Callable[[nn.Module], object]] = {
    "to(bfloat16)": lambda m: m.to(torch.bfloat16),
    "to(float16)": lambda m: m.to(dtype=torch.float16),
    "bfloat16()": lambda m: m.bfloat16(),
    "half()": lambda m: m.half(),
    "float()": lambda m: m.float(),
    "to(cpu)": lambda m: m.to("cpu"),
    "unchanged": lambda m: m,
}


@pytest.mark.parametrize("lower", LOWER.values(), ids=LOWER)
def test_sums_stay_float64_and_counts_int64_whatever_the_module_s_precision(
    lower: Callable[[nn.Module], object],
) -> None:
    module = nn.Module()
    module.weight = nn.Parameter(torch.zeros(2))
    module.validation = validation_metrics()
    lower(module)
    for _ in range(2):
        for batch in (draw(60, 8), draw(60, 8, seed=1)):
            module.validation.update(*batch)
        for metric in module.validation.values():
            for name, state in metric.metric_state.items():
                assert state.dtype == (torch.float64 if name == "nats" else torch.int64)
        values = module.validation.compute()
        assert float(values["val/loss"]) == pytest.approx(measured(Loss(), draw(60, 8), draw(60, 8, seed=1)), rel=1e-12)
        module.validation.reset()


def test_the_collection_gives_all_four_under_their_names() -> None:
    found = validation_metrics()
    batch = draw(3, 8)
    found.update(*batch)
    found.update(*draw(2, 8, seed=1))
    assert {name: float(value) for name, value in found.compute().items()} == {
        "val/loss": measured(Loss(), batch, draw(2, 8, seed=1)),
        "val/bits_per_char": measured(BitsPerChar(), batch, draw(2, 8, seed=1)),
        "val/perplexity": measured(Perplexity(), batch, draw(2, 8, seed=1)),
        "val/accuracy": measured(Accuracy(), batch, draw(2, 8, seed=1)),
    }


def test_the_collection_computes_a_batch_s_cross_entropy_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(logits: Tensor, targets: Tensor) -> Tensor:
        calls.append(1)
        return torch.zeros((), dtype=torch.float64)

    monkeypatch.setattr(metrics, "summed_nats", counted)
    found = validation_metrics()
    for _ in range(3):
        found.update(*draw(2, 8))
    assert len(calls) == 3


def test_answers_are_measured_by_the_same_metrics_under_names_of_their_own() -> None:
    found = answer_metrics()
    batch = draw(3, 8)
    found.update(*batch)
    found.update(torch.zeros(1, 0, V), torch.zeros(1, 0, dtype=torch.int64))  # a batch without answers
    assert {name: float(value) for name, value in found.compute().items()} == {
        "answer_loss": measured(Loss(), batch),
        "answer_accuracy": measured(Accuracy(), batch),
    }


def test_loss_by_position_is_the_mean_at_each_place_and_windows_may_be_shorter() -> None:
    metric = LossByPosition(4)
    metric.update(torch.tensor([[1.0, 2.0, 3.0, 4.0], [3.0, 2.0, 1.0, 0.0]], dtype=torch.float64))
    metric.update(torch.tensor([[8.0, 5.0]], dtype=torch.float64))
    assert metric.compute().tolist() == [4.0, 3.0, 2.0, 2.0]


def test_loss_by_position_weighted_by_its_counts_is_the_loss() -> None:
    batches = [draw(5, 8), draw(1, 3, seed=1)]
    metric = LossByPosition(8)
    for logits, targets in batches:
        metric.update(char_nats(logits, targets))
    assert float(metric.nats.sum() / metric.count.sum()) == pytest.approx(measured(Loss(), *batches), rel=1e-12)


def test_loss_by_block_sums_the_windows_that_begin_in_each_stretch() -> None:
    metric = LossByBlock(first=100, length=8, n_blocks=3)
    metric.update(torch.full((3, 4), 2.0, dtype=torch.float64), torch.tensor([100, 104, 108]))
    metric.update(torch.tensor([[5.0, 7.0]], dtype=torch.float64), torch.tensor([116]))
    nats, count = metric.compute()
    assert nats.tolist() == [16.0, 8.0, 12.0]
    assert count.tolist() == [8, 4, 2]


@pytest.mark.parametrize("metric", [LossByPosition(8), LossByBlock(0, 16, 4)])
def test_where_losses_arise_is_kept_in_double_precision_in_a_half_precision_model(metric: Metric) -> None:
    nn.ModuleList([metric]).half()
    assert {state.dtype for state in metric.metric_state.values() if isinstance(state, Tensor)} == {
        torch.float64,
        torch.int64,
    }

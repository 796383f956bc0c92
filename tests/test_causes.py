"""What a leak looks like: every strategy broken on purpose is told by name."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from trilab.agg.attention import SelfAttention
from trilab.agg.base import Aggregation
from trilab.causes import CAUSES, Evidence, likely_cause
from trilab.laws import Setting

from .laws import controls

SMALL = Setting(time=8, input_scale=1.0, parameter_scale=None, training=True)
LARGE = Setting(time=8, input_scale=1e4, parameter_scale=1e5, training=True)

EXPECTED = {
    "NoMask": "no mask",
    "OffByOne": "mask off by one",
    "TransposedMask": "transposed mask",
    "MaskLostInTraining": "mask lost in training mode",
    "FiniteMask": "finite mask value: large scores outbid it",
    "MaskLostForOneHead": "mask lost for some heads: channels 2-3 of 4",
    "MaskScrambledOverHeads": "mask scrambled over heads",
    "LeakPastHalf": "only from position 4 on",
    "WrongAxis": "softmax over the wrong axis",
    "DividedByT": "divided by T",
    "MaxOverTime": "maximum over all time",
    "LeakAtLargeScale": "only at large scale",
    "NormalisedOverTime": "normalised over all time",
    "LeakWithGradients": "mask lost in training mode",
    "ReshapedBack": "rows of the batch are mixed",
    "CircularFFT": "convolution by FFT without zero padding",
}


def test_every_control_that_breaks_causality_has_a_cause() -> None:
    broken = {name for name, laws in controls.CONTROLS.items() if "causality_prefix" in laws and "shape" not in laws}
    assert set(EXPECTED) == broken


@pytest.mark.parametrize("projected", [False, True], ids=["alone", "projected"])
@pytest.mark.parametrize(
    ("name", "setting"),
    [(name, setting) for name in EXPECTED for setting in (LARGE, replace(LARGE, time=7))]
    + [(name, SMALL) for name in EXPECTED if name not in ("FiniteMask", "LeakAtLargeScale")],  # these hold there
    ids=str,
)
def test_a_broken_strategy_is_told_by_name(name: str, projected: bool, setting: Setting) -> None:
    torch.manual_seed(0)
    aggregation: Aggregation = getattr(controls, name)()
    aggregation.project(value=projected, output=projected)
    cause = likely_cause(aggregation, setting)
    assert cause is not None
    assert cause.startswith(EXPECTED[name])


@pytest.mark.parametrize("name", ["NoMask", "MaskLostForOneHead", "CircularFFT", "LeakPastHalf"])
def test_more_channels_and_positions_look_the_same(name: str) -> None:
    torch.manual_seed(0)
    cause = likely_cause(getattr(controls, name)(n_embd=16, block_size=24), replace(LARGE, time=24))
    expected = {
        "MaskLostForOneHead": "mask lost for some heads: channels 8-15",
        "LeakPastHalf": "only from position 12 on",
    }
    assert cause is not None
    assert cause.startswith(expected.get(name, EXPECTED[name]))


DECISION = "a decision taken over all time (a sort, a top-k, a sign of a sum)"
CARRIES = "carries something from one call to the next, or draws from a random generator of its own"


class Mixed(Aggregation):
    """No table: what it mixes is the test's."""

    def __init__(self) -> None:
        super().__init__(4, 8)


class LostInEvaluation(Mixed):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v.cumsum(1) if self.training else v.cumsum(1) + v.sum(1, keepdim=True)


class TwoAhead(Mixed):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return (
            v
            + v.roll(-1, 1).index_fill(1, torch.tensor([v.shape[1] - 1]), 0)
            + v.roll(-2, 1).index_fill(1, torch.tensor([v.shape[1] - 2, v.shape[1] - 1]), 0)
        )


class NormOverTime(Mixed):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v.cumsum(1) / v.norm(dim=1, keepdim=True)


class InstanceNorm(Mixed):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return ((v - v.mean(1, keepdim=True)) / (v.var(1, keepdim=True) + 1e-5).sqrt()).cumsum(1)


class LengthInFormula(Mixed):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v.cumsum(1) * v.shape[1] ** 0.5


class LastPositionsAdded(Mixed):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v.cumsum(1) + v[:, 5:].sum(1, keepdim=True)


class OneCell(Mixed):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        y = v.cumsum(1)
        return torch.cat([y[:, :1] + v[:, 1:2] - 0.5 * v[:, 7:8], y[:, 1:]], 1)


class EveryOther(Aggregation):
    """The mean of every other token, of later ones too: the table of a circle where T is even."""

    def __init__(self) -> None:
        super().__init__(4, 8)

    def weights(self, x: Tensor) -> Tensor:
        t = torch.arange(x.shape[1])
        looks = ((t[:, None] - t) % 2 == 0).to(x.dtype)
        return (looks / looks.sum(-1, keepdim=True))[None, None]


class OwnDropout(Mixed):
    """An honest sum whose dropout, of a kind of its own, draws differently for another length."""

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v.cumsum(1) * (torch.rand_like(v.mT).mT > 0.5)


class TopHalf(Mixed):
    """Only the larger half of the tokens is let through, as with experts that choose."""

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        score = x[..., 0]
        least = score.topk(max(1, score.shape[1] // 2), 1).values[:, -1:]
        return v.cumsum(1) * (score >= least)[..., None]


class SignOfSum(Mixed):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v.cumsum(1) * v.sum((1, 2), keepdim=True).sign()


class LastInABand(Mixed):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        last = v[:, -1:, :1]
        return v.cumsum(1) * (1 + ((last > 0) & (last < 0.5)).to(v))


class Pairs(Mixed):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        rows, time, channels = v.shape
        if time % 2:
            return v.cumsum(1)
        return v.view(rows, time // 2, 2, channels).mean(2).cumsum(1).repeat_interleave(2, 1)


class BlocksOfFour(Mixed):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        rows, time, channels = v.shape
        padded = nn.functional.pad(v, (0, 0, 0, -time % 4)).view(rows, -1, 4, channels)
        return padded.sum(2).cumsum(1).repeat_interleave(4, 1)[:, :time]


class InPlace(Mixed):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return x.cumsum_(1) * 1.0


class Added(Mixed):
    """What comes later reaches the residual stream, not the output."""

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        y = v.cumsum(1)
        x += x.mean(1, keepdim=True)
        return y


class Stateful(Mixed):
    def __init__(self) -> None:
        super().__init__()
        self.last: Tensor | None = None

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        y = v.cumsum(1) if self.last is None else v.cumsum(1) + self.last
        self.last = y[:, -1:]
        return y


class FirstTable(Mixed):
    """The table of the first text is kept for all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: Tensor | None = None

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        if self.kept is None or self.kept.shape[1] != x.shape[1]:
            self.kept = (x @ x.mT).tril()
        return self.kept @ v


class BatchNorm(Mixed):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        y: Tensor = self.norm(v.cumsum(1).mT).mT
        return y


class SumOverBatch(Mixed):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v.cumsum(0)


class Failing(Mixed):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        raise RuntimeError


class Honest(SelfAttention):
    def __init__(self) -> None:
        super().__init__(4, 8)


@pytest.mark.parametrize(
    ("broken", "cause"),
    [
        (TwoAhead, "mask off by 2"),
        (NormOverTime, "no mask, or a number taken over all time (a norm, a mean, a maximum)"),
        (InstanceNorm, "normalised over all time: another scale and origin of x change nothing"),
        (LengthInFormula, "the length of the text is in the formula"),
        (LastPositionsAdded, "only inputs from position 5 on"),
        (EveryOther, "no mask"),
        (TopHalf, DECISION),
        (SignOfSum, DECISION),
        (LastInABand, DECISION),
        (Pairs, "averages over blocks of 2 positions, later ones among them"),
        (BlocksOfFour, "averages over blocks of 4 positions, later ones among them"),
        (InPlace, "changes its input in place"),
        (Added, "changes its input in place"),
        (Stateful, CARRIES),
        (FirstTable, CARRIES),
        (BatchNorm, "only in training mode: a mask lost there, or a statistic over time or batch"),
        (SumOverBatch, "rows of the batch are mixed, as by a reshape in place of a transpose, or a sum over the batch"),
        (OneCell, None),
        (OwnDropout, None),
        (Failing, None),
        (Honest, None),
    ],
)
def test_other_leaks_are_told_in_general_words_or_not_at_all(broken: type[Mixed], cause: str | None) -> None:
    assert likely_cause(broken(), SMALL) == cause


def test_a_mask_lost_in_evaluation_mode_is_told_from_one_lost_in_training() -> None:
    told = likely_cause(LostInEvaluation(), replace(SMALL, training=False))
    assert told == "only in evaluation mode: a mask lost there, or a statistic over time or batch"


def test_looking_for_a_cause_leaves_the_strategy_as_it_is() -> None:
    torch.manual_seed(0)
    aggregation = controls.FiniteMask()
    aggregation.project(value=True, output=True)
    before, state = {k: v.clone() for k, v in aggregation.state_dict().items()}, torch.get_rng_state()
    likely_cause(aggregation, LARGE)
    assert aggregation.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[key], value) for key, value in aggregation.state_dict().items())


def test_no_predicate_names_a_causal_strategy_that_is_not_broken() -> None:
    torch.manual_seed(0)
    evidence = Evidence(SelfAttention(4, 8, n_head=2), SMALL)
    assert not evidence.broken
    assert {look.__name__ for look in CAUSES[:3] if look(evidence)} == set()

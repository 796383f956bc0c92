"""Every strategy in conf/agg obeys every law, and every law rejects the strategies that break it."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor, nn

from trilab.agg.base import About, Aggregation, lower_triangle
from trilab.laws import LAWS, Conditions, Law, causality_perturbation, causality_prefix, shape

FOLDER = Path(__file__).parents[2] / "conf" / "agg"
STRATEGIES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
MODEL = {"n_head": 2, "dropout": 0.1}
NAMES = [law.__name__ for law in LAWS]


def built(name: str, n_embd: int = 4, block_size: int = 8) -> Aggregation:
    """The strategy as its YAML says, in a model with two heads and dropout."""
    torch.manual_seed(0)
    config = OmegaConf.create({"model": MODEL, "agg": OmegaConf.load(FOLDER / f"{name}.yaml")})
    aggregation = instantiate(config.agg, n_embd=n_embd, block_size=block_size)
    assert isinstance(aggregation, Aggregation)
    return aggregation


@pytest.mark.parametrize("law", LAWS, ids=NAMES)
@pytest.mark.parametrize("projected", [False, True], ids=["alone", "projected"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_obeys_every_law(name: str, projected: bool, law: Law) -> None:
    aggregation = built(name)
    aggregation.project(value=projected, output=projected)
    verdict = law(aggregation)
    assert verdict.passed, str(verdict)


@pytest.mark.parametrize("block_size", [1, 2, 7])
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_is_causal_at_other_block_sizes(name: str, block_size: int) -> None:
    for law in (shape, causality_prefix, causality_perturbation):
        verdict = law(built(name, block_size=block_size))
        assert verdict.passed, str(verdict)


@pytest.mark.parametrize("name", STRATEGIES)
def test_more_tokens_than_block_size_are_refused_with_both_numbers(name: str) -> None:
    with pytest.raises(ValueError, match=re.escape("9 tokens are more than block_size=8")):
        built(name)(torch.zeros(1, 9, 4))


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_says_what_it_is(name: str) -> None:
    about = built(name).about
    assert all([about.formula, about.cost, about.state, about.source])


@pytest.mark.parametrize("name", STRATEGIES)
def test_laws_leave_the_aggregation_and_the_random_state_as_they_were(name: str) -> None:
    aggregation = built(name)
    before, state = {k: v.clone() for k, v in aggregation.state_dict().items()}, torch.get_rng_state()
    for law in LAWS:
        law(aggregation)
    assert aggregation.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[key], value) for key, value in aggregation.state_dict().items())
    assert all(parameter.grad is None for parameter in aggregation.parameters())


# Strategies broken on purpose, each with the laws that must reject it. All others must let it pass.


class Weighted(Aggregation):
    """A table made from fixed affinities of zero; what a control breaks is `mask`."""

    about = About(rows_sum_to_one=True)

    def __init__(self) -> None:
        super().__init__(n_embd=4, block_size=8)

    def mask(self, time: int) -> Tensor:
        return lower_triangle(time)

    def weights(self, x: Tensor) -> Tensor:
        affinities = torch.zeros(x.shape[1], x.shape[1], dtype=x.dtype)
        return affinities.masked_fill(~self.mask(x.shape[1]), -torch.inf).softmax(-1)[None, None]


class NoMask(Weighted):
    def mask(self, time: int) -> Tensor:
        return torch.ones(time, time, dtype=torch.bool)


class OffByOne(Weighted):
    def mask(self, time: int) -> Tensor:
        return torch.ones(time, time, dtype=torch.bool).tril(1)


class MaskLostInTraining(Weighted):
    def mask(self, time: int) -> Tensor:
        return torch.ones(time, time, dtype=torch.bool) if self.training else lower_triangle(time)


class FiniteMask(Weighted):
    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(4, 4, bias=False)
        self.key = nn.Linear(4, 4, bias=False)

    def weights(self, x: Tensor) -> Tensor:
        wide = torch.promote_types(x.dtype, torch.float32)
        affinities = self.query(x).to(wide) @ self.key(x).to(wide).mT
        return affinities.masked_fill(~self.mask(x.shape[1]), -1e4).softmax(-1).to(x.dtype)[:, None]


class NotNormalised(Weighted):
    def weights(self, x: Tensor) -> Tensor:
        return self.mask(x.shape[1]).to(x.dtype)[None, None]


class DividedByT(Weighted):
    about = About()

    def weights(self, x: Tensor) -> Tensor:
        return self.mask(x.shape[1]).to(x.dtype)[None, None] / x.shape[1]


class BatchMean(Weighted):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return super().mix(x, v.mean(0, keepdim=True).expand_as(v))


class AnotherTable(Weighted):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v


class GradientForgotten(Weighted):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return super().mix(x, v.detach())


class LastTokenOnly(Aggregation):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v[:, -1:]


class AlwaysFloat32(Aggregation):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v.float()


class UnusedParameter(Weighted):
    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(3))


class SquaresInHalf(Aggregation):
    def __init__(self) -> None:
        super().__init__(n_embd=4, block_size=8)

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return (v.square() + 1).sqrt()


CONTROLS: list[tuple[Callable[[], Aggregation], set[str]]] = [
    (NoMask, {"causality_prefix", "causality_perturbation", "triangle"}),
    (OffByOne, {"causality_prefix", "causality_perturbation", "triangle"}),
    (MaskLostInTraining, {"causality_prefix", "causality_perturbation", "triangle"}),
    (FiniteMask, {"causality_prefix", "causality_perturbation", "triangle"}),
    (NotNormalised, {"triangle"}),
    (DividedByT, {"causality_prefix"}),
    (BatchMean, {"batch", "table"}),
    (AnotherTable, {"table"}),
    (GradientForgotten, {"table"}),
    (UnusedParameter, {"gradient"}),
    (SquaresInHalf, {"finite_range"}),
]


@pytest.mark.parametrize(("control", "laws"), CONTROLS, ids=[control.__name__ for control, _ in CONTROLS])
def test_a_broken_strategy_is_rejected_by_the_laws_it_breaks_and_no_other(
    control: Callable[[], Aggregation], laws: set[str]
) -> None:
    assert {law.__name__ for law in LAWS if not law(control()).passed} == laws


@pytest.mark.parametrize("control", [LastTokenOnly, AlwaysFloat32])
def test_another_shape_or_dtype_is_rejected(control: type[Aggregation]) -> None:
    assert not shape(control(4, 8)).passed


def test_not_a_number_is_never_a_pass() -> None:
    class Undefined(Aggregation):
        def mix(self, x: Tensor, v: Tensor) -> Tensor:
            return v * torch.nan

    assert not causality_prefix(Undefined(4, 8)).passed


def test_a_finite_mask_passes_at_ordinary_scales_and_is_caught_at_large_ones() -> None:
    ordinary = Conditions(parameter_scales=(None, 1.0), input_scales=(1.0,))
    assert causality_perturbation(FiniteMask(), ordinary).passed
    assert not causality_perturbation(FiniteMask()).passed


def test_a_verdict_says_which_output_moves_with_which_inputs_and_where() -> None:
    verdict = causality_perturbation(OffByOne(), Conditions(input_scales=(1.0,)))
    assert re.fullmatch(
        r"causality_perturbation: 0\.\d+, 1e-12 allowed; output (\d) moves with the inputs after \1; "
        r"T=\d, x of scale 1, parameters as they are, evaluation mode",
        str(verdict),
    )

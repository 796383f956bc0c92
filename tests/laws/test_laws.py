"""Every strategy in conf/agg obeys every law, and every law rejects the strategies that break it."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor, nn

from trilab.agg.base import Aggregation, lower_triangle
from trilab.laws import (
    CONSTRUCTION_LAWS,
    LAWS,
    Conditions,
    Law,
    Make,
    Setting,
    batch,
    causality_gradient,
    causality_perturbation,
    causality_prefix,
    compiled,
    gradient,
    loop,
    rounding,
    seed,
    shape,
    state_dict,
    stream,
    table,
    triangle,
)
from trilab.model import LanguageModel

from . import controls
from .controls import CONTROLS, DividedByT, FiniteMask, MaskLostForOneHead, NoMask, OffByOne, UnseededDraw

FOLDER = Path(__file__).parents[2] / "conf" / "agg"
STRATEGIES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
MODEL = {"n_head": 2, "dropout": 0.1}
ALL = {law.__name__: law for law in (*LAWS, *CONSTRUCTION_LAWS)}
QUICK = {name: law for name, law in ALL.items() if law is not compiled}
V = 11


def built(name: str, n_embd: int = 4, block_size: int = 8) -> Aggregation:
    """The strategy as its YAML says, in a model with two heads and dropout."""
    config = OmegaConf.create({"model": MODEL, "agg": OmegaConf.load(FOLDER / f"{name}.yaml")})
    aggregation = instantiate(config.agg, n_embd=n_embd, block_size=block_size)
    assert isinstance(aggregation, Aggregation)
    return aggregation


def projected(name: str) -> Aggregation:
    aggregation = built(name)
    aggregation.project(value=True, output=True)
    return aggregation


def gpt(make_agg: Any, seed: int = 0, **settings: Any) -> LanguageModel:
    around = {"n_layer": 2, "norm": True, "residual": True, "mlp": True, "value": True, "output": True}
    return LanguageModel(V, 8, make_agg, **{"n_embd": 4, "seed": seed, "init_std": 0.02, **around, **settings})


def verdict_of(law: str, make: Make) -> Any:
    if ALL[law] in CONSTRUCTION_LAWS:
        return ALL[law](make)
    torch.manual_seed(0)
    return ALL[law](make(0))


@pytest.mark.parametrize("law", ALL)
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_obeys_every_law(name: str, law: str) -> None:
    verdict = verdict_of(law, lambda _: built(name))
    assert verdict.passed, str(verdict)


@pytest.mark.parametrize("law", QUICK)
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_obeys_every_law_between_projections(name: str, law: str) -> None:
    verdict = verdict_of(law, lambda _: projected(name))
    assert verdict.passed, str(verdict)


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_gives_the_same_under_inductor(name: str) -> None:
    verdict = compiled(projected(name), backend="inductor")
    assert verdict.passed, str(verdict)


@pytest.mark.parametrize("block_size", [1, 2, 7])
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_keeps_the_laws_of_time_at_other_block_sizes(name: str, block_size: int) -> None:
    torch.manual_seed(0)
    for law in (shape, causality_prefix, causality_perturbation, stream, gradient):
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


def test_laws_leave_the_subject_and_the_random_state_as_they_were() -> None:
    for subject in (built("attention"), gpt(NoMask, n_layer=1)):
        before, state = {k: v.clone() for k, v in subject.state_dict().items()}, torch.get_rng_state()
        for law in LAWS:
            law(subject)
        assert subject.training
        assert torch.equal(torch.get_rng_state(), state)
        assert all(torch.equal(before[key], value) for key, value in subject.state_dict().items())
        assert all(parameter.grad is None for parameter in subject.parameters())
    for law in (seed, state_dict):
        law(lambda _: built("attention"))
        assert torch.equal(torch.get_rng_state(), state)


# What is broken on purpose


@pytest.mark.parametrize("name", CONTROLS)
def test_a_broken_strategy_is_rejected_by_the_laws_it_breaks_and_no_other(name: str) -> None:
    control = getattr(controls, name)
    laws = ALL if "compiled" in CONTROLS[name] else QUICK  # the strategies show that `compiled` lets what is right pass
    assert {law for law in laws if not verdict_of(law, lambda _: control(4, 8)).passed} == CONTROLS[name]


def test_every_control_says_what_is_broken_in_one_line() -> None:
    for name in CONTROLS:
        doc = getattr(controls, name).__doc__
        assert doc
        assert "\n" not in doc


class OwnDropout(controls.Attending):
    """Drops weights without a module, in training mode."""

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        weights = F.dropout(self.weights(x), 0.2, self.training)[:, 0]
        return (weights @ v.to(weights.dtype)).to(v.dtype)


class OwnNoise(Aggregation):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        y = v.cumsum(1)
        return y + 0.1 * torch.randn_like(y) if self.training else y


class LibraryAttention(Aggregation):
    """torch's attention, which drops by itself."""

    def __init__(self, n_embd: int, block_size: int) -> None:
        super().__init__(n_embd, block_size)
        self.maps = nn.Linear(n_embd, 3 * n_embd, bias=False)

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        q, k, u = self.maps(x).chunk(3, -1)
        y = F.scaled_dot_product_attention(q, k, u, dropout_p=0.1 * self.training, is_causal=True)
        return y + v


class Attention32(controls.Attending):
    """Affinities, softmax and averages in float32, whatever the input is."""

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        q, k = self.query(x).float(), self.key(x).float()
        affinities = (q @ k.mT).masked_fill(~lower_triangle(x.shape[1]).to(x.device), -torch.inf)
        return (affinities.softmax(-1) @ v.float()).to(v.dtype)


class FFT32(Aggregation):
    """A right convolution by FFT in float32."""

    def __init__(self, n_embd: int, block_size: int) -> None:
        super().__init__(n_embd, block_size)
        self.filter = nn.Parameter(torch.ones(block_size, n_embd))

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        time = v.shape[1]
        u, h = (torch.fft.rfft(z.float(), n=2 * time, dim=-2) for z in (v, self.filter[:time]))
        return torch.fft.irfft(u * h, n=2 * time, dim=1)[:, :time].to(v.dtype)


HONEST = [OwnDropout, OwnNoise, LibraryAttention, Attention32, FFT32]


@pytest.mark.parametrize("law", ALL)
@pytest.mark.parametrize("honest", HONEST)
def test_what_draws_its_own_numbers_or_computes_in_float32_obeys_every_law(honest: type[Aggregation], law: str) -> None:
    verdict = verdict_of(law, lambda _: honest(4, 8))
    assert verdict.passed, str(verdict)


@pytest.mark.parametrize("law", QUICK)
@pytest.mark.parametrize("honest", HONEST)
def test_what_draws_its_own_numbers_or_computes_in_float32_obeys_every_law_in_a_model(
    honest: type[Aggregation], law: str
) -> None:
    verdict = verdict_of(law, partial(gpt, honest))
    assert verdict.passed, str(verdict)


@pytest.mark.parametrize("honest", [Attention32, FFT32])
def test_a_verdict_says_so_where_a_strategy_computes_in_float32(honest: type[Aggregation]) -> None:
    for law in (causality_prefix, causality_perturbation, stream):
        assert str(law(honest(4, 8))).endswith("allowed, computed in float32")
    assert "float32" not in str(causality_prefix(built("attention")))
    leak = str(causality_perturbation(controls.LeakInFloat32()))
    assert leak.endswith("mode, computed in float32")


def test_scrambled_rows_are_right_for_a_batch_of_one() -> None:
    alone = Conditions(batch_size=1)
    assert causality_prefix(controls.ReshapedBack(), alone).passed
    assert causality_perturbation(controls.ReshapedBack(), alone).passed


def test_a_gradient_that_reaches_the_future_is_told_with_output_and_input() -> None:
    verdict = causality_gradient(controls.GradientLeak(), Conditions(input_scales=(1.0,), cuts=(3,)))
    assert re.match(r"the gradient of output 3 reaches input [4-7];", verdict.where)
    assert (verdict.position, verdict.cut) == (3, 3)
    assert causality_prefix(controls.GradientLeak()).passed
    assert causality_perturbation(controls.GradientLeak()).passed


def test_a_verdict_says_whether_there_was_anything_to_compare() -> None:
    assert not causality_gradient(gpt(NoMask)).compared  # tokens have no gradient
    assert not table(controls.MaxOverTime()).compared
    assert table(built("attention")).compared
    assert causality_gradient(built("attention")).compared


def test_not_a_number_is_never_a_pass() -> None:
    class Undefined(Aggregation):
        def mix(self, x: Tensor, v: Tensor) -> Tensor:
            return v * torch.nan

    for law in (causality_prefix, causality_perturbation, causality_gradient, batch, stream):
        assert not law(Undefined(4, 8)).passed


def test_a_finite_mask_passes_at_ordinary_scales_and_is_caught_at_large_ones() -> None:
    ordinary = Conditions(parameter_scales=(None, 1.0), input_scales=(1.0,))
    assert causality_perturbation(FiniteMask(), ordinary).passed
    assert not causality_perturbation(FiniteMask()).passed


def test_a_verdict_says_which_output_moves_with_which_inputs_and_where() -> None:
    verdict = causality_perturbation(OffByOne(), Conditions(input_scales=(1.0,), training=(True,)))
    assert re.fullmatch(
        r"causality_perturbation: 0\.\d+, 5\.\d+e-14 allowed; output (\d) moves with the inputs after \1; "
        r"T=\d, x of scale 1, parameters as they are, training mode",
        str(verdict),
    )
    assert verdict.position == verdict.cut
    assert verdict.setting is not None
    assert verdict.setting == Setting(verdict.setting.time, 1.0, None, True)


@pytest.mark.parametrize("law", [causality_prefix, causality_perturbation])
def test_only_the_asked_cuts_are_tried(law: Law) -> None:
    class LeaksAtThree(NoMask):
        def mask(self, time: int) -> Tensor:
            mask = torch.ones(time, time, dtype=torch.bool).tril()
            mask[3:4] = True
            return mask

    assert law(LeaksAtThree(), Conditions(cuts=(0, 1, 2))).passed  # type: ignore[call-arg]
    verdict = law(LeaksAtThree(), Conditions(cuts=(1, 3, 100)))  # type: ignore[call-arg]
    assert (verdict.position, verdict.cut) == (3, 3)


def test_many_cuts_are_tried_in_pieces_with_the_same_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    some = Conditions(parameter_scales=(None, 1e5), training=(False,))
    monkeypatch.setattr("trilab.laws.causality._AT_ONCE", 1)
    assert not causality_perturbation(OffByOne(), some).passed
    assert causality_perturbation(built("attention"), some).passed


class PaddedFFT(Aggregation):
    """A right convolution by FFT, with a leak of a given share put in by hand."""

    def __init__(self, leak: float) -> None:
        super().__init__(8, 64)
        self.filter = nn.Parameter(torch.ones(64, 8))
        self.leak = leak

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        time = v.shape[1]
        product = torch.fft.rfft(v, n=2 * time, dim=1) * torch.fft.rfft(self.filter[:time], n=2 * time, dim=0)
        return torch.fft.irfft(product, n=2 * time, dim=1)[:, :time] + self.leak * v.mean(1, keepdim=True)


def test_the_rounding_of_an_fft_is_no_leak_and_a_leak_of_a_tenth_of_a_billionth_is() -> None:
    verdict = causality_perturbation(PaddedFFT(0.0))
    assert 0 < verdict.worst < verdict.allowed
    assert not causality_perturbation(PaddedFFT(1e-10)).passed


def test_what_is_rounding_grows_with_the_dtype_s_eps_and_the_length() -> None:
    assert rounding(torch.float32, 8) == 64 * 2**-23 * 4
    assert rounding(torch.bfloat16, 8) / rounding(torch.float32, 8) == 2**16


def test_a_single_token_may_leave_affinities_without_a_gradient_but_not_without_a_part() -> None:
    assert gradient(built("attention", block_size=1)).passed
    assert not gradient(controls.UnusedParameter(4, 1)).passed


# Whole models


@pytest.mark.parametrize("name", ["attention", "none", "softmax", "table", "window"])
@pytest.mark.parametrize("law", QUICK)
def test_a_whole_model_obeys_every_law(name: str, law: str) -> None:
    verdict = verdict_of(law, partial(gpt, partial(built_for_model, name)))
    assert verdict.passed, str(verdict)


def built_for_model(name: str, n_embd: int, block_size: int) -> Aggregation:
    return built(name, n_embd, block_size)


@pytest.mark.parametrize(
    ("control", "laws"),
    [
        (NoMask, {"causality_prefix", "causality_perturbation", "triangle", "loop", "stream"}),
        (MaskLostForOneHead, {"causality_prefix", "causality_perturbation", "triangle", "loop", "stream"}),
        (DividedByT, {"causality_prefix", "stream"}),
        (controls.BatchMean, {"batch", "table", "loop", "stream"}),
        (controls.ForgetfulState, {"stream"}),
        (UnseededDraw, {"seed"}),
        (controls.BufferNotSaved, {"state_dict"}),
        (controls.UnusedParameter, {"gradient"}),
    ],
)
def test_one_broken_layer_is_found_in_a_whole_model(control: type[Aggregation], laws: set[str]) -> None:
    def make(seed: int) -> LanguageModel:
        return gpt([partial(built_for_model, "softmax"), control], seed)

    assert {law for law in QUICK if not verdict_of(law, make).passed} == laws


def test_a_whole_model_gives_the_same_when_compiled() -> None:
    assert compiled(gpt(partial(built_for_model, "attention"), n_layer=1)).passed


def test_a_model_of_one_character_has_nothing_to_change() -> None:
    assert causality_perturbation(LanguageModel(1, 8, NoMask)).passed


def test_a_table_of_a_whole_model_names_its_worst_setting() -> None:
    verdict = triangle(gpt(NoMask))
    assert verdict.what == "weight above the diagonal"
    assert str(verdict.setting).startswith(f"T={verdict.setting.time}, tokens, ")


def test_a_strategy_without_a_table_has_none_to_judge() -> None:
    for law in (table, loop, triangle):
        assert law(controls.MaxOverTime()).what == "nothing to compare"

"""What is about to train is put before the laws of causality, and refused with what leaks."""

import json
import pickle
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

from trilab import gate
from trilab.agg.attention import SelfAttention
from trilab.agg.base import Aggregation
from trilab.agg.cumsum import CumsumMean
from trilab.agg.gru import GRU
from trilab.agg.random import RandomWeights
from trilab.errors import BadInput
from trilab.gate import SPOTS, Leak, examine, examine_path
from trilab.model import LanguageModel

from .laws import controls

FOLDER = Path(__file__).parents[1] / "conf" / "agg"
STRATEGIES = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def model(*make_agg: Callable[[int, int], Aggregation], block_size: int = 8, n_layer: int = 1, **knobs: Any) -> Any:
    """A GPT of one thin layer with all that could hide a leak: norm, projections, residual, dropout."""
    torch.manual_seed(0)
    settings = {"norm": True, "residual": True, "mlp": True, "value": True, "output": True, "dropout": 0.1} | knobs
    return LanguageModel(11, block_size, make_agg, n_embd=4, n_layer=n_layer, init_std=0.02, **settings)


def refused(model: LanguageModel) -> Leak:
    with pytest.raises(Leak) as caught:
        examine(model)
    return caught.value


# control → what it looks like, and whether this output may move with this input
LEAKS: dict[str, tuple[str, Callable[[int, int], bool]]] = {
    "NoMask": ("no mask", lambda t, s: s > t),
    "OffByOne": ("mask off by one", lambda t, s: s == t + 1),
    "TransposedMask": ("transposed mask", lambda t, s: s > t),
    "MaskLostInTraining": ("mask lost in training mode", lambda t, s: s > t),
    "FiniteMask": ("finite mask value", lambda t, s: s > t),
    "MaskLostForOneHead": ("mask lost for some heads: channels 2-3 of 4", lambda t, s: s > t),
    "MaskScrambledOverHeads": ("mask scrambled over heads", lambda t, s: s > t),
    "LeakPastHalf": ("only from position 4 on", lambda t, s: s > t >= 4),
    "WrongAxis": ("softmax over the wrong axis", lambda t, s: s > t),
    "MaxOverTime": ("maximum over all time", lambda t, s: s > t),
    "LeakAtLargeScale": ("only at large scale", lambda t, s: s > t),
    "NormalisedOverTime": ("normalised over all time", lambda t, s: s > t),
    "CircularFFT": ("convolution by FFT without zero padding", lambda t, s: s > t),
}


@pytest.mark.parametrize("name", LEAKS)
def test_a_model_with_a_broken_strategy_is_refused_with_what_leaks(name: str) -> None:
    leak = refused(model(getattr(controls, name)))
    cause, may_leak = LEAKS[name]
    found = re.match(
        rf"{name} \(layer 0\) sees the future: output (\d) moves with input (\d), by [\d.e-]+ of", leak.line
    )
    assert found, leak.line
    assert may_leak(int(found[1]), int(found[2]))
    assert f"Looks like: {cause}" in leak.line
    assert "set check.causality=warn (or off)" in leak.line
    assert "XX" in leak.picture.plain


def test_a_strategy_that_divides_by_the_length_is_refused_by_the_prefix_form() -> None:
    leak = refused(model(controls.DividedByT))
    assert re.search(r"output \d of \d is another when the text ends there, by [\d.]+ of the largest output", leak.line)
    assert "Looks like: divided by T" in leak.line
    assert "XX" not in leak.picture.plain


def test_the_refusal_says_at_which_scale_and_in_which_mode() -> None:
    assert (
        "(T=8, x of scale 10000, parameters of scale 100000, training mode)" in refused(model(controls.FiniteMask)).line
    )
    assert "x of scale 1, parameters as they are, training mode)" in refused(model(controls.MaskLostInTraining)).line


def test_the_refusal_is_one_line_with_the_map_of_the_leaking_cells_below_it() -> None:
    leak = refused(model(controls.OffByOne))
    assert "\n" not in leak.line
    assert str(leak) == f"{leak.line}\n{leak.picture.plain}"
    rows = [line[9:] for line in leak.picture.plain.splitlines() if re.match(r"(output| +) ?\d ", line)]
    assert [row.index("XX") // 2 for row in rows[:-1]] == list(range(1, len(rows)))
    assert "XX" not in rows[-1]


def test_a_refusal_travels_between_processes() -> None:
    leak = refused(model(controls.NoMask))
    again = pickle.loads(pickle.dumps(leak))
    assert (again.line, str(again)) == (leak.line, str(leak))


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_passes_at_every_position(name: str) -> None:
    config = OmegaConf.create({"model": {"n_head": 2, "dropout": 0.1}, "agg": OmegaConf.load(FOLDER / f"{name}.yaml")})
    honest = model(lambda n_embd, block_size: instantiate(config.agg, n_embd=n_embd, block_size=block_size))
    coverage = examine(honest, seconds=0.1, model_seconds=0.1)
    assert [part.positions for part in coverage.parts] == [8, 8]
    assert {count for part in coverage.parts for count in part.tried.values()} == {8}


class OneLeak(Aggregation):
    """Output 37 of 64 takes a little of input 38, nothing else leaks."""

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        y = v.cumsum(1)
        if v.shape[1] > 38:
            y[:, 37] += 1e-3 * v[:, 38]
        return y


def test_a_single_leaking_cell_is_found_among_all_positions() -> None:
    leak = refused(model(OneLeak, block_size=64))
    assert "output 37 moves with input 38" in leak.line
    assert leak.picture.plain.count("XX moves") == 1


def test_a_leak_past_half_of_a_long_block_is_found() -> None:
    assert "Looks like: only from position 32 on" in refused(model(controls.LeakPastHalf, block_size=64)).line


class Spy(Aggregation):
    """The past's sum, which remembers what it was asked: lengths, and where whole inputs differ from the first one."""

    lengths: ClassVar[set[int]] = set()
    cuts: ClassVar[set[int]] = set()
    first: ClassVar[Tensor | None] = None

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            Spy.lengths.add(x.shape[1])
            if x.shape[1] == self.block_size:
                Spy.first = x[0] if Spy.first is None else Spy.first
                differing = (x != Spy.first).any(-1).long()  # (B, T)
                Spy.cuts |= {int(row.argmax()) - 1 for row in differing if row.any()}
        return v.cumsum(1)


@pytest.fixture
def spy() -> Iterator[type[Spy]]:
    Spy.lengths, Spy.cuts, Spy.first = set(), set(), None
    yield Spy
    Spy.first = None


def test_the_positions_that_the_coverage_counts_were_tried_in_both_forms(spy: type[Spy]) -> None:
    coverage = examine(model(spy, block_size=20, value=False, output=False), seconds=0, model_seconds=0)
    strategy, whole = coverage.parts
    assert list(strategy.tried.values()) == [20, SPOTS, SPOTS]
    assert list(whole.tried.values()) == [SPOTS]
    assert spy.lengths >= set(range(1, 21))
    assert spy.cuts >= set(range(19))


def test_without_time_some_positions_of_the_next_settings_are_tried(spy: type[Spy]) -> None:
    coverage = examine(model(SelfAttention, block_size=20), seconds=0, model_seconds=0)
    assert list(coverage.parts[0].tried.items()) == [
        ("T=20, x of scale 1, parameters as they are, training mode", 20),
        ("T=20, x of scale 10000, parameters of scale 100000, training mode", SPOTS),
        ("T=20, x of scale 1, parameters of scale 1, training mode", SPOTS),
    ]
    assert str(coverage).startswith(
        "causality: 1 × attention at 20 of 20 positions in 1 setting, at 8 or more in 2 more, "
        "the model at 8 of 20 positions in 1 setting; "
    )


def test_the_coverage_in_words_and_as_json() -> None:
    coverage = examine(model(CumsumMean, n_layer=2, value=False, output=False), seconds=60, model_seconds=60)
    assert re.fullmatch(
        r"causality: 2 × cumsum at 8 of 8 positions in 4 settings, the model at 8 of 8 positions in 3 settings; "
        r"\d+\.\d s",
        str(coverage),
    )
    written = json.loads(json.dumps(coverage.as_dict()))
    part = {"name": "cumsum", "layers": [0, 1], "positions": 8, "tried": None, "unclear": []}
    assert written["parts"][0] | {"tried": None} == part
    assert written["parts"][0]["tried"]["T=8, x of scale 10000, parameters as they are, evaluation mode"] == 8


def test_layers_with_other_knobs_classes_or_frozen_numbers_are_examined_each() -> None:
    one_head, two_heads = SelfAttention, partial(SelfAttention, n_head=2)
    pattern = [one_head, two_heads, one_head, RandomWeights, RandomWeights, CumsumMean]
    coverage = examine(model(*pattern, n_layer=6), seconds=0, model_seconds=0)
    assert [part.layers for part in coverage.parts] == [(0, 2), (1,), (3,), (4,), (5,), ()]


def test_a_leak_in_a_later_layer_is_found_and_the_layer_named() -> None:
    assert refused(model(CumsumMean, controls.NoMask, n_layer=3)).line.startswith("NoMask (layer 1) sees the future")
    assert refused(model(controls.NoMask, n_layer=3)).line.startswith("NoMask (layers 0, 1, 2) sees the future")


class MeanAdded(LanguageModel):
    """Adds the mean of all embeddings: a leak that no strategy is to blame for."""

    def embed(self, tokens: Tensor) -> Tensor:
        x = super().embed(tokens)
        return x + x.mean(1, keepdim=True)


def test_a_leak_around_the_strategies_is_found_in_the_whole_model() -> None:
    leak = refused(MeanAdded(11, 8, CumsumMean, n_embd=4))
    assert re.match(r"the model sees the future: output \d moves with input \d, by .* \(T=\d, tokens, ", leak.line)
    assert "Looks like: a leak around the strategies" in leak.line


@pytest.mark.parametrize("training", [True, False])
def test_model_and_random_state_stay_as_they_are(training: bool) -> None:
    examined = model(SelfAttention, n_layer=2).train(training)
    before, state = {k: v.clone() for k, v in examined.state_dict().items()}, torch.get_rng_state()
    examine(examined)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(part.training == training for part in examined.modules())
    assert all(torch.equal(before[key], value) for key, value in examined.state_dict().items())
    assert all(parameter.grad is None and parameter.dtype == torch.float32 for parameter in examined.parameters())


class OnlyFloat32(Aggregation):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return torch.ones(x.shape[1], x.shape[1]).tril() @ v


def test_what_fails_when_it_is_examined_raises_its_own_error_with_a_note() -> None:
    with pytest.raises(RuntimeError, match="expected") as caught:
        examine(model(OnlyFloat32))
    (note,) = caught.value.__notes__
    assert note == (
        "OnlyFloat32 was being examined for causality: it must take float64 and every 1 ≤ T ≤ block_size. "
        "check.causality=off trains without that."
    )


def test_what_does_not_give_one_output_for_each_input_is_refused() -> None:
    with pytest.raises(BadInput, match=r"LastTokenOnly \(layer 0\) does not give one output for each input: .* gives "):
        examine(model(controls.LastTokenOnly))


class ReshapedBack(Aggregation):
    """Right for one row; with more the tokens of one end up in another, (T, B, C) being reshaped, not transposed."""

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v.transpose(0, 1).cumsum(0).reshape(v.shape)


def test_a_strategy_that_mixes_rows_of_the_batch_is_refused() -> None:
    leak = refused(model(ReshapedBack))
    assert "ReshapedBack" in leak.line
    assert "mixes rows of the batch" in leak.line or "sees the future" in leak.line


def test_a_strategy_that_learns_from_the_future_is_refused_though_its_outputs_are_causal() -> None:
    leak = refused(model(controls.GradientLeak))
    assert re.match(r"GradientLeak \(layer 0\) learns from the future: ", leak.line)
    assert "XX" in leak.picture.plain


def test_a_leak_in_float32_only_is_refused_with_its_map() -> None:
    leak = refused(model(controls.LeakInFloat32))
    assert "computed in float32" in leak.line
    assert "XX" in leak.picture.plain


def test_layers_of_gru_are_alike() -> None:
    assert examine(model(GRU, n_layer=3)).parts[0].layers == (0, 1, 2)


class Overflows(CumsumMean):
    """Causal, but infinite where x is large."""

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v.exp().cumsum(1).log()


def test_a_strategy_that_is_not_finite_at_large_scale_is_no_leak_and_the_coverage_says_where() -> None:
    (strategy, whole) = examine(model(Overflows)).parts
    assert strategy.unclear
    assert all("x of scale 10000" in setting for setting in strategy.unclear)
    assert "not finite in" in str(strategy)
    assert whole.tried


def test_how_far_it_has_come_is_told_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(gate, "PAUSE", 0.0)
    examine(model(SelfAttention, block_size=20), seconds=0, model_seconds=0, tell=said.append)
    assert said[0] == (
        "causality: attention at 8 of 20 positions; T=20, x of scale 1, parameters as they are, training mode"
    )
    assert len(said) == 2  # at 8 and at 16


# The way in which the model is really run


class LeaksInHalf(CumsumMean):
    """Causal in float64; where products are in bfloat16 the last input is added."""

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        y = super().mix(x, v)
        return y + v[:, -1:] if torch.is_autocast_enabled("cpu") else y


def in_bfloat16(model: LanguageModel) -> Callable[[Tensor], Tensor]:
    def forward(tokens: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y: Tensor = model(tokens)
        return y

    return forward


TOKENS = torch.arange(16).view(2, 8) % 11


@pytest.mark.parametrize("name", ["attention", "cumsum", "gru", "long_conv", "none"])
def test_an_honest_model_passes_as_it_will_train(name: str) -> None:
    config = OmegaConf.create({"model": {"n_head": 2, "dropout": 0.1}, "agg": OmegaConf.load(FOLDER / f"{name}.yaml")})
    honest = model(lambda n_embd, block_size: instantiate(config.agg, n_embd=n_embd, block_size=block_size), n_layer=2)
    state = torch.get_rng_state()
    for forward, dtype in ((in_bfloat16(honest), torch.bfloat16), (honest, torch.float32)):
        coverage = examine_path(forward, TOKENS, 11, dtype)
        assert [list(part.tried.values()) for part in coverage.parts] == [[8]]
    assert torch.equal(torch.get_rng_state(), state)


def test_a_leak_of_one_precision_only_passes_the_gate_and_is_refused_as_it_will_train() -> None:
    leaking = model(LeaksInHalf)
    examine(leaking)
    with pytest.raises(Leak) as caught:
        examine_path(in_bfloat16(leaking), TOKENS, 11, torch.bfloat16, name="the model in bf16-mixed")
    assert re.match(
        r"the model in bf16-mixed sees the future: output \d moves with input 7, by [\d.]+ of the largest output "
        r"\(T=8, tokens, bfloat16 on cpu\)\. Mend it",
        caught.value.line,
    )
    assert caught.value.picture.plain.count("XX") > 1


def test_of_a_way_that_never_gives_the_same_twice_nothing_is_said() -> None:
    calls = iter(range(1000))
    coverage = examine_path(lambda tokens: tokens[..., None] + float(next(calls)), TOKENS, 11, torch.float32)
    assert list(coverage.parts[0].tried.values()) == [0]


def test_coverages_add_up() -> None:
    honest = model(CumsumMean)
    both = examine(honest) + examine_path(honest, TOKENS, 11, torch.float32)
    assert [part.name for part in both.parts] == ["cumsum", "the model", "the model as it will train"]
    assert "the model as it will train at 8 of 8 positions in 1 setting; " in str(both)

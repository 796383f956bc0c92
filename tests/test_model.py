"""The language model: its knobs, its sizes, what it refuses."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from trilab.agg.attention import SelfAttention
from trilab.agg.base import Aggregation
from trilab.agg.cumsum import CumsumMean
from trilab.agg.loop import LoopMean
from trilab.agg.none import Identity
from trilab.agg.softmax import SoftmaxMean
from trilab.build import build_model
from trilab.config import read
from trilab.errors import BadInput
from trilab.model import LanguageModel

from .test_config import composed

V, T, C = 11, 8, 4


def build(make_agg: Any = Identity, **settings: Any) -> LanguageModel:
    return LanguageModel(V, T, make_agg, **{"n_embd": C, **settings})


def ids(batch: int = 2, time: int = T) -> Tensor:
    return torch.randint(V, (batch, time), generator=torch.Generator().manual_seed(0))


def size(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# V = 65, T = 8, C = 32: token table V·C, position table T·C, lm_head C·V + V
AROUND = 65 * 32 + 8 * 32 + 32 * 65 + 65
QKV = 3 * 32 * 32
OUTPUT = 32 * 32 + 32
WIDE_MLP = 32 * 128 + 128 + 128 * 32 + 32


@pytest.mark.parametrize(
    ("rung", "n_params"),
    [
        ("1_bigram", 65 * 65),
        ("2_one_head", AROUND + QKV),
        ("3_four_heads", AROUND + QKV),
        ("4_feed_forward", AROUND + QKV + 32 * 32 + 32),
        ("5_residual", AROUND + 3 * (QKV + OUTPUT + WIDE_MLP)),
        ("6_layer_norm", AROUND + 3 * (QKV + OUTPUT + WIDE_MLP + 4 * 32) + 2 * 32),
    ],
)
def test_every_rung_of_the_lecture_has_the_parameters_counted_by_hand(rung: str, n_params: int) -> None:
    model = build_model(read(composed(f"experiment=lecture/{rung}")), 65)
    assert size(model) == n_params


def test_the_lecture_s_larger_model_has_its_209_729_parameters() -> None:
    config = read(composed("model=gpt", "agg=attention", "model.n_layer=4", "model.n_embd=64", "data.block_size=32"))
    assert size(build_model(config, 65)) == 209_729


def test_with_lm_head_off_the_embedding_is_the_table_of_logits() -> None:
    bigram = build(lm_head=False, positions=False, n_embd=None)
    assert [(name, tuple(p.shape)) for name, p in bigram.named_parameters()] == [
        ("token_embedding_table.weight", (V, V))
    ]
    assert torch.equal(bigram(ids()), bigram.token_embedding_table.weight[ids()])


def test_flat_is_embedding_plus_position_then_aggregation_then_lm_head() -> None:
    model = build(SoftmaxMean)
    x = model.token_embedding_table(ids()) + model.position_embedding_table.weight
    mean = x.cumsum(1) / torch.arange(1, T + 1)[:, None]
    assert torch.allclose(model(ids()), model.lm_head(mean), atol=1e-6)


GPT = {"n_layer": 2, "norm": True, "residual": True, "mlp": True, "value": True, "output": True}


@pytest.mark.parametrize(
    ("knob", "without", "gone"),
    [
        ("positions", False, {"position_embedding_table.weight"}),
        ("norm", False, {f"{n}.{p}" for n in ("norm", "norm_agg", "norm_mlp") for p in ("weight", "bias")}),
        ("residual", False, set()),
        ("mlp", False, {f"{n}.{p}" for n in ("norm_mlp", "mlp.expand", "mlp.contract") for p in ("weight", "bias")}),
        ("mlp_width", 0, {"mlp.contract.weight", "mlp.contract.bias"}),
        ("value", False, {"agg.value.weight"}),
        ("output", False, {"agg.output.weight", "agg.output.bias"}),
        ("n_layer", 1, set()),
    ],
)
def test_each_knob_takes_away_its_own_parameters_and_changes_the_output(
    knob: str, without: Any, gone: set[str]
) -> None:
    def names(model: nn.Module) -> set[str]:
        return {name.removeprefix("blocks.0.").removeprefix("blocks.1.") for name, _ in model.named_parameters()}

    whole, part = build(SelfAttention, **GPT), build(SelfAttention, **{**GPT, knob: without})
    assert names(whole) - names(part) == gone
    assert names(part) <= names(whole)
    assert not torch.allclose(whole(ids()), part(ids()))


def test_the_final_norm_stands_before_lm_head() -> None:
    model = build(norm=True, residual=True)
    (block,) = model.blocks
    assert torch.allclose(model(ids()), model.lm_head(nn.functional.layer_norm(block(model.embed(ids())), (C,))))


@pytest.mark.parametrize("std", [0.0, 0.02, 0.5])
def test_init_std_is_the_spread_of_the_model_s_own_matrices_and_zeroes_its_biases(std: float) -> None:
    model = build(SelfAttention, n_embd=64, init_std=std, **GPT)
    own = [
        *("token_embedding_table", "position_embedding_table", "lm_head"),
        *(f"blocks.1.{part}" for part in ("mlp.expand", "mlp.contract", "agg.value", "agg.output")),
    ]
    for name in own:
        layer = model.get_submodule(name)
        assert abs(layer.weight.std().item() - std) <= 0.1 * std, name
        if isinstance(layer, nn.Linear) and layer.bias is not None:
            assert not layer.bias.any(), name
    assert torch.equal(model.blocks[0].norm_agg.weight, torch.ones(64))


def test_init_std_leaves_the_strategy_s_own_parameters_alone() -> None:
    free, set_ = (build(SelfAttention, **GPT, init_std=std) for std in (None, 0.5))
    for name in ("query", "key"):
        assert torch.equal(*(model.blocks[1].agg.get_submodule(name).weight for model in (free, set_)))


def test_dropout_drops_in_training_only() -> None:
    model = build(**{**GPT, "dropout": 0.5})
    torch.manual_seed(0)
    assert not torch.equal(model(ids()), model(ids()))
    model.eval()
    assert torch.equal(model(ids()), model(ids()))


def test_shorter_inputs_are_read_from_position_0() -> None:
    model = build(SoftmaxMean)
    assert torch.allclose(model(ids()[:, :3]), model(ids())[:, :3], atol=1e-6)


@pytest.mark.parametrize("positions", [True, False])
def test_more_characters_than_block_size_are_refused_with_both_numbers(positions: bool) -> None:
    with pytest.raises(ValueError, match="9 characters are more than block_size=8"):
        build(positions=positions)(ids(time=9))


def test_every_strategy_s_table_is_shown_layer_by_layer_as_the_layer_sees_it() -> None:
    model = build(SelfAttention, **GPT)
    model.eval()
    first, second = model.weights(ids())
    assert first is not None
    assert second is not None
    assert first.shape == second.shape == (2, 1, T, T)
    block = model.blocks[0]
    x = model.embed(ids())
    assert torch.equal(first, block.agg.weights(block.norm_agg(x)))
    x = block(x)
    assert torch.equal(second, model.blocks[1].agg.weights(model.blocks[1].norm_agg(x)))
    assert not first.requires_grad


def test_a_strategy_without_a_table_shows_none() -> None:
    class Last(Aggregation):
        def mix(self, x: Tensor, v: Tensor) -> Tensor:
            return v

    assert build(Last, n_layer=2).weights(ids()) == [None, None]


def test_two_ways_to_one_table_are_one_model() -> None:
    loop, softmax = build(LoopMean, **GPT), build(SoftmaxMean, **GPT)
    assert torch.allclose(loop(ids()), softmax(ids()), atol=1e-6)


def test_a_pattern_of_strategies_is_repeated_over_the_layers() -> None:
    model = build([SoftmaxMean, SoftmaxMean, SelfAttention], n_layer=6)
    kinds = [type(block.agg) for block in model.blocks]
    assert kinds == [SoftmaxMean, SoftmaxMean, SelfAttention] * 2


def test_layers_of_a_pattern_start_as_they_do_in_a_model_of_that_strategy_alone() -> None:
    mixed, alone = (build(agg, n_layer=3) for agg in ([SoftmaxMean, SelfAttention], SelfAttention))
    for name, value in mixed.blocks[1].state_dict().items():
        assert torch.equal(value, alone.blocks[1].state_dict()[name]), name


@pytest.mark.parametrize("settings", [{}, GPT, {**GPT, "positions": False}])
@pytest.mark.parametrize("agg", [SoftmaxMean, SelfAttention, CumsumMean])
def test_one_step_after_another_gives_the_logits_of_the_whole_text(agg: Any, settings: dict[str, Any]) -> None:
    model = build(agg, **settings).double().eval()
    state, logits = model.init_state(2), []
    for tokens in ids().unbind(1):
        row, state = model.step(tokens, state)
        logits.append(row)
    assert torch.allclose(torch.stack(logits, 1), model(ids()), rtol=0, atol=1e-12)
    assert sum(part.numel() for carried in state[1] for part in carried) == 2 * model.state_size(T)


def test_a_step_past_block_size_is_refused_with_both_numbers_unless_the_model_is_unbounded() -> None:
    for model in (build(CumsumMean), build(SoftmaxMean, positions=False)):
        state = model.init_state(2)
        for _ in range(T):
            _, state = model.step(ids()[:, 0], state)
        with pytest.raises(ValueError, match="9 characters are more than block_size=8"):
            model.step(ids()[:, 0], state)
    unbounded = build(CumsumMean, positions=False)
    unbounded.step(ids()[:, 0], (T, unbounded.init_state(2)[1]))


@pytest.mark.parametrize("settings", [{}, GPT, {"lm_head": False, "n_embd": None}, {**GPT, "mlp_width": 0}])
@pytest.mark.parametrize("agg", [SoftmaxMean, SelfAttention])
def test_the_operations_of_a_model_are_those_that_torch_counts(agg: Any, settings: dict[str, Any]) -> None:
    model = build(agg, **settings)
    # torch does not count what its fused kernel for CPUs does
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as forward:
        loss = model(ids(batch=1)).sum()
    assert model.flops(T).forward == forward.get_total_flops()
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    assert model.flops(T).backward == backward.get_total_flops()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n_embd": 0}, r"model\.n_embd=0 must be at least 1"),
        ({"n_embd": None}, r"model\.n_embd=null"),
        ({"make_agg": [Identity] * 3, "n_layer": 2}, r"model\.agg_per_layer names 3 strategies.*model\.n_layer=2"),
        ({"n_layer": 0}, r"model\.n_layer=0 must be at least 1"),
        ({"n_layer": 10_001}, r"model\.n_layer=10001 must be at most 10,000"),
        ({"n_head": 0}, r"model\.n_head=0 must be at least 1"),
        ({"n_head": 3}, r"model\.n_embd=4 is not divisible by model\.n_head=3"),
        ({"mlp_width": -1}, r"model\.mlp_width=-1 must be 0 or more"),
        ({"dropout": 1.0}, r"model\.dropout=1\.0 must lie in \[0, 1\)"),
        ({"dropout": -0.1}, r"model\.dropout=-0\.1"),
        ({"dropout": math.nan}, r"model\.dropout=nan"),
        ({"init_std": -0.1}, r"model\.init_std=-0\.1"),
        ({"init_std": math.nan}, r"model\.init_std=nan"),
        ({"lm_head": False, "n_embd": 5}, rf"model\.n_embd=5 with model\.lm_head=false.*\({V}\).*model\.n_embd=null"),
    ],
)
def test_a_knob_that_cannot_work_is_refused_by_its_name_and_value(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        build(**settings)

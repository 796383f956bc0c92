"""Initial values depend on (seed, name, shape) alone, and what a constructor sets on purpose stays."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trilab.agg.attention import SelfAttention
from trilab.agg.base import Aggregation
from trilab.agg.none import Identity
from trilab.config import bind
from trilab.init import named_draws, seed_of
from trilab.model import LanguageModel

from .conftest import STRATEGIES, knobs

MODELS: dict[str, dict[str, Any]] = {
    "flat": {},
    "no positions": {"positions": False},
    "one block": {"norm": True, "residual": True, "mlp": True, "value": True, "output": True},
    "three blocks": {"n_layer": 3, "norm": True, "residual": True, "mlp": True, "value": True, "output": True},
    "narrow MLP": {"mlp": True, "mlp_width": 0},
}


def strategy(name: str) -> partial[Any]:
    """The strategy of conf/agg/<name>.yaml, its references to the model's knobs left at their defaults."""
    section = {key: value for key, value in knobs(name).items() if not str(value).startswith("${")}
    return bind(section, "agg", given=("n_embd", "block_size"))


def build(make_agg: Callable[[int, int], Aggregation] = Identity, seed: int = 7, **settings: Any) -> LanguageModel:
    return LanguageModel(11, 8, make_agg, **{"seed": seed, "n_embd": 4, **settings})


def differing(one: nn.Module, other: nn.Module) -> set[str]:
    """Names that both have, in one shape, with different values."""
    left, right = one.state_dict(), other.state_dict()
    shared = [name for name in left if name in right and left[name].shape == right[name].shape]
    assert shared
    return {name for name in shared if not torch.equal(left[name], right[name])}


@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("name", STRATEGIES)
def test_what_two_variants_share_by_name_and_shape_starts_from_the_same_values(
    name: str, settings: dict[str, Any]
) -> None:
    assert not differing(build(), build(strategy(name), **settings))
    assert not differing(build(SelfAttention, **MODELS["three blocks"]), build(strategy(name), **settings))


@pytest.mark.parametrize("init_std", [None, 0.02])
@pytest.mark.parametrize("name", STRATEGIES)
def test_one_layer_starts_the_same_however_many_follow(name: str, init_std: float | None) -> None:
    settings = {**MODELS["three blocks"], "init_std": init_std}
    one, three = (build(strategy(name), **{**settings, "n_layer": n_layer}) for n_layer in (1, 3))
    assert set(one.state_dict()) < set(three.state_dict())
    assert not differing(one, three)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_global_random_state_neither_decides_the_values_nor_is_moved(name: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one = build(strategy(name), **MODELS["three blocks"])
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert not differing(one, build(strategy(name), **MODELS["three blocks"]))


def test_another_seed_or_another_layer_gives_other_values() -> None:
    one = build(SelfAttention, n_layer=2)
    drawn = {name for name, _ in one.named_parameters()}
    assert differing(one, build(SelfAttention, n_layer=2, seed=0)) == drawn
    first, second = (block.agg.query.weight for block in one.blocks)
    assert not torch.equal(first, second)


def test_seed_0_is_a_seed_like_any_other() -> None:
    assert not differing(build(seed=0), build(seed=0))
    assert differing(build(seed=0), build(seed=1))


def test_a_frozen_buffer_is_a_function_of_seed_and_name_too() -> None:
    def affinities(**settings: Any) -> list[Tensor]:
        return [block.agg.affinities for block in build(strategy("random"), **settings).blocks]

    flat, deep = affinities(), affinities(**MODELS["three blocks"])
    assert torch.equal(flat[0], deep[0])
    assert not torch.equal(deep[0], deep[1])
    assert not torch.equal(flat[0], affinities(seed=8)[0])


@pytest.mark.parametrize("frozen", [True, False])
def test_what_a_class_draws_first_does_not_shift_what_it_draws_next(frozen: bool) -> None:
    def drawn(before: int) -> Tensor:
        module = nn.Module()
        with named_draws(module, 7):
            module.before = nn.ModuleList(nn.Linear(3, 3) for _ in range(before))
            values = torch.empty(5).normal_()
            if frozen:
                module.register_buffer("values", values)
            else:
                module.values = nn.Parameter(values)
        return module.state_dict()["values"]

    assert torch.equal(drawn(0), drawn(2))


def test_pytorch_s_own_distributions_are_kept() -> None:
    model = build(SelfAttention, n_embd=64, mlp=True)
    assert abs(model.token_embedding_table.weight.std().item() - 1) < 0.1
    for layer in (model.lm_head, model.blocks[0].agg.query, model.blocks[0].mlp.expand):
        assert isinstance(layer, nn.Linear)
        assert 0.9 / 8 < layer.weight.abs().max().item() <= 1 / 8  # uniform in ± 1 / √64


class OneSet(nn.Module):
    """Linear(4, 4), part of whose weight `change` sets on purpose."""

    def __init__(self, change: Callable[[nn.Linear], Any]) -> None:
        super().__init__()
        self.extra = nn.Linear(4, 4)
        with torch.no_grad():
            change(self.extra)


def fill_row(layer: nn.Linear) -> None:
    layer.weight[1] = 7


def fill_column(layer: nn.Linear) -> None:
    layer.weight[:, 2].fill_(7)


def fill_first_row(layer: nn.Linear) -> None:
    layer.weight[0].zero_()


def replace(layer: nn.Linear) -> None:
    layer.weight = nn.Parameter(torch.full((4, 4), 7.0))


def write_through_data(layer: nn.Linear) -> None:
    layer.weight.data.fill_(7)


CHANGES: dict[str, tuple[Callable[[nn.Linear], Any], Callable[[Tensor], Tensor], Tensor]] = {
    "zeros_": (lambda layer: nn.init.zeros_(layer.weight), lambda w: w, torch.zeros(4, 4)),
    "constant_": (lambda layer: nn.init.constant_(layer.weight, 7), lambda w: w, torch.full((4, 4), 7.0)),
    "eye_": (lambda layer: nn.init.eye_(layer.weight), lambda w: w, torch.eye(4)),
    "copy_": (lambda layer: layer.weight.copy_(torch.eye(4)), lambda w: w, torch.eye(4)),
    "a row": (fill_row, lambda w: w[1], torch.full((4,), 7.0)),
    "the first row": (fill_first_row, lambda w: w[0], torch.zeros(4)),
    "a column": (fill_column, lambda w: w[:, 2], torch.full((4,), 7.0)),
    "another parameter": (replace, lambda w: w, torch.full((4, 4), 7.0)),
    "through .data": (write_through_data, lambda w: w, torch.full((4, 4), 7.0)),
    "tril_": (lambda layer: layer.weight.tril_(), lambda w: w.triu(1), torch.zeros(4, 4)),
}


@pytest.mark.parametrize(("change", "part", "wanted"), CHANGES.values(), ids=CHANGES)
def test_what_a_class_sets_on_purpose_after_a_draw_survives(
    change: Callable[[nn.Linear], Any], part: Callable[[Tensor], Tensor], wanted: Tensor
) -> None:
    module = nn.Module()
    with named_draws(module, 7):
        module.foreign = OneSet(change)
    assert torch.equal(part(module.foreign.extra.weight), wanted)


@pytest.mark.parametrize("index", [0, 3])
def test_the_padding_row_of_an_embedding_stays_zero(index: int) -> None:
    module = nn.Module()
    with named_draws(module, 7):
        module.table = nn.Embedding(5, 4, padding_idx=index)
    assert not module.table.weight[index].any()
    assert module.table.weight[1].all()


def test_a_scaled_draw_keeps_its_scale() -> None:
    module = nn.Module()
    with named_draws(module, 7):
        module.layer = nn.Linear(100, 100)
        with torch.no_grad():
            module.layer.weight.normal_().mul_(1e-3)
    assert 0.9e-3 < module.layer.weight.std().item() < 1.1e-3


DRAWN: dict[str, Callable[[Tensor], Any]] = {
    "Tensor.normal_": lambda w: w.normal_(1, 2),
    "Tensor.uniform_": lambda w: w.uniform_(-1, 1),
    "nn.init.normal_": nn.init.normal_,
    "nn.init.uniform_ by keyword": lambda w: nn.init.uniform_(tensor=w, a=-3, b=3),
    "nn.init.xavier_uniform_": nn.init.xavier_uniform_,
    "nn.init.kaiming_normal_": nn.init.kaiming_normal_,
    "nn.init.kaiming_uniform_": nn.init.kaiming_uniform_,
}


@pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)
def test_a_draw_is_found_whichever_way_it_is_written(draw: Callable[[Tensor], Any]) -> None:
    def weight(before: int) -> Tensor:
        module = nn.Module()
        with named_draws(module, 7):
            torch.rand(before)  # what other parts may have drawn
            module.weight = nn.Parameter(torch.empty(4, 4))
            with torch.no_grad():
                draw(module.weight)
        found: Tensor = module.weight
        return found

    assert torch.equal(weight(0), weight(5))


def test_a_class_with_draws_of_its_own_shifts_nobody_else_and_is_itself_repeatable() -> None:
    class Foreign(Aggregation):
        def __init__(self, n_embd: int, block_size: int) -> None:
            super().__init__(n_embd, block_size)
            self.scaled = nn.Parameter(torch.randn(3) * 0.02)
            self.recurrent = nn.GRU(n_embd, n_embd)

        def mix(self, x: Tensor, v: Tensor) -> Tensor:
            return v

    flat, deep = build(Foreign), build(Foreign, positions=False, **MODELS["three blocks"])
    assert not differing(flat, deep)
    assert not differing(flat, build())


def test_seeds_of_names_are_stable_and_distinct() -> None:
    assert seed_of(1337, "lm_head.weight") == 1767743216063269507
    seeds = {seed_of(seed, name) for seed in range(50) for name in ("a", "b", "1", "")}
    assert len(seeds) == 200
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_constructor_that_fails_leaves_the_global_random_state_alone() -> None:
    def failing() -> None:
        with named_draws(nn.Module(), 7):
            torch.rand(3)
            raise RuntimeError("on purpose")

    before = torch.get_rng_state()
    with pytest.raises(RuntimeError, match="on purpose"):
        failing()
    assert torch.equal(torch.get_rng_state(), before)

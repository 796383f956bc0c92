"""Budgets: variants of one size, or of one cost, and what cannot be brought to one."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trilab.agg.base import Aggregation
from trilab.budget import matched, training_flops
from trilab.build import build_model, build_on_meta
from trilab.config import Config, read
from trilab.errors import BadInput

from .conftest import Outcome
from .test_config import composed

Train = Callable[..., Outcome]

V = 11


def config(*keys: str) -> Config:
    return read(composed("model=gpt", *keys))


def n_params(config: Config, **model: Any) -> int:
    tree: Mapping[str, Any] = {**config.tree, "model": {**config.tree["model"], **model}}
    return sum(p.numel() for p in build_model(read(tree), V).parameters() if p.requires_grad)


def test_without_a_budget_the_config_stays_as_it_is() -> None:
    asked = config()
    assert matched(asked, V) is asked


@pytest.mark.parametrize("name", ["none", "table", "attention", "long_conv"])
def test_no_other_width_comes_closer_to_the_parameters_asked_for(name: str) -> None:
    params = 40_000
    found = matched(config(f"agg={name}", f"match.params={params}"), V)
    n_embd = found.model["n_embd"]
    assert n_embd % 4 == 0  # heads of model=gpt
    off = abs(n_params(found) - params)
    assert off <= abs(n_params(found, n_embd=n_embd + 4) - params)
    if n_embd > 4:
        assert off <= abs(n_params(found, n_embd=n_embd - 4) - params)
    assert found.tree["model"]["n_embd"] == n_embd


def test_every_variant_is_trained_for_the_operations_asked_for() -> None:
    spent = {}
    for name in ("none", "softmax", "attention"):
        found = matched(config(f"agg={name}", "match.flops=1e11"), V)
        once = training_flops(build_model(found, V), found.data.block_size) * found.data.batch_size
        spent[name] = once * found.trainer.max_steps
        assert found.tree["trainer"]["max_steps"] == found.trainer.max_steps
        assert abs(spent[name] - 1e11) <= once / 2
    assert len(set(spent.values())) == 3


def test_both_budgets_together_size_first_and_then_count_steps() -> None:
    both = matched(config("match.params=40000", "match.flops=1e11"), V)
    assert both.model["n_embd"] == matched(config("match.params=40000"), V).model["n_embd"]
    wider = config(f"model.n_embd={both.model['n_embd']}", "match.flops=1e11")
    assert both.trainer.max_steps == matched(wider, V).trainer.max_steps


def test_matching_again_changes_nothing() -> None:
    once = matched(config("match.params=40000", "match.flops=1e11"), V)
    assert matched(once, V) == once


def test_what_was_chosen_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("trilab.budget.log.info", lambda words, *values: said.append(words % values))
    found = matched(config("match.params=40000", "match.flops=1e11"), V)
    sized, timed = said
    assert f"model.n_embd={found.model['n_embd']} gives {n_params(found):,} (" in sized
    assert f"trainer.max_steps={found.trainer.max_steps:,}" in timed


class Unstated(Aggregation):
    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v


class EvenHeads(Aggregation):
    """Refuses channels that are not a multiple of 8."""

    def __init__(self, n_embd: int, block_size: int) -> None:
        super().__init__(n_embd, block_size)
        if n_embd % 8:
            raise BadInput(f"n_embd={n_embd} must be a multiple of 8.")
        self.scale = nn.Parameter(torch.ones(n_embd))

    def weights(self, x: Tensor) -> Tensor:
        return torch.eye(x.shape[1])[None, None]


def test_a_strategy_that_needs_other_widths_than_the_heads_gets_them() -> None:
    asked = config(f"agg={{_target_:{__name__}.EvenHeads}}", "match.params=40000")
    found = matched(asked, V)
    assert found.model["n_embd"] % 8 == 0
    assert abs(n_params(found) - 40_000) <= abs(n_params(found, n_embd=found.model["n_embd"] + 8) - 40_000)


class AtLeast24(EvenHeads):
    """Takes any channels from 24 on."""

    def __init__(self, n_embd: int, block_size: int) -> None:
        if n_embd < 24:
            raise BadInput(f"n_embd={n_embd} must be at least 24.")
        Aggregation.__init__(self, n_embd, block_size)


def test_a_strategy_that_needs_a_least_width_is_still_sized_in_steps_of_the_heads() -> None:
    found = matched(config(f"agg={{_target_:{__name__}.AtLeast24}}", "match.params=40000"), V)
    n_embd = found.model["n_embd"]
    assert n_embd % 4 == 0
    off = abs(n_params(found) - 40_000)
    assert off <= min(abs(n_params(found, n_embd=n) - 40_000) for n in (n_embd - 4, n_embd + 4))


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["match.params=10"], "match.params=10 is less than the smallest model has: 739 at n_embd=4"),
        (["match.params=1000000000000"], "match.params=1000000000000 needs more than 65,536 channels"),
        (["match.params=0"], "match.params=0 must be at least 1"),
        (["match.params=many"], "match.params='many' must be a whole number or null"),
        (["model=bigram", "match.params=5000"], "with model.lm_head=false there are as many channels as"),
        (["match.flops=1e3"], r"match.flops=1000 is less than one step of softmax takes: 4\.85e\+07"),
        (["match.flops=-1"], "match.flops=-1 must be more than 0"),
        (["match.flops=inf"], "match.flops=inf must be more than 0 and finite"),
    ],
)
def test_a_budget_that_cannot_be_met_is_refused_with_the_reason(keys: list[str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        matched(config(*keys), V)


def test_a_strategy_that_does_not_say_its_cost_has_no_budget_of_operations() -> None:
    asked = config(f"agg={{_target_:{__name__}.Unstated}}", "match.flops=1e11")
    with pytest.raises(BadInput, match="Unstated does not say what it costs"):
        matched(asked, V)


def test_sizes_are_counted_without_drawing_values() -> None:
    model = build_on_meta(config("agg=attention"), V)
    assert all(parameter.is_meta for parameter in model.parameters())


def test_a_run_with_budgets_keeps_what_was_chosen_with_its_results(train: Train) -> None:
    done = train("model=gpt", "agg=attention", "match.params=20000", "match.flops=2e9")
    assert done.code == 0
    kept, summary = done.config, done.summary
    assert kept["model"]["n_embd"] == 24
    assert summary["n_params"] == 22_284
    assert kept["trainer"]["max_steps"] == summary["steps"]
    assert summary["flops_per_char"] * 8 * 32 * summary["steps"] == pytest.approx(2e9, rel=0.1)
    assert summary["state_size"] == 3 * 2 * 8 * 24
    again = train("model=gpt", "agg=attention", "match.params=20000", "match.flops=2e9")
    assert "Finished already" in again.out

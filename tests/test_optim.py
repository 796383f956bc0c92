"""Which parameters decay, and the learning rate step by step."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from trilab.agg.attention import SelfAttention
from trilab.build import build_model
from trilab.compose import composed, strategy_names
from trilab.errors import BadInput
from trilab.loss import mean_nats
from trilab.model import LanguageModel
from trilab.optim import Optim, adamw, lr_factor


def test_every_parameter_is_in_one_group_and_only_matrices_decay() -> None:
    model = LanguageModel(11, 8, SelfAttention, n_embd=4, n_layer=2, norm=True, mlp=True, value=True, output=True)
    optimizer = adamw(model, Optim(weight_decay=0.3))
    group_of = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(model.parameters()))
    for name, parameter in model.named_parameters():
        assert group_of[id(parameter)] == (0.3 if parameter.dim() >= 2 else 0.0), name
    assert {len(p.shape) for p in model.parameters()} == {1, 2}


def test_a_frozen_parameter_is_left_out_and_a_group_without_members_too() -> None:
    model = nn.Linear(2, 3)
    model.bias.requires_grad_(False)
    (group,) = adamw(model, Optim()).param_groups
    assert group["params"] == [model.weight]


def test_without_a_gradient_a_matrix_shrinks_by_the_decay_and_a_vector_stays() -> None:
    model = nn.Linear(2, 2)
    nn.init.ones_(model.weight)
    nn.init.ones_(model.bias)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    adamw(model, Optim(lr=0.1, weight_decay=0.5)).step()
    assert torch.allclose(model.weight, torch.full((2, 2), 1 - 0.1 * 0.5))
    assert torch.equal(model.bias, torch.ones(2))


@pytest.mark.parametrize("name", strategy_names())
def test_gradients_lie_in_memory_as_their_weights_do_and_one_pass_moves_them_as_many(name: str) -> None:
    moved = []
    for fused in (True, False):
        model = build_model(composed([f"agg={name}", "model.value=true", "model.output=true"]), 7)
        tokens = torch.arange(16).reshape(2, 8) % 7
        optimizer = adamw(model, Optim(weight_decay=0.1), fused=fused)
        for _ in range(3):
            optimizer.zero_grad()
            mean_nats(model(tokens), tokens.roll(-1, 1)).backward()
            given = [p for p in model.parameters() if p.grad is not None]
            assert all(p.grad is not None and p.grad.stride() == p.stride() for p in given)
            optimizer.step()
        moved.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(*moved, rtol=1e-4, atol=1e-6)


def test_a_weight_that_is_a_slice_of_something_larger_is_moved_as_any_other() -> None:
    moved = []
    for fused in (True, False):
        torch.manual_seed(0)
        model = nn.Module()
        model.weight = nn.Parameter(torch.randn(4, 6)[:, ::2])
        (model.weight * torch.randn(4, 3)).sum().backward()
        adamw(model, Optim(), fused=fused).step()
        moved.append(model.weight.detach())
    torch.testing.assert_close(*moved)


def test_adamw_gets_the_rate_betas_and_eps() -> None:
    (group,) = adamw(nn.Linear(2, 2, bias=False), Optim(lr=0.5, beta1=0.1, beta2=0.2, eps=0.3)).param_groups
    assert (group["lr"], group["betas"], group["eps"]) == (0.5, (0.1, 0.2), 0.3)


# warm-up over steps 0 … 3, then 101 steps of cosine, 4 … 104, from 1 to 0.1
COSINE = Optim(lr=0.01, schedule="cosine", warmup_steps=4, min_lr_ratio=0.1)


@pytest.mark.parametrize(
    ("step", "factor"),
    [
        (0, 0.25),
        (1, 0.5),
        (3, 1.0),
        (4, 1.0),
        (29, 0.1 + 0.9 * 0.5 * (1 + math.sqrt(0.5))),
        (54, 0.55),
        (79, 0.1 + 0.9 * 0.5 * (1 - math.sqrt(0.5))),
        (104, 0.1),
        (200, 0.1),
    ],
)
def test_the_rate_warms_up_and_falls_along_a_cosine_to_its_lowest_at_the_last_step(step: int, factor: float) -> None:
    assert lr_factor(step, COSINE, max_steps=105) == pytest.approx(factor, rel=1e-9)


@pytest.mark.parametrize(("step", "factor"), [(0, 0.5), (1, 1.0), (2, 1.0), (999, 1.0)])
def test_a_constant_rate_stays_after_warm_up(step: int, factor: float) -> None:
    assert lr_factor(step, Optim(warmup_steps=2), max_steps=1000) == factor


def test_without_warm_up_the_first_step_has_the_whole_rate() -> None:
    assert lr_factor(0, Optim(), max_steps=10) == 1.0
    assert lr_factor(0, Optim(schedule="cosine"), max_steps=10) == 1.0


@pytest.mark.parametrize(("warmup_steps", "max_steps"), [(0, 1), (5, 5), (5, 3), (4, 5)])
def test_every_step_of_a_short_training_has_a_rate_within_bounds(warmup_steps: int, max_steps: int) -> None:
    optim = Optim(schedule="cosine", warmup_steps=warmup_steps, min_lr_ratio=0.1)
    assert all(0.1 <= lr_factor(step, optim, max_steps) <= 1 for step in range(max_steps))


def test_the_rate_is_above_zero_at_every_step_that_trains() -> None:
    optim = Optim(schedule="cosine", warmup_steps=3)
    factors = [lr_factor(step, optim, 20) for step in range(20)]
    assert all(factor > 0 for factor in factors[:-1])
    assert factors[-1] == 0.0
    assert factors[2:] == sorted(factors[2:], reverse=True)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"lr": 0.0}, "optim.lr=0.0"),
        ({"lr": math.nan}, "optim.lr=nan"),
        ({"lr": math.inf}, "optim.lr=inf"),
        ({"beta1": 1.0}, "optim.beta1=1.0"),
        ({"beta2": -0.1}, "optim.beta2=-0.1"),
        ({"eps": 0.0}, "optim.eps=0.0"),
        ({"weight_decay": -1.0}, "optim.weight_decay=-1.0"),
        ({"weight_decay": math.nan}, "optim.weight_decay=nan"),
        ({"schedule": "linear"}, "optim.schedule=linear is not known: constant or cosine"),
        ({"warmup_steps": -1}, "optim.warmup_steps=-1"),
        ({"min_lr_ratio": 1.5}, "optim.min_lr_ratio=1.5 must lie in [0, 1]"),
        ({"grad_clip": 0.0}, "optim.grad_clip=0.0"),
        ({"grad_clip": math.nan}, "optim.grad_clip=nan"),
    ],
)
def test_a_value_that_no_training_can_use_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput) as caught:
        Optim(**settings)
    assert said in str(caught.value)

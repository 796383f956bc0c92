"""What a checkpoint holds for going on, beside its weights: whether a training can go on from it, and as it would have.

Lightning takes most of it as it is. What is missing is begun anew without a word, and what is something else is found
out deep inside, or never.
"""

import math
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn

from trilab.checkpoint import model_weights, refuse_numbers_that_are_none, refuse_other_weights
from trilab.errors import BadInput

_VERSION = re.compile(r"(\d+)(\.\d+)+((a|b|rc|\.dev|\.post)\d+)*")
_MOMENTS = ("exp_avg", "exp_avg_sq")
_SCALER = {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}  # of float16


def refuse_unresumable(content: Mapping[str, Any], model: nn.Module, loops: Mapping[str, Any]) -> None:
    """Compare all that Lightning would take over with what it has to be.

    Args:
        content: of checkpoint.load.
        model: whose training is to go on; its weights need no values.
        loops: the state of the trainer's own loops, before anything was trained: name → keys and counts.
    Raises:
        BadInput: something is missing, of another shape or no number; the message says what, as of "it".
    """
    written = content.get("pytorch-lightning_version")
    found = _VERSION.fullmatch(written) if isinstance(written, str) else None
    here = version("lightning")
    if found is None or found[1] != here.partition(".")[0]:
        raise BadInput(f"it was not written by a Lightning that is read here, {here} or another of that first number.")
    refuse_other_weights(model, model_weights(content))
    refuse_numbers_that_are_none(model_weights(content))
    if foreign := [name for name in content["state_dict"] if not name.startswith("model.")]:
        raise BadInput(f"it has a weight that is not the model's, {foreign[0]!r:.100}.")
    step = _steps_done(content, loops)
    _refuse_other_memories(content["trilab"], step)
    callbacks = content.get("callbacks")
    if not isinstance(callbacks, dict) or not all(isinstance(state, dict) for state in callbacks.values()):
        raise BadInput("its callbacks are something else than the state of each.")
    match content.get("optimizer_states"):
        case [dict(state)]:
            _refuse_other_optimizer(state, model, step)
        case _:
            raise BadInput("its optimizer_states are not the one that trilab writes: it would begin anew in part.")
    scaler = content.get("MixedPrecision")
    if scaler and not (isinstance(scaler, dict) and scaler.keys() == _SCALER and all(map(_number, scaler.values()))):
        raise BadInput("its MixedPrecision is something else than the scale of gradients in float16.")


def _steps_done(content: Mapping[str, Any], loops: Mapping[str, Any]) -> int:
    if where := _unlike(content.get("loops"), loops, "loops"):
        raise BadInput(f"its state of {where} is missing or something else: how far it had come is not known.")
    progress = content["loops"]["fit_loop"]["epoch_loop.automatic_optimization.optim_progress"]
    counted = progress["optimizer"]["step"]["total"]["completed"]
    step: Any = content["trilab"]["step"]
    if not (_count(step) and step == content.get("global_step") == counted and step >= 1):
        raise BadInput(
            "its numbers of steps done are not one number, 1 or more: step, global_step and that of its loops."
        )
    return int(step)


def _unlike(found: Any, wanted: Any, where: str) -> str | None:
    """The place of the first value that is missing or of another kind."""
    if isinstance(wanted, Mapping):
        if not isinstance(found, dict):
            return where
        inside = (_unlike(found.get(key), value, f"{where}.{key}") for key, value in wanted.items())
        return next((place for place in inside if place), None)
    right = type(found) is bool if isinstance(wanted, bool) else _count(found)
    return None if right else where


def _refuse_other_memories(own: Mapping[str, Any], step: int) -> None:
    """What Learner.on_load_checkpoint takes."""
    best = own["best"]
    loss = best.get("val_loss")
    if not (_count(best.get("step")) and best["step"] <= step and _number(loss, infinite=True)):
        raise BadInput("its best is something else than a val_loss and the step it was reached at.")
    if not (_number(own.get("seconds", 0.0)) and own.get("seconds", 0.0) >= 0):
        raise BadInput("its seconds are no number of seconds.")
    match own.get("pending", {"steps": [], "losses": torch.empty(0)}):
        case {"steps": list(steps), "losses": Tensor() as losses} if (
            all(map(_count, steps)) and losses.shape == (len(steps),) and losses.is_floating_point()
        ):
            return
    raise BadInput("its pending is something else than the losses not yet written, and their steps.")


def _refuse_other_optimizer(found: Mapping[str, Any], model: nn.Module, step: int) -> None:
    """As torch pairs them: the n-th parameter of all groups with the n-th."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    wanted = [
        group for group in ([p for p in parameters if p.dim() >= 2], [p for p in parameters if p.dim() < 2]) if group
    ]
    groups, states = found.get("param_groups"), found.get("state")
    if not (isinstance(groups, list) and isinstance(states, dict) and states and all(map(_group, groups))):
        raise BadInput("its optimizer has no state, or groups of parameters that are something else.")
    if [len(group["params"]) for group in groups] != [len(group) for group in wanted]:
        raise BadInput("its optimizer moves other parameters than the model's.")
    by_name = {
        name: parameter
        for group, theirs in zip(wanted, groups, strict=True)
        for name, parameter in zip(theirs["params"], group, strict=True)
    }
    for name, state in states.items():
        if name not in by_name or not isinstance(state, dict):
            raise BadInput("its optimizer has the moments of a parameter that it does not move.")
        _refuse_other_moments(state, by_name[name], step)


def _group(group: Any) -> bool:
    """Whether it is a group of AdamW's parameters with numbers to move them by."""
    match group:
        case {
            "params": list(names),
            "lr": lr,
            "eps": eps,
            "weight_decay": decay,
            "betas": (list() | tuple()) as betas,
            **switches,
        }:
            initial: Any = switches.pop("initial_lr", 0.0)  # of a scheduler, as trilab had one before
            return (
                all(isinstance(name, int | str) for name in names)
                and len(set(names)) == len(names)
                and all(_number(number) and number >= 0 for number in (lr, initial, eps, decay))
                and len(betas) == 2
                and all(_number(beta) and 0 <= beta < 1 for beta in betas)
                and all(switch is None or isinstance(switch, bool) for switch in switches.values())
            )
    return False


def _refuse_other_moments(state: Mapping[str, Any], parameter: Tensor, step: int) -> None:
    taken: Any = state.get("step")
    if isinstance(taken, Tensor) and taken.numel() == 1:
        taken = taken.item()
    if not (_number(taken) and 1 <= taken <= step):
        raise BadInput("its optimizer has taken another number of steps than the training.")
    for name in _MOMENTS:
        moment = state.get(name)
        if not isinstance(moment, Tensor) or moment.shape != parameter.shape or not moment.is_floating_point():
            raise BadInput(f"its optimizer has an {name} that is not of its parameter's shape {(*parameter.shape,)}.")
        if not torch.isfinite(moment).all() or (name == "exp_avg_sq" and (moment < 0).any()):
            raise BadInput(f"its optimizer has an {name} that no training comes to: not finite, or below 0.")


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _number(value: Any, *, infinite: bool = False) -> bool:
    return type(value) in (int, float) and (math.isfinite(value) or (infinite and value == math.inf))

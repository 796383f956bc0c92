"""One token at a time."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from trilab.laws.tables import TWO_WAYS
from trilab.laws.trials import (
    ORDINARY,
    Conditions,
    Misshapen,
    Subject,
    Trial,
    comparable,
    device_of,
    every_length,
    relative,
    trials,
)
from trilab.laws.verdict import Finding, Verdict, judge
from trilab.model import LanguageModel


def stream(subject: Subject, conditions: Conditions = ORDINARY) -> Verdict:
    """One token at a time, by init_state and step, gives the same outputs as the whole sequence at once.

    Also: `step` leaves the state that it is given as it was, and carries as many numbers as `state_size` says.
    """

    def findings() -> Iterator[Finding]:
        for trial in comparable(trials(subject, conditions, every_length(subject.block_size))):
            try:
                yield from _differences(trial)
            except Misshapen as error:
                yield Finding(math.inf, TWO_WAYS, str(error), trial.setting)

    with torch.no_grad():
        return judge("stream", findings(), device_of(subject))


def _differences(trial: Trial) -> Iterator[Finding]:
    module, given = trial.module, trial.input
    whole = trial(given)
    state: Any = module.init_state(len(given)) if isinstance(module, LanguageModel) else module.init_state(given[:, 0])
    outputs: list[Tensor] = []
    changed = 0
    for t in range(trial.setting.time):
        before = [tensor.clone() for tensor in _tensors(state)]
        y, new = module.step(given[:, t], state)
        changed += not all(torch.equal(one, two) for one, two in zip(before, _tensors(state), strict=True))
        outputs.append(y)
        state = new
    difference = relative(whole, torch.stack(outputs, 1))
    yield Finding(difference, trial.allowed(TWO_WAYS), "one token at a time", trial.setting)
    yield Finding(changed, 0, "step changes the state that it is given", trial.setting)
    carried = sum(tensor.numel() for tensor in _tensors(state)) / len(given)
    said = module.state_size(trial.setting.time)
    yield Finding(abs(carried - said), 0, f"{carried:g} numbers of state, state_size says {said}", trial.setting)


def _tensors(state: Any) -> list[Tensor]:
    """All in a nest of tuples, in order."""
    if isinstance(state, tuple):
        return [tensor for part in state for tensor in _tensors(part)]
    return [state] if isinstance(state, Tensor) else []

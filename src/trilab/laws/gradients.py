"""Every parameter learns."""

from collections.abc import Iterator

import torch
from torch import nn

from trilab.laws.trials import Conditions, Subject, device_of, trials
from trilab.laws.verdict import Finding, Verdict, judge


def gradient(subject: Subject) -> Verdict:
    """After one backward pass at T = block_size every parameter has a finite gradient, somewhere not zero.

    The gradient must also be contiguous, as fused optimizers read it. Not zero is asked of redrawn parameters only: an
    output projection that starts at zero hides what lies before it; and of T ≥ 2 only: a single token leaves affinities
    nothing to choose from. The figure counts parameters.
    """
    conditions = Conditions(parameter_scales=(None, 1.0), input_scales=(1.0,), training=(True,))

    def findings() -> Iterator[Finding]:
        for trial in trials(subject, conditions, [subject.block_size]):
            loss = trial.module(trial.input).square().sum()
            trial.module.zero_grad()
            if loss.requires_grad:
                loss.backward()
            may_be_zero = trial.setting.parameter_scale is None or trial.setting.time == 1
            faults = [
                f"{name} {fault}"
                for name, parameter in trial.module.named_parameters()
                if (fault := _fault(parameter, may_be_zero=may_be_zero))
            ]
            yield Finding(len(faults), 0, ", ".join(faults), trial.setting)

    with torch.enable_grad():
        return judge("gradient", findings(), device_of(subject))


def _fault(parameter: nn.Parameter, *, may_be_zero: bool) -> str:
    grad = parameter.grad
    if grad is None:
        return "has no gradient"
    if not grad.isfinite().all():
        return "has a gradient that is not finite"
    if not grad.is_contiguous():
        return "has a gradient that is not contiguous"
    return "" if may_be_zero or grad.any() else "has a gradient of zeros"

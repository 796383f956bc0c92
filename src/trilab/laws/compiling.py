"""torch.compile makes it faster, not another."""

import warnings
from collections.abc import Iterator

import torch

from trilab.laws.tables import TWO_WAYS
from trilab.laws.trials import Conditions, Subject, comparable, device_of, differences, trials, with_gradients
from trilab.laws.verdict import Finding, Verdict, judge


def compiled(subject: Subject, *, backend: str = "aot_eager") -> Verdict:
    """torch.compile gives the same outputs, and gradients of x and of every parameter. Graph breaks are allowed.

    At T = block_size, in both modes, with redrawn parameters. What draws random numbers of its own is left out.

    Args:
        backend: aot_eager traces forward and backward and needs no compiler; inductor also generates code.
    """

    conditions = Conditions(parameter_scales=(1.0,), input_scales=(1.0,))

    def findings() -> Iterator[Finding]:
        for trial in comparable(trials(subject, conditions, [subject.block_size])):
            given = trial.input.requires_grad_() if trial.input.is_floating_point() else trial.input
            quick = torch.compile(trial.module, backend=backend)
            plain = trial.module(given)
            cotangent = plain.detach().cos()  # any fixed numbers of order one
            one, two = (with_gradients(y, cotangent, given, trial.module) for y in (plain, quick(given)))
            for name, difference in differences(one, two).items():
                yield Finding(difference, trial.allowed(TWO_WAYS), f"{name} under {backend}", trial.setting)

    torch._dynamo.reset()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler's, about its own insides
            return judge("compiled", findings(), device_of(subject))
    finally:
        torch._dynamo.reset()

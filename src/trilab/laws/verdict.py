"""What a law found: the worst figure, what is allowed, and where that was."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Setting:
    """Under what a figure was found.

    time: tokens T.
    input_scale: standard deviation of x; None for tokens.
    parameter_scale: standard deviation of the redrawn parameters; None where they are as they were.
    training: whether in training mode.
    dtype: in which it is computed: float32 for a float32 copy, and for a float64 copy of what casts to float32 inside.
    """

    time: int
    input_scale: float | None
    parameter_scale: float | None
    training: bool
    dtype: str = "float64"

    def __str__(self) -> str:
        inputs = "tokens" if self.input_scale is None else f"x of scale {self.input_scale:g}"
        scale = self.parameter_scale
        parameters = "parameters as they are" if scale is None else f"parameters of scale {scale:g}"
        mode = "training" if self.training else "evaluation"
        return f"T={self.time}, {inputs}, {parameters}, {mode} mode{self.precision}"

    @property
    def precision(self) -> str:
        """The dtype in words, where it is not float64."""
        return "" if self.dtype == "float64" else f", computed in {self.dtype}"


@dataclass(frozen=True)
class Finding:
    """One figure on the way to a verdict.

    position: of the output that moved, for the forms of causality.
    cut: the inputs after this position were changed, or taken away.
    """

    figure: float
    allowed: float
    what: str
    setting: Setting | None = None
    position: int | None = None
    cut: int | None = None

    @property
    def excess(self) -> float:
        """How far past what is allowed: 1 is just that."""
        return _excess(self.figure, self.allowed)


@dataclass(frozen=True)
class Verdict:
    """What a law found in one subject: its worst figure, what is allowed, and where that was; see Finding."""

    law: str
    worst: float
    """Relative error where the law compares numbers, else a count of violations."""
    allowed: float
    what: str
    setting: Setting | None
    position: int | None
    cut: int | None
    compared: bool = True
    """False where there was nothing to compare, so that the law holds without having been tried."""

    @property
    def passed(self) -> bool:
        return self.worst <= self.allowed

    @property
    def excess(self) -> float:
        """How far past what is allowed: 1 is just that."""
        return _excess(self.worst, self.allowed)

    @property
    def where(self) -> str:
        return f"{self.what}; {self.setting}" if self.setting else self.what

    def __str__(self) -> str:
        figures = f"{self.law}: {self.worst:.3g}, {self.allowed:.3g} allowed"
        if not self.passed:
            return f"{figures}; {self.where}"
        return f"{figures}{self.setting.precision}" if self.setting else figures


def _excess(figure: float, allowed: float) -> float:
    """Not a number is as far past as it gets."""
    if math.isnan(figure):
        return math.inf
    return figure / allowed if allowed else figure * math.inf if figure else 0.0


def judge(law: str, findings: Iterable[Finding], device: torch.device | None = None) -> Verdict:
    """The worst of the findings. The global random state, the CPU's and this device's, is left as it was."""
    nothing = Finding(0.0, 0.0, "nothing to compare")
    with torch.random.fork_rng(devices=[device] if device and device.type == "cuda" else []):
        worst = max(findings, key=lambda finding: finding.excess, default=nothing)
    figure = math.inf if math.isnan(worst.figure) else float(worst.figure)
    return Verdict(
        law, figure, worst.allowed, worst.what, worst.setting, worst.position, worst.cut, compared=worst is not nothing
    )

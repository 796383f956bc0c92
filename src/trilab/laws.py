"""What every aggregation must obey, as functions that look for a violation and say where they found the worst one.

A law is tried on copies, in float64, in evaluation and training mode, with parameters as they are and redrawn at
several scales, on inputs of several scales: at initial values a zero projection can hide a full leak, and a finite mask
holds until scores are large enough to outbid it.

Both forms of causality are needed. Dividing by T instead of t + 1 passes the perturbation form, since T does not
change; a finite mask passes the prefix form as long as it is large against the scores.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from trilab.agg.base import Aggregation

# Errors are relative: the largest difference over the largest magnitude. The same product over another number of
# tokens or rows is summed in another order, and a softmax turns an error of one part in 1e16 of a large score into a
# much larger one of the weight; below float32's resolution nothing can be learned from a leak.
REORDERED = 1e-6
# The same shapes give the same order: only rounding that grows with the changed values is left (an FFT's).
SAME_ORDER = 1e-12
# Two ways to the same sum, at scales where both are well conditioned.
TWO_WAYS = 1e-9


@dataclass(frozen=True)
class Verdict:
    """What a law found in one aggregation: its worst figure, what is allowed, and where that was."""

    law: str
    worst: float
    """Relative error where the law compares numbers, else a count of violations."""
    allowed: float
    where: str

    @property
    def passed(self) -> bool:
        return self.worst <= self.allowed

    def __str__(self) -> str:
        figures = f"{self.law}: {self.worst:.3g}, {self.allowed:.3g} allowed"
        return figures if self.passed else f"{figures}; {self.where}"


@dataclass(frozen=True)
class Conditions:
    """Where a law is tried: every combination of these.

    parameter_scales: standard deviation of the redrawn parameters; None leaves them as they are.
    input_scales: standard deviation of x.
    training: modes, True for training.
    batch_size: rows of x.
    seed: of every draw.
    """

    parameter_scales: tuple[float | None, ...] = (None, 1.0, 1e2, 1e5)
    input_scales: tuple[float, ...] = (1.0, 1e2, 1e4)
    training: tuple[bool, ...] = (False, True)
    batch_size: int = 2
    seed: int = 0


THOROUGH = Conditions()
# Gradients of saturated weights are differences of nearly equal numbers: compared at ordinary scales only.
ORDINARY = Conditions(parameter_scales=(None, 1.0), input_scales=(1.0,))


@dataclass(frozen=True)
class Finding:
    """One figure on the way to a verdict."""

    figure: float
    allowed: float
    where: str

    @property
    def excess(self) -> float:
        """How far past what is allowed; not a number is as far as it gets."""
        if math.isnan(self.figure):
            return math.inf
        return self.figure / self.allowed if self.allowed else self.figure * math.inf if self.figure else 0.0


@dataclass(frozen=True)
class Trial:
    """A copy of the aggregation under one setting, and an input for it, both float64."""

    aggregation: Aggregation
    x: Tensor
    redrawn: bool
    """Whether its parameters were drawn anew."""
    setting: str


def shape(aggregation: Aggregation) -> Verdict:
    """(B, T, C) in gives (B, T, C) out, same dtype and device, for every 1 ≤ T ≤ block_size and every dtype.

    The figure counts the dtypes and lengths for which that is not so.
    """

    def findings() -> Iterator[Finding]:
        for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
            module = copy.deepcopy(aggregation).to(dtype)
            wrong: list[str] = []
            for time in range(1, module.block_size + 1):
                for batch_size in (1, 3):
                    x = torch.ones(batch_size, time, module.n_embd, dtype=dtype, device=_device(module))
                    with torch.no_grad():
                        y = module(x)
                    if (y.shape, y.dtype, y.device) != (x.shape, x.dtype, x.device):
                        wrong.append(f"{_kind(x)} gives {_kind(y)}")
            yield Finding(len(wrong), 0, wrong[0] if wrong else "")

    return _verdict("shape", aggregation, findings())


def causality_prefix(aggregation: Aggregation, conditions: Conditions = THOROUGH) -> Verdict:
    """Output t of the whole sequence equals the last output of the prefix x[:, :t+1], for every t.

    Dropout is off, in training mode too: another length draws other masks.
    """

    def findings() -> Iterator[Finding]:
        for trial in _trials(aggregation, conditions, _whole_and_odd(aggregation.block_size)):
            whole = trial.aggregation(trial.x)
            scale = _magnitude(whole)
            for t in range(trial.x.shape[1]):
                last = trial.aggregation(trial.x[:, : t + 1])[:, -1]
                where = f"output {t} of {trial.x.shape[1]} is another when the text ends there; {trial.setting}"
                yield Finding(_largest(whole[:, t] - last) / scale, REORDERED, where)

    with torch.no_grad():
        return _verdict("causality_prefix", aggregation, findings())


def causality_perturbation(aggregation: Aggregation, conditions: Conditions = THOROUGH) -> Verdict:
    """Outputs 0 … t stay where they are when the inputs after t are replaced by large ones, for every t.

    Dropout is on in training mode, under the same seed for both calls.
    """
    large = max(conditions.input_scales)

    def run(module: Aggregation, x: Tensor) -> Tensor:
        torch.manual_seed(conditions.seed)
        y: Tensor = module(x)
        return y

    def findings() -> Iterator[Finding]:
        trials = _trials(aggregation, conditions, _whole_and_odd(aggregation.block_size), dropout=True)
        for trial in trials:
            before = run(trial.aggregation, trial.x)
            other = large * _draw(trial.x.shape, trial.aggregation, conditions.seed + 1)
            for t in range(trial.x.shape[1] - 1):
                after = run(trial.aggregation, torch.cat([trial.x[:, : t + 1], other[:, t + 1 :]], dim=1))
                moved = (after - before)[:, : t + 1].abs().amax((0, 2))  # (t + 1,)
                scale = max(_magnitude(before), _magnitude(after))
                where = f"output {int(moved.argmax())} moves with the inputs after {t}; {trial.setting}"
                yield Finding(_largest(moved) / scale, SAME_ORDER, where)

    with torch.no_grad():
        return _verdict("causality_perturbation", aggregation, findings())


def batch(aggregation: Aggregation, conditions: Conditions = THOROUGH) -> Verdict:
    """Every row of the batch comes out the same alone, and among the others in another order."""

    def findings() -> Iterator[Finding]:
        for trial in _trials(aggregation, conditions, _lengths(aggregation.block_size)):
            together = trial.aggregation(trial.x)
            scale = _magnitude(together)
            reversed_ = trial.aggregation(trial.x.flip(0)).flip(0)
            yield Finding(_largest(together - reversed_) / scale, REORDERED, f"rows in another order; {trial.setting}")
            for row in range(trial.x.shape[0]):
                alone = trial.aggregation(trial.x[row : row + 1])[0]
                where = f"row {row} alone; {trial.setting}"
                yield Finding(_largest(together[row] - alone) / scale, REORDERED, where)

    with torch.no_grad():
        return _verdict("batch", aggregation, findings())


def table(aggregation: Aggregation, conditions: Conditions = ORDINARY) -> Verdict:
    """The forward pass is output(weights(x) @ value(x)): values, and gradients of x and of every parameter.

    A strategy without a table of weights has nothing to compare and passes.
    """

    def findings() -> Iterator[Finding]:
        for trial in _trials(aggregation, conditions, _lengths(aggregation.block_size)):
            module, x = trial.aggregation, trial.x.requires_grad_()
            names = ["output", "gradient of x", *(f"gradient of {name}" for name, _ in module.named_parameters())]
            fast = module(x)
            slow = module.output(Aggregation.mix(module, x, module.value(x)))
            cotangent = fast.detach().cos()  # any fixed numbers of order one
            fast_and_gradients = [fast, *_gradients(fast, cotangent, x, module)]
            slow_and_gradients = [slow, *_gradients(slow, cotangent, x, module)]
            for name, one, two in zip(names, fast_and_gradients, slow_and_gradients, strict=True):
                scale = max(_magnitude(one), _magnitude(two))
                yield Finding(_largest(one - two) / scale, TWO_WAYS, f"{name}; {trial.setting}")

    return _verdict("table", aggregation, findings() if aggregation.has_weights else [])


def triangle(aggregation: Aggregation, conditions: Conditions = THOROUGH) -> Verdict:
    """weights(x) is (B|1, H|1, T, T), exactly zero above the diagonal; its rows sum to 1 where the strategy says so.

    Dropout is off: what is left of a row after it sums to 1 on average only. A strategy without a table passes.
    """

    def findings() -> Iterator[Finding]:
        for trial in _trials(aggregation, conditions, _lengths(aggregation.block_size)):
            weights = trial.aggregation.weights(trial.x)
            rows, time, channels = trial.x.shape
            fits = (
                weights.ndim == 4
                and weights.shape[0] in (1, rows)
                and channels % weights.shape[1] == 0
                and weights.shape[2:] == (time, time)
                and weights.dtype == trial.x.dtype  # float64
            )
            yield Finding(not fits, 0, f"the table of {_kind(trial.x)} is {_kind(weights)}; {trial.setting}")
            if not fits:
                continue
            yield Finding(_largest(weights.triu(1)), 0, f"weight above the diagonal; {trial.setting}")
            if aggregation.about.rows_sum_to_one:
                off = (weights.sum(-1) - 1).abs().amax((0, 1))  # (T,)
                yield Finding(_largest(off), TWO_WAYS, f"row {int(off.argmax())} does not sum to 1; {trial.setting}")

    with torch.no_grad():
        return _verdict("triangle", aggregation, findings() if aggregation.has_weights else [])


def gradient(aggregation: Aggregation) -> Verdict:
    """After one backward pass at T = block_size every parameter has a finite gradient, somewhere not zero.

    The gradient must also be contiguous, as fused optimizers read it. Not zero is asked of redrawn parameters only: an
    output projection that starts at zero hides what lies before it. The figure counts parameters.
    """

    def findings() -> Iterator[Finding]:
        conditions = Conditions(parameter_scales=(None, 1.0), input_scales=(1.0,), training=(True,))
        for trial in _trials(aggregation, conditions, [aggregation.block_size]):
            loss = trial.aggregation(trial.x).square().sum()
            if loss.requires_grad:
                loss.backward()
            faults = [
                f"{name} {fault}"
                for name, parameter in trial.aggregation.named_parameters()
                if (fault := _gradient_fault(parameter, may_be_zero=not trial.redrawn))
            ]
            yield Finding(len(faults), 0, f"{', '.join(faults)}; {trial.setting}")

    return _verdict("gradient", aggregation, findings())


def finite_range(aggregation: Aggregation) -> Verdict:
    """Outputs and gradients are finite wherever the float64 result, rounded to the dtype, is finite.

    In float32, bfloat16 and float16, x of scale 1, 1e2 and 1e4, parameters as they are, T = block_size. The loss is a
    mean divided by the scale, as a loss scaler would do. The figure counts numbers.
    """

    def findings() -> Iterator[Finding]:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            low = copy.deepcopy(aggregation).to(dtype)
            _silence_dropout(low)
            exact = copy.deepcopy(low).double()
            for scale in THOROUGH.input_scales:
                x = (scale * _draw((2, low.block_size, low.n_embd), low, THOROUGH.seed)).to(dtype)
                names = ["output", "gradient of x", *(f"gradient of {name}" for name, _ in low.named_parameters())]
                results = []
                for module, like in ((low, x), (exact, x.double())):
                    y = module(like.requires_grad_())
                    results.append([y, *_gradients(y, torch.full_like(y, 1 / (scale * y.numel())), like, module)])
                for name, got, reference in zip(names, *results, strict=True):
                    lost = int((reference.to(dtype).isfinite() & ~got.isfinite()).sum())
                    yield Finding(lost, 0, f"{name} in {dtype}, x of scale {scale:g}")

    return _verdict("range", aggregation, findings())


Law = Callable[[Aggregation], Verdict]
LAWS: tuple[Law, ...] = (
    shape,
    causality_prefix,
    causality_perturbation,
    batch,
    table,
    triangle,
    gradient,
    finite_range,
)


def _verdict(law: str, aggregation: Aggregation, findings: Iterable[Finding]) -> Verdict:
    nothing = Finding(0.0, 0.0, "nothing to compare")
    device = _device(aggregation)
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        worst = max(findings, key=lambda finding: finding.excess, default=nothing)
    figure = math.inf if math.isnan(worst.figure) else float(worst.figure)
    return Verdict(law, figure, worst.allowed, worst.where)


def _trials(
    aggregation: Aggregation, conditions: Conditions, lengths: Iterable[int], *, dropout: bool = False
) -> Iterator[Trial]:
    redrawable = any(True for _ in aggregation.parameters())
    for parameter_scale in conditions.parameter_scales if redrawable else (None,):
        module = copy.deepcopy(aggregation).double()
        if not dropout:
            _silence_dropout(module)
        parameters = "parameters as they are"
        if parameter_scale is not None:
            parameters = f"parameters of scale {parameter_scale:g}"
            with torch.no_grad():
                for i, parameter in enumerate(module.parameters()):
                    parameter.copy_(parameter_scale * _draw(parameter.shape, module, conditions.seed + 2 + i))
        for training in conditions.training:
            module.train(training)
            for time in lengths:
                for scale in conditions.input_scales:
                    x = scale * _draw((conditions.batch_size, time, module.n_embd), module, conditions.seed)
                    mode = "training" if training else "evaluation"
                    setting = f"T={time}, x of scale {scale:g}, {parameters}, {mode} mode"
                    yield Trial(module, x, parameter_scale is not None, setting)


def _draw(shape: Iterable[int], module: nn.Module, seed: int) -> Tensor:
    """Standard normal, float64, the same on every device; the global random state stays as it is."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).to(_device(module))


def _device(module: nn.Module) -> torch.device:
    tensors = [*module.parameters(), *module.buffers()]
    return tensors[0].device if tensors else torch.device("cpu")


def _silence_dropout(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, _DropoutNd):
            part.p = 0.0


def _whole_and_odd(block_size: int) -> list[int]:
    return sorted({(block_size - 1) | 1, block_size})


def _lengths(block_size: int) -> list[int]:
    """Every short one, then an odd one and the whole."""
    return sorted({*range(1, min(block_size, 8) + 1), *_whole_and_odd(block_size)})


def _gradients(y: Tensor, cotangent: Tensor, x: Tensor, module: nn.Module) -> list[Tensor]:
    """Of x and of every parameter; zeros where y does not depend on it."""
    inputs = [x, *module.parameters()]
    if not y.requires_grad:
        return [torch.zeros_like(tensor) for tensor in inputs]
    gradients = torch.autograd.grad(y, inputs, cotangent, allow_unused=True, materialize_grads=True)
    return list(gradients)


def _gradient_fault(parameter: nn.Parameter, *, may_be_zero: bool) -> str:
    grad = parameter.grad
    if grad is None:
        return "has no gradient"
    if not grad.isfinite().all():
        return "has a gradient that is not finite"
    if not grad.is_contiguous():
        return "has a gradient that is not contiguous"
    return "" if may_be_zero or grad.any() else "has a gradient of zeros"


def _largest(tensor: Tensor) -> float:
    return tensor.abs().max().item()


def _magnitude(tensor: Tensor) -> float:
    """The largest absolute value, to divide an error by; never zero."""
    return max(_largest(tensor), torch.finfo(tensor.dtype).tiny)


def _kind(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype} on {tensor.device}"

"""Copies of a subject under many settings, each with an input: what the laws are tried on."""

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from trilab.agg.base import Aggregation
from trilab.laws.verdict import Setting
from trilab.model import LanguageModel

# What laws judge: (B, T, C) → (B, T, C), or tokens (B, T) → logits (B, T, V).
Subject = Aggregation | LanguageModel


@dataclass(frozen=True)
class Conditions:
    """Where a law is tried: every combination of these.

    parameter_scales: standard deviation of the redrawn parameters; None leaves them as they are.
    input_scales: standard deviation of x; a model's tokens have none.
    training: modes, True for training.
    batch_size: rows of the input.
    seed: of every draw.
    cuts: positions after which the future is changed or taken away, for the forms of causality; None: every one.
    lengths: T, for the forms of causality; None: the block size and the nearest odd number.
    """

    parameter_scales: tuple[float | None, ...] = (None, 1.0, 1e2, 1e5)
    input_scales: tuple[float, ...] = (1.0, 1e2, 1e4)
    training: tuple[bool, ...] = (False, True)
    batch_size: int = 2
    seed: int = 0
    cuts: Sequence[int] | None = None
    lengths: Sequence[int] | None = None


THOROUGH = Conditions()
# Gradients of saturated weights are differences of nearly equal numbers: compared at ordinary scales only. So is a
# whole model: each layer multiplies, so that after some layers at large scales rounding alone decides which of two
# scores is the larger, and two right ways to the same number differ wholly.
ORDINARY = Conditions(parameter_scales=(None, 1.0), input_scales=(1.0,))

# Relative, between two ways to the same numbers in float32, at ordinary scales.
_IN_FLOAT32 = 1e-4


@dataclass(frozen=True)
class Trial:
    """A copy of the subject under one setting, and an input for it, in float64 unless float32 was asked for.

    seed: of what the subject draws itself, the same for every call.
    """

    module: Subject
    input: Tensor
    setting: Setting
    seed: int = 0

    def __call__(self, given: Tensor) -> Tensor:
        """The output for this input, detached; in training mode it is made with gradients enabled, as in training.

        The global random state stays as it is.

        Raises:
            Misshapen: it is not one vector for each position.
        """
        with torch.set_grad_enabled(self.setting.training):
            return self.attached(given).detach()

    def attached(self, given: Tensor) -> Tensor:
        """The same with its graph, where gradients are enabled."""
        y = seeded(self.module, given, self.seed)
        if y.shape[:2] != given.shape[:2]:
            raise Misshapen(f"{kind(given)} gives {kind(y)}")
        return y

    @property
    def dtype(self) -> torch.dtype:
        """In which it is computed."""
        dtype: torch.dtype = getattr(torch, self.setting.dtype)
        return dtype

    def allowed(self, exactly: float) -> float:
        """How far two ways to the same numbers may differ, given that for float64."""
        return exactly if self.dtype == torch.float64 else _IN_FLOAT32


class Misshapen(Exception):
    """An output that is not one vector for each position: no law about positions can be tried on it."""


def conditions_of(subject: Subject, conditions: Conditions | None) -> Conditions:
    """What was asked for, or what is right for an aggregation by itself or for a whole model."""
    if conditions is not None:
        return conditions
    return THOROUGH if isinstance(subject, Aggregation) else ORDINARY


def ordinary(conditions: Conditions) -> Conditions:
    """The part of them that is at ordinary scales; it may be empty."""
    return replace(
        conditions,
        parameter_scales=tuple(scale for scale in conditions.parameter_scales if scale in ORDINARY.parameter_scales),
        input_scales=tuple(scale for scale in conditions.input_scales if scale in ORDINARY.input_scales),
    )


def trials(
    subject: Subject,
    conditions: Conditions,
    lengths: Iterable[int],
    *,
    dropout: bool = False,
    dtype: torch.dtype = torch.float64,
) -> Iterator[Trial]:
    """Every combination of the conditions, in float64 or float32; dropout modules are off unless asked for."""
    lengths = list(lengths)
    computed = "float32" if dtype == torch.float32 or _works_in_float32(subject) else "float64"
    redrawable = any(True for _ in subject.parameters())
    scales: Sequence[float | None] = conditions.input_scales if isinstance(subject, Aggregation) else (None,)
    for parameter_scale in conditions.parameter_scales if redrawable else (None,):
        module = copy.deepcopy(subject)
        module = module.double() if dtype == torch.float64 else module.float()  # not .to: it makes complex numbers real
        if not dropout:
            silence_dropout(module)
        if parameter_scale is not None:
            redraw(module, parameter_scale, conditions.seed + 2)
        for training in conditions.training:
            module.train(training)
            for time in lengths:
                for scale in scales:
                    given = cast(draw_input(module, conditions.batch_size, time, scale, conditions.seed), dtype)
                    setting = Setting(time, scale, parameter_scale, training, computed)
                    yield Trial(module, given, setting, conditions.seed)


def comparable(trials: Iterable[Trial]) -> Iterator[Trial]:
    """Those whose outputs can be compared between calls of different shapes.

    Not where the subject draws random numbers itself, as F.dropout and added noise do: other shapes draw others. Nor in
    float32 at large scales, where rounding alone decides which of two scores is the larger.
    """
    for trial in trials:
        x, parameters = trial.setting.input_scale, trial.setting.parameter_scale
        usual = x in (None, *ORDINARY.input_scales) and parameters in ORDINARY.parameter_scales
        if (usual or trial.dtype == torch.float64) and not _draws(trial):
            yield trial


@torch.no_grad()
def _draws(trial: Trial) -> bool:
    """Whether it takes random numbers from torch and the output depends on them.

    By chance two masks can be the same, if there are few numbers to drop. What differs under the same seed too, a state
    kept from call to call or no number, is a fault and no draw.
    """
    with torch.random.fork_rng(devices=_generators(trial.input)):
        before = _random_state(trial.input)
        trial.module(trial.input)
        if before.equal(_random_state(trial.input)):
            return False
    one, again, *others = (seeded(trial.module, trial.input, seed) for seed in (0, 0, *range(1, 17)))
    return one.equal(again) and not all(one.equal(other) for other in others)


def seeded(module: Subject, given: Tensor, seed: int) -> Tensor:
    """The output where torch's random state starts at this seed; afterwards it is as before."""
    with torch.random.fork_rng(devices=_generators(given)):
        # torch.manual_seed formats a stack trace each time for devices that are not in use: slow beside a small module
        torch.default_generator.manual_seed(seed)
        if given.is_cuda:
            torch.cuda.manual_seed(seed)
        y: Tensor = module(given)
    return y


def _generators(given: Tensor) -> list[torch.device]:
    """The device whose random state counts beside the CPU's."""
    return [given.device] if given.is_cuda else []


def _random_state(given: Tensor) -> Tensor:
    return torch.cat([torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in _generators(given))])


_in_float32: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()  # asked of one subject by many laws


def _works_in_float32(subject: Subject) -> bool:
    """Whether one of its aggregations rounds to float32 inside: x changed by one part in 1e13 gives the same bits."""
    if subject not in _in_float32:
        _in_float32[subject] = _rounds_to_float32(subject)
    return _in_float32[subject]


@torch.no_grad()
def _rounds_to_float32(subject: Subject) -> bool:
    for layer in layers(subject):
        module = copy.deepcopy(layer).double().eval()
        redraw(module, 1.0, 2)
        x, noise, other = (draw_input(module, 1, min(module.block_size, 8), 1.0, seed) for seed in (0, 1, 2))
        y, nearly, elsewhere = (seeded(module, given, 0) for given in (x, x * (1 + 1e-13 * noise), other))
        if y.equal(nearly) and not y.equal(elsewhere):
            return True
    return False


def draw_input(subject: Subject, batch_size: int, time: int, scale: float | None, seed: int) -> Tensor:
    """x (B, T, C) of this scale, float64, or a model's tokens (B, T)."""
    if isinstance(subject, LanguageModel):
        return draw_ids(subject.vocab_size, (batch_size, time), subject, seed)
    assert scale is not None
    return scale * draw((batch_size, time, subject.n_embd), subject, seed)


def cast(given: Tensor, dtype: torch.dtype) -> Tensor:
    """x in this dtype; tokens as they are."""
    return given.to(dtype) if given.is_floating_point() else given


def draw(shape: Iterable[int], module: nn.Module, seed: int) -> Tensor:
    """Standard normal, float64, the same on every device; the global random state stays as it is."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).to(device_of(module))


def draw_ids(count: int, shape: tuple[int, ...], module: nn.Module, seed: int) -> Tensor:
    """Ids 0 … count - 1, all as likely."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(count, shape, generator=generator).to(device_of(module))


@torch.no_grad()
def redraw(module: nn.Module, scale: float, seed: int) -> None:
    """Every parameter anew, normal with this standard deviation."""
    for i, parameter in enumerate(module.parameters()):
        parameter.copy_(scale * draw(parameter.shape, module, seed + i))


def device_of(module: nn.Module) -> torch.device:
    tensors = [*module.parameters(), *module.buffers()]
    return tensors[0].device if tensors else torch.device("cpu")


def silence_dropout(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, _DropoutNd):
            part.p = 0.0


def whole_and_odd(block_size: int) -> list[int]:
    return sorted({(block_size - 1) | 1, block_size})


def every_length(block_size: int) -> list[int]:
    """Every short one, then an odd one and the whole."""
    return sorted({*range(1, min(block_size, 8) + 1), *whole_and_odd(block_size)})


def layers(subject: Subject) -> list[Aggregation]:
    """The aggregation itself, or that of each of a model's layers."""
    return [part for part in subject.modules() if isinstance(part, Aggregation)]


def with_gradients(y: Tensor, cotangent: Tensor, given: Tensor, module: nn.Module) -> dict[str, Tensor]:
    """The output, and by name the gradients of x and of every parameter; zeros where y does not depend on it."""
    leaves = ({"x": given} if given.is_floating_point() else {}) | dict(module.named_parameters())
    gradients = [torch.zeros_like(leaf) for leaf in leaves.values()]
    if y.requires_grad:
        gradients = list(
            torch.autograd.grad(y, list(leaves.values()), cotangent, allow_unused=True, materialize_grads=True)
        )
    return {"output": y.detach()} | {
        f"gradient of {name}": gradient for name, gradient in zip(leaves, gradients, strict=True)
    }


def relative(one: Tensor, two: Tensor) -> float:
    """The largest difference over the largest magnitude."""
    return largest(one - two) / max(magnitude(one), magnitude(two))


def differences(one: dict[str, Tensor], two: dict[str, Tensor]) -> dict[str, float]:
    """By name, relative. Gradients that are 0 but for rounding, next to the largest one, are compared with that."""
    floor = 1e-5 * max((magnitude(g) for name, g in [*one.items(), *two.items()] if name != "output"), default=0.0)
    return {
        name: largest(one[name] - two[name])
        / max(magnitude(one[name]), magnitude(two[name]), 0.0 if name == "output" else floor)
        for name in one
    }


def largest(tensor: Tensor) -> float:
    return tensor.abs().max().item()


def magnitude(tensor: Tensor) -> float:
    """The largest absolute value, to divide an error by; never zero."""
    return max(largest(tensor), torch.finfo(tensor.dtype).tiny)


def kind(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} {tensor.dtype} on {tensor.device}"

"""The gate: what is about to train is put before the laws of causality, and refused if it sees the future."""

import copy
import math
import random
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import torch
from rich.text import Text
from torch import Tensor, nn

from trilab.agg.base import Aggregation, accumulator
from trilab.block import Block
from trilab.causes import likely_cause
from trilab.errors import BadInput
from trilab.influence import draw, future, influence, response
from trilab.laws import (
    Conditions,
    Setting,
    Subject,
    Verdict,
    batch,
    causality_gradient,
    causality_perturbation,
    causality_prefix,
    rounding,
)
from trilab.laws.trials import device_of, draw_input, trials
from trilab.model import LanguageModel

# Scale of parameters (None: as they are), scale of x, training mode; what tells most comes first.
SETTINGS = (
    (None, 1.0, True),
    (1e5, 1e4, True),  # finite masks are outbid
    (1.0, 1.0, True),  # what a zero at the start hides is seen
    (None, 1.0, False),
    (1e5, 1e4, False),
    (1.0, 1.0, False),
    (None, 1e4, True),
    (None, 1e4, False),
)
# Positions that are tried where there is no time for every one; see _most_telling_first.
SPOTS = 8
ADVICE = "Mend it, or set check.causality=warn (or off) to train all the same."
# Seconds between two words on how far it has come.
PAUSE = 3.0


class Leak(BadInput):
    """What sees the future: a strategy, a model, or the way in which it is run.

    `line` says it all in one line: who, which output moves with which input, by how much, under which setting, what it
    looks like, what to do. `picture` is the map of which output moves with which input. str() has one below the other.
    """

    def __init__(self, line: str, picture: Text) -> None:
        super().__init__(line, picture)
        self.line = line
        self.picture = picture

    def __str__(self) -> str:
        return f"{self.line}\n{self.picture.plain}"


@dataclass(frozen=True)
class Part:
    """What was tried of a strategy, of the model as a whole, or of the way in which it is run.

    name: as it is told.
    layers: those with this strategy; they are alike but for their parameters, and the first was examined.
    positions: T, all there are.
    tried: setting in words → at how many of the positions.
    unclear: settings under which outputs are not finite, so that nothing can be said.
    """

    name: str
    layers: tuple[int, ...]
    positions: int
    tried: dict[str, int]
    unclear: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = f"{len(self.layers)} × {self.name}" if self.layers else self.name
        if not self.tried:
            return f"{name} at no position: its outputs are not finite"
        most, least = max(self.tried.values()), min(self.tried.values())
        at_most = sum(count == most for count in self.tried.values())
        words = f"{name} at {most} of {self.positions} positions in {at_most} setting{'s' * (at_most > 1)}"
        if least < most:
            words += f", at {least} or more in {len(self.tried) - at_most} more"
        if self.unclear:
            words += f", not finite in {len(self.unclear)} more"
        return words


@dataclass(frozen=True)
class Coverage:
    """What was examined and found causal, and the seconds that it took; the sum of two covers both."""

    parts: tuple[Part, ...]
    seconds: float

    def __str__(self) -> str:
        return f"causality: {', '.join(map(str, self.parts))}; {self.seconds:.1f} s"

    def __add__(self, other: "Coverage") -> "Coverage":
        return Coverage(self.parts + other.parts, self.seconds + other.seconds)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for summary.json."""
        return asdict(self)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> "Coverage":
        """What `as_dict` has made plain."""
        return cls(tuple(Part(**part) for part in plain["parts"]), plain["seconds"])


def examine(
    model: LanguageModel,
    *,
    device: torch.device | None = None,
    seconds: float = 3.0,
    model_seconds: float = 1.0,
    tell: Callable[[str], None] | None = None,
) -> Coverage:
    """Put each strategy of the model by itself, then the whole model, before both forms of causality on its outputs.

    Then, under the first of SETTINGS, before the batch law and, each strategy, at SPOTS positions before the form of
    causality on gradients.

    On float64 copies, on the model's device (on the CPU where the device has no float64). A strategy is tried at every
    position under the first of SETTINGS, at some under the next two, however long that takes; at every position under
    all of them as long as `seconds` last. Layers whose strategies are alike but for their parameters are examined once.
    The model is tried on tokens, at some positions, and at every one as long as `model_seconds` last. Model and random
    state stay as they are.

    Args:
        device: where to examine it; None: where the model is.
        seconds: for one strategy.
        model_seconds: for the model as a whole.
        tell: is given a line now and then when it takes long.
    Raises:
        Leak: an output moves with later inputs, or with the length of the text.
        BadInput: something does not give one output for each input.
        Exception: whatever the strategy raises when it is called, with a note that it was being examined.
    """
    began = time.perf_counter()
    device = device or device_of(model)
    if device.type == "mps":
        device = torch.device("cpu")
    if device != device_of(model):
        model = copy.deepcopy(model).to(device)
    length = model.block_size
    aggregations = [block.agg for block in cast(list[Block], list(model.blocks))]
    parts = []
    for layers in _alike(aggregations):
        one = aggregations[layers[0]]
        drawn = any(True for _ in one.parameters())
        settings = [Setting(length, x, scale, mode) for scale, x, mode in SETTINGS if drawn or scale is None]
        parts.append(
            _try(one, Part(_strategy(one), layers, length, {}), settings, (length, SPOTS, SPOTS), seconds, tell)
        )
    settings = [Setting(length, None, scale, mode) for scale, mode in ((None, True), (1.0, True), (None, False))]
    parts.append(_try(model, Part("the model", (), length, {}), settings, (SPOTS,), model_seconds, tell))
    return Coverage(tuple(parts), time.perf_counter() - began)


def examine_path(
    forward: Callable[[Tensor], Tensor],
    tokens: Tensor,
    vocab_size: int,
    dtype: torch.dtype,
    *,
    name: str = "the model as it will train",
    seconds: float = 1.0,
) -> Coverage:
    """Put the way in which a model is really run (device, precision, compiled) before the perturbation form.

    The tokens after a position are changed, under the same random seed. Equal shapes give equal bits in most kernels;
    allowed is the rounding of an FFT in the dtype that sums are kept in, and four steps of a narrower dtype, over whose
    edge it may tip a number. With gradients or without, as the caller has set it.

    Args:
        forward: (B, T) ids → (B, T, V) logits.
        tokens: (B, T) ids, where they are wanted.
        vocab_size: V.
        dtype: of the products.
        name: as it is told.
        seconds: for all positions; some are tried however long they take.
    Returns:
        What was covered. No position, if two equal calls differ: then nothing can be said.
    Raises:
        Leak: an output moves with later tokens.
    """
    began = time.perf_counter()
    length = tokens.shape[1]
    setting = f"T={length}, tokens, {str(dtype).removeprefix('torch.')} on {tokens.device.type}"
    allowed = rounding(accumulator(dtype), length)
    if dtype != accumulator(dtype):
        allowed += 4 * torch.finfo(dtype).eps
    step = torch.randint(1, max(vocab_size, 2), tokens.shape, generator=torch.Generator().manual_seed(0))
    other = (tokens + step.to(tokens.device)) % vocab_size

    def run(given: Tensor) -> Tensor:
        torch.manual_seed(0)
        return forward(given).detach().to(accumulator(dtype))

    tried = 0
    with torch.random.fork_rng(devices=[tokens.device] if tokens.is_cuda else []):
        before = run(tokens)
        for cut in _most_telling_first(length) if before.equal(run(tokens)) else ():
            after = run(torch.cat([tokens[:, : cut + 1], other[:, cut + 1 :]], 1))
            moved = (after - before)[:, : cut + 1].abs().amax((0, 2))  # (t + 1,)
            moved /= max(before.abs().max().item(), after.abs().max().item(), torch.finfo(dtype).tiny)
            if not (moved <= allowed).all():
                matrix = response(run, tokens, other)
                what = _movement(matrix, int(moved.argmax()), cut)
                raise _leak(name, what, moved.max().item(), setting, None, matrix)
            tried += 1
            if tried >= SPOTS and time.perf_counter() - began > seconds:
                break
    return Coverage((Part(name, (), length, {setting: tried}),), time.perf_counter() - began)


def _try(
    subject: Subject,
    part: Part,
    settings: Sequence[Setting],
    surely: Sequence[int],
    seconds: float,
    tell: Callable[[str], None] | None,
) -> Part:
    """Both laws under one setting after the other, as long as the seconds last.

    Args:
        surely: positions to try under the first settings, however long they take.
    Raises:
        Leak, BadInput: as `examine`.
    """
    began = time.perf_counter()
    cuts = _most_telling_first(part.positions)
    unclear: list[str] = []
    tried: dict[str, int] = {}
    each = 0.0  # seconds a position
    for place, setting in enumerate(settings):
        at_least = surely[place] if place < len(surely) else 0
        started = told = time.perf_counter()
        done = 0
        while done < len(cuts):
            now = time.perf_counter()
            left = seconds - (now - began)
            if done >= at_least and left < SPOTS * each:
                break
            if tell and done and now - told > PAUSE:
                tell(f"causality: {part.name} at {done} of {len(cuts)} positions; {setting}")
                told = now
            span = PAUSE if done < at_least else min(PAUSE, left)  # seconds until the clock is looked at again
            size = max(SPOTS, int(span / each)) if each else SPOTS
            if done < at_least:
                size = min(size, at_least - done)
            if not _judge(subject, part, setting, cuts[done : done + size]):
                unclear.append(str(setting))
                break
            done = min(done + size, len(cuts))
            each = (time.perf_counter() - started) / done
        if str(setting) in unclear:
            continue
        if done == 0:
            break
        tried[str(setting)] = done
    # last, since what breaks a form of causality may break these too, and is better told by its outputs
    _judge_rows(subject, part, settings[0])
    _judge_gradients(subject, part, settings[0], cuts[:SPOTS])
    return replace(part, tried=tried, unclear=tuple(unclear))


def _judge(subject: Subject, part: Part, setting: Setting, cuts: Sequence[int]) -> bool:
    """Both laws at these positions.

    Returns:
        Whether they could be judged: not where outputs are no finite numbers, whatever the future holds.
    Raises:
        Leak, BadInput: as `examine`.
    """
    conditions = replace(_conditions(setting), cuts=cuts)
    for law in (causality_perturbation, causality_prefix):
        verdict = _noted(part, law, subject, conditions)
        if not verdict.passed:
            if not math.isfinite(verdict.worst) and verdict.position is not None and not _finite(subject, setting):
                return False
            raise _refusal(subject, part, verdict)
    return True


def _judge_rows(subject: Subject, part: Part, setting: Setting) -> None:
    """Another row of the batch is another text: what reads it may read what comes next in its own.

    Raises:
        Leak: rows of the batch are mixed.
    """
    verdict = _noted(part, batch, subject, replace(_conditions(setting), batch_size=2))
    if not verdict.passed and verdict.setting is not None and _finite(subject, setting):
        raise Leak(
            f"{_named(part)} mixes rows of the batch: {verdict.what}, {_amount(verdict.worst)} ({verdict.setting}). "
            f"One text must not be read with the help of others. {ADVICE}",
            Text(""),
        )


def _judge_gradients(subject: Subject, part: Part, setting: Setting, cuts: Sequence[int]) -> None:
    """Outputs may be causal and gradients not, where a value is added without its gradient.

    Raises:
        Leak: a gradient flows from an output to a later input.
    """
    if not isinstance(subject, Aggregation):
        return
    conditions = replace(_conditions(setting), cuts=cuts)
    verdict = _noted(part, causality_gradient, subject, conditions)
    if not verdict.passed and verdict.setting is not None and _finite(subject, setting):
        (trial,) = trials(subject, conditions, [setting.time])
        raise Leak(
            f"{_named(part)} learns from the future: {verdict.what}, by {verdict.worst:.2g} of the largest gradient "
            f"({verdict.setting}), though its outputs may not show it. {ADVICE}",
            draw(influence(trial.attached, trial.input)),
        )


def _noted(part: Part, law: Callable[[Subject, Conditions], Verdict], subject: Subject, how: Conditions) -> Verdict:
    try:
        return law(subject, how)
    except Exception as error:
        error.add_note(
            f"{part.name} was being examined for causality: it must take float64 and every 1 ≤ T ≤ block_size. "
            "check.causality=off trains without that."
        )
        raise


@torch.no_grad()
def _finite(subject: Subject, setting: Setting) -> bool:
    """Whether outputs are finite numbers under a setting, without a change of the future."""
    (trial,) = trials(subject, _conditions(setting), [setting.time])
    another = draw_input(subject, len(trial.input), setting.time, setting.input_scale, seed=1)
    return all(bool(trial(given).isfinite().all()) for given in (trial.input, another))


def _conditions(setting: Setting) -> Conditions:
    scales = () if setting.input_scale is None else (setting.input_scale,)
    time = (setting.time,)  # the prefix form goes through all the shorter ones
    return Conditions(
        (setting.parameter_scale,), scales, (setting.training,), lengths=time
    )  # two rows: a mixer may look ahead by way of another row


def _refusal(subject: Subject, part: Part, verdict: Verdict) -> BadInput:
    """What a broken law comes to."""
    name = _named(part)
    if verdict.setting is None or verdict.position is None or verdict.cut is None:
        return BadInput(f"{name} does not give one output for each input: {verdict.what}.")
    matrix = _moves(subject, verdict.setting)
    if verdict.law == causality_prefix.__name__:
        what = f"output {verdict.position} of {verdict.setting.time} is another when the text ends there"
    else:
        what = _movement(matrix, verdict.position, verdict.cut)
    if isinstance(subject, Aggregation):
        cause = likely_cause(subject, verdict.setting)
    else:
        cause = "a leak around the strategies, or one too small to be seen in a strategy by itself"
    return _leak(name, what, verdict.worst, str(verdict.setting), cause, matrix)


def _named(part: Part) -> str:
    """A strategy and where it stands."""
    if not part.layers:
        return part.name
    return f"{part.name} (layer{'s' * (len(part.layers) > 1)} {', '.join(map(str, part.layers))})"


def _leak(name: str, what: str, figure: float, setting: str, cause: str | None, matrix: Tensor) -> Leak:
    looks = f"Looks like: {cause}. " if cause else ""
    return Leak(f"{name} sees the future: {what}, {_amount(figure)} ({setting}). {looks}{ADVICE}", draw(matrix))


def _amount(figure: float) -> str:
    return f"by {figure:.2g} of the largest output" if math.isfinite(figure) else "to what is no number"


def _movement(matrix: Tensor, output: int, cut: int) -> str:
    """Which one input after the cut moves this output most, if one by itself does."""
    row = matrix[output].where(future(matrix)[output], 0).nan_to_num(torch.inf)[cut + 1 :]
    later = f"input {cut + 1 + int(row.argmax())}" if row.any() else f"the inputs after {cut}"
    return f"output {output} moves with {later}"


def _moves(subject: Subject, setting: Setting) -> Tensor:
    """(T, T): which output moves with which input by itself; inputs and what replaces them are those of the law."""
    conditions = _conditions(setting)
    (trial,) = trials(subject, conditions, [setting.time], dtype=getattr(torch, setting.dtype))
    if isinstance(subject, LanguageModel):
        other = (trial.input + 1) % subject.vocab_size
    else:
        other = draw_input(subject, conditions.batch_size, setting.time, setting.input_scale, conditions.seed + 1)
        other = other.to(trial.input.dtype)
    return response(trial, trial.input, other)


def _most_telling_first(positions: int) -> list[int]:
    """The edges, around the middle, and all the others in an order drawn by lot."""
    middle = positions // 2
    first = [t for t in (0, 1, middle - 1, middle, middle + 1, positions - 2) if 0 <= t < positions]
    others = random.Random(0).sample(range(positions), positions)
    return list(dict.fromkeys([*first, *others]))


def _alike(aggregations: Sequence[Aggregation]) -> list[tuple[int, ...]]:
    """Layers, those together whose strategies differ in the values of their parameters only."""
    groups: list[list[int]] = []
    for layer, one in enumerate(aggregations):
        for group in groups:
            if _differ_in_values_only(aggregations[group[0]], one):
                group.append(layer)
                break
        else:
            groups.append([layer])
    return [tuple(group) for group in groups]


def _differ_in_values_only(one: nn.Module, two: nn.Module) -> bool:
    """Same classes, same attributes, same buffers, parameters of the same shapes. In doubt not."""
    here, there = dict(one.named_modules()), dict(two.named_modules())
    return (
        here.keys() == there.keys()
        and all(type(here[name]) is type(there[name]) for name in here)
        and all(_equal(_own(here[name]), _own(there[name])) for name in here)
        and _equal(dict(one.named_buffers()), dict(two.named_buffers()))
        and [p.shape for p in one.parameters()] == [p.shape for p in two.parameters()]
    )


def _own(module: nn.Module) -> dict[str, Any]:
    """The attributes that its class has set."""
    return {name: value for name, value in vars(module).items() if name not in vars(nn.Module())}


def _equal(one: Any, two: Any) -> bool:
    if isinstance(one, nn.Parameter) and isinstance(two, nn.Parameter):  # some modules list theirs, as nn.GRU does
        return one.shape == two.shape
    if isinstance(one, weakref.ref) and isinstance(two, weakref.ref):
        return True
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(_equal(a, b) for a, b in zip(one, two, strict=True))
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(_equal(one[key], two[key]) for key in one)
    if isinstance(one, Tensor) and isinstance(two, Tensor):
        return one.dtype == two.dtype and one.equal(two)
    plain = isinstance(one, bool | int | float | str | tuple) and type(one) is type(two)
    return one is two or (plain and bool(one == two))


def _strategy(aggregation: Aggregation) -> str:
    """The file's name for one of our strategies, the class's name for a foreign one."""
    cls = type(aggregation)
    own = cls.__module__.startswith("trilab.agg.")
    return cls.__module__.removeprefix("trilab.agg.") if own else cls.__name__

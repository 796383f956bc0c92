"""The forms of causality. See the package for why each is needed, and for what is rounding and what a leak."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from trilab.agg.base import Aggregation
from trilab.laws.trials import (
    ORDINARY,
    Conditions,
    Misshapen,
    Subject,
    Trial,
    comparable,
    conditions_of,
    device_of,
    draw,
    draw_ids,
    largest,
    layers,
    magnitude,
    ordinary,
    trials,
    whole_and_odd,
)
from trilab.laws.verdict import Finding, Verdict, judge
from trilab.model import LanguageModel

# Relative. The same product over another number of tokens or rows is summed in another order, and a softmax turns an
# error of one part in 1e16 of a large score into a much larger one of the weight; below float32's resolution nothing
# can be learned from a leak.
REORDERED = 1e-6

# Of the numbers (rows · T · (T + C)) that one call of the perturbation form may hold at once, about.
_AT_ONCE = 2**22


def rounding(dtype: torch.dtype, time: int) -> float:
    """Largest relative change of an output that is still rounding when later inputs change: 64 · eps · log2(2T).

    Shapes being equal, sums run in the same order, and an ordinary causal mixer gives the same bits. One that goes
    through an FFT does not: each of its outputs is rounded to about eps · log2(n) of the largest number in the row,
    n = 2T with the padding, so earlier outputs wobble with later, larger inputs. A convolution takes three transforms,
    and what comes after (projections, norms, more layers) multiplies; 64 leaves room for both.
    """
    return 64 * torch.finfo(dtype).eps * math.log2(2 * time)


def causality_prefix(subject: Subject, conditions: Conditions | None = None) -> Verdict:
    """Output t of the whole sequence equals the last output of the prefix [:, :t+1], for every t.

    Dropout is off, and what draws random numbers of its own is left out: another length draws others.
    """
    conditions = conditions_of(subject, conditions)

    def findings() -> Iterator[Finding]:
        for trial in comparable(trials(subject, conditions, _lengths(subject, conditions))):
            allowed = trial.allowed(REORDERED)
            time = trial.setting.time
            try:
                whole = trial(trial.input)
            except Misshapen as error:
                yield Finding(math.inf, allowed, str(error), trial.setting)
                continue
            scale = magnitude(whole)
            for t in _cuts(conditions, time):
                last = trial(trial.input[:, : t + 1])[:, -1]
                what = f"output {t} of {time} is another when the text ends there"
                yield Finding(largest(whole[:, t] - last) / scale, allowed, what, trial.setting, t, t)

    with torch.no_grad():
        return judge("causality_prefix", findings(), device_of(subject))


def causality_perturbation(subject: Subject, conditions: Conditions | None = None) -> Verdict:
    """Outputs 0 … t stay where they are when all inputs after t are replaced, x by large ones, for every t.

    Dropout is on in training mode, under the same seed for both calls, and so are gradients. At ordinary scales a
    float32 copy is tried too: it may take another path. Many t are tried as rows of one batch. Rows that mix, which is
    for another law to find, would then look like a leak: what moves is tried again by itself.
    """
    conditions = conditions_of(subject, conditions)

    def findings() -> Iterator[Finding]:
        for some, dtype in ((conditions, torch.float64), (ordinary(conditions), torch.float32)):
            for trial in trials(subject, some, _lengths(subject, some), dropout=True, dtype=dtype):
                other = _another(trial, some)
                yield from _confirmed(trial, _cuts(some, trial.setting.time - 1), partial(_moves, trial, other))

    with torch.no_grad():
        return judge("causality_perturbation", findings(), device_of(subject))


def causality_gradient(subject: Subject, conditions: Conditions = ORDINARY) -> Verdict:
    """The gradient of output t with respect to x_s is zero for every s > t.

    What adds m - m.detach(), m an average over all of time, has causal outputs and learns from the future all the same.
    The output is weighed with random numbers; t, and what is tried again, are as in the perturbation form. A model has
    tokens, which have no gradient: there is nothing to compare, and it passes.
    """

    def findings() -> Iterator[Finding]:
        if not isinstance(subject, Aggregation):
            return
        for trial in trials(subject, conditions, _lengths(subject, conditions), dropout=True):
            yield from _confirmed(trial, _cuts(conditions, trial.setting.time - 1), partial(_reaches, trial))

    with torch.enable_grad():
        return judge("causality_gradient", findings(), device_of(subject))


def _confirmed(trial: Trial, cuts: Sequence[int], look: Callable[[Sequence[int]], list[Finding]]) -> Iterator[Finding]:
    """What is found for all cuts at once; of what exceeds, the first that does so by itself."""
    try:
        together = look(cuts)
        yield from (finding for finding in together if finding.excess <= 1)
        for suspect in sorted((f for f in together if f.excess > 1), key=lambda f: f.excess, reverse=True):
            assert suspect.cut is not None
            (alone,) = look([suspect.cut])
            yield alone
            if alone.excess > 1:
                return
    except Misshapen as error:
        yield Finding(math.inf, 0, str(error), trial.setting)


def _lengths(subject: Subject, conditions: Conditions) -> Sequence[int]:
    return whole_and_odd(subject.block_size) if conditions.lengths is None else conditions.lengths


def _cuts(conditions: Conditions, end: int) -> list[int]:
    return [t for t in (range(end) if conditions.cuts is None else conditions.cuts) if t < end]


def _another(trial: Trial, conditions: Conditions) -> Tensor:
    """An input that differs everywhere: large, or for a model another token at each position."""
    if isinstance(trial.module, LanguageModel):
        others = max(trial.module.vocab_size - 1, 1)
        step = 1 + draw_ids(others, tuple(trial.input.shape), trial.module, conditions.seed + 1)
        return (trial.input + step) % trial.module.vocab_size
    other = max(conditions.input_scales) * draw(trial.input.shape, trial.module, conditions.seed + 1)
    return other.to(trial.input.dtype)


def _at_once(trial: Trial) -> int:
    """How many cuts one call may try. With gradients enabled, every layer's numbers are held at the same time."""
    rows, time = trial.input.shape[:2]
    channels = 1 if isinstance(trial.module, LanguageModel) else trial.module.n_embd
    held = len(layers(trial.module)) if trial.setting.training else 1
    return max(1, _AT_ONCE // (rows * time * (time + channels) * held))


def _moves(trial: Trial, other: Tensor, cuts: Sequence[int]) -> list[Finding]:
    """For each cut the output at or before it that moves most."""
    rows, time = trial.input.shape[:2]
    size = _at_once(trial)
    moved: list[Tensor] = []  # (T,) for each cut
    unchanged: dict[int, Tensor] = {}  # outputs by the number of rows
    scale = torch.finfo(torch.float64).tiny
    for start in range(0, len(cuts), size):
        some = torch.tensor(cuts[start : start + size], device=other.device)
        kept = (torch.arange(time, device=other.device) <= some[:, None]).repeat_interleave(rows, 0)  # (K·B, T)
        same, changed = (x.repeat(len(some), *[1] * (x.ndim - 1)) for x in (trial.input, other))
        # both calls have the same rows: another number of rows may be multiplied in another order
        if len(same) not in unchanged:
            unchanged[len(same)] = trial(same)
        before = unchanged[len(same)]
        after = trial(torch.where(kept if same.ndim == 2 else kept[..., None], same, changed))
        change = (after - before).abs().amax(-1).masked_fill(~kept, 0)
        moved += change.view(len(some), rows, time).amax(1)
        scale = max(scale, magnitude(before), magnitude(after))
    allowed = rounding(trial.dtype, time)
    return [
        Finding(
            largest(change) / scale,
            allowed,
            f"output {int(change.argmax())} moves with the inputs after {cut}",
            trial.setting,
            int(change.argmax()),
            cut,
        )
        for cut, change in zip(cuts, moved, strict=True)
    ]


def _reaches(trial: Trial, cuts: Sequence[int]) -> list[Finding]:
    """For each cut t the input after it that the gradient of output t reaches most."""
    rows, time, channels = trial.input.shape
    size = _at_once(trial)
    weigh = draw((rows, channels), trial.module, trial.seed + 1)
    reached: list[Tensor] = []  # (T,) for each cut
    scale = torch.finfo(torch.float64).tiny
    for start in range(0, len(cuts), size):
        some = torch.tensor(cuts[start : start + size], device=trial.input.device).repeat_interleave(rows)  # (K·B,)
        x = trial.input.repeat(len(some) // rows, 1, 1).requires_grad_()
        y = trial.attached(x)
        cotangent = torch.zeros_like(y)
        cotangent[torch.arange(len(some), device=some.device), some] = weigh.repeat(len(some) // rows, 1).to(y.dtype)
        if y.requires_grad:
            # of a sum: given a cotangent, torch would import sympy, which takes longer than a small strategy's laws
            weighed = (y * cotangent).sum()
            (into,) = torch.autograd.grad(weighed, x, allow_unused=True, materialize_grads=True)
        else:
            into = torch.zeros_like(x)
        scale = max(scale, magnitude(into))
        later = torch.arange(time, device=x.device) > some[:, None]
        reached += into.abs().amax(-1).masked_fill(~later, 0).view(-1, rows, time).amax(1)
    allowed = rounding(trial.dtype, time)
    return [
        Finding(
            largest(into) / scale,
            allowed,
            f"the gradient of output {cut} reaches input {int(into.argmax())}",
            trial.setting,
            cut,
            cut,
        )
        for cut, into in zip(cuts, reached, strict=True)
    ]

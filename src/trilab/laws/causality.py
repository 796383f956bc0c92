"""The two forms of causality. See the package for why both are needed, and for what is rounding and what a leak."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from trilab.laws.trials import (
    Conditions,
    Misshapen,
    Subject,
    Trial,
    conditions_of,
    device_of,
    draw,
    draw_ids,
    largest,
    magnitude,
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

    Dropout is off, in training mode too: another length draws other masks.
    """
    conditions = conditions_of(subject, conditions)

    def findings() -> Iterator[Finding]:
        for trial in trials(subject, conditions, _lengths(subject, conditions)):
            time = trial.setting.time
            try:
                whole = trial(trial.input)
            except Misshapen as error:
                yield Finding(math.inf, REORDERED, str(error), trial.setting)
                continue
            scale = magnitude(whole)
            for t in _cuts(conditions, time):
                last = trial(trial.input[:, : t + 1])[:, -1]
                what = f"output {t} of {time} is another when the text ends there"
                yield Finding(largest(whole[:, t] - last) / scale, REORDERED, what, trial.setting, t, t)

    with torch.no_grad():
        return judge("causality_prefix", findings(), device_of(subject))


def causality_perturbation(subject: Subject, conditions: Conditions | None = None) -> Verdict:
    """Outputs 0 … t stay where they are when all inputs after t are replaced, x by large ones, for every t.

    Dropout is on in training mode, under the same seed for both calls. Many t are tried as rows of one batch. Rows
    that mix, which is for another law to find, would then look like a leak: what moves is tried again by itself.
    """
    conditions = conditions_of(subject, conditions)

    def findings() -> Iterator[Finding]:
        for trial in trials(subject, conditions, _lengths(subject, conditions), dropout=True):
            other = _another(trial, conditions)
            cuts = _cuts(conditions, trial.setting.time - 1)
            try:
                together = _moves(trial, other, cuts, conditions.seed)
                quiet = [finding for finding in together if finding.excess <= 1]
                suspects = sorted((f for f in together if f.excess > 1), key=lambda f: f.excess, reverse=True)
                yield from quiet
                for suspect in suspects:
                    assert suspect.cut is not None
                    (alone,) = _moves(trial, other, [suspect.cut], conditions.seed)
                    yield alone
                    if alone.excess > 1:
                        break
            except Misshapen as error:
                yield Finding(math.inf, 0, str(error), trial.setting)

    with torch.no_grad():
        return judge("causality_perturbation", findings(), device_of(subject))


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
    return max(conditions.input_scales) * draw(trial.input.shape, trial.module, conditions.seed + 1)


def _moves(trial: Trial, other: Tensor, cuts: Sequence[int], seed: int) -> list[Finding]:
    """For each cut the output at or before it that moves most."""
    rows, time = trial.input.shape[:2]
    channels = 1 if isinstance(trial.module, LanguageModel) else trial.module.n_embd
    size = max(1, _AT_ONCE // (rows * time * (time + channels)))
    moved: list[Tensor] = []  # (T,) for each cut
    unchanged: dict[int, Tensor] = {}  # outputs by the number of rows
    scale = torch.finfo(torch.float64).tiny
    for start in range(0, len(cuts), size):
        some = torch.tensor(cuts[start : start + size], device=other.device)
        kept = (torch.arange(time, device=other.device) <= some[:, None]).repeat_interleave(rows, 0)  # (K·B, T)
        same, changed = (x.repeat(len(some), *[1] * (x.ndim - 1)) for x in (trial.input, other))
        # both calls have the same rows: another number of rows may be multiplied in another order
        if len(same) not in unchanged:
            unchanged[len(same)] = _run(trial, same, seed)
        before = unchanged[len(same)]
        after = _run(trial, torch.where(kept if same.ndim == 2 else kept[..., None], same, changed), seed)
        change = (after - before).abs().amax(-1).masked_fill(~kept, 0)
        moved += change.view(len(some), rows, time).amax(1)
        scale = max(scale, magnitude(before), magnitude(after))
    allowed = rounding(torch.float64, time)
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


def _run(trial: Trial, given: Tensor, seed: int) -> Tensor:
    # torch.manual_seed formats a stack trace each time for devices that are not in use: slower than a small strategy
    torch.default_generator.manual_seed(seed)
    if given.is_cuda:
        torch.cuda.manual_seed(seed)
    return trial(given)

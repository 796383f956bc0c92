"""What goes in and what comes out: shapes, rows of the batch, range."""

import copy
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from trilab.agg.base import Aggregation
from trilab.laws.causality import REORDERED
from trilab.laws.trials import (
    THOROUGH,
    Conditions,
    Subject,
    cast,
    comparable,
    conditions_of,
    device_of,
    draw_input,
    kind,
    largest,
    layers,
    magnitude,
    silence_dropout,
    trials,
    whole_and_odd,
    with_gradients,
)
from trilab.laws.verdict import Finding, Verdict, judge
from trilab.model import LanguageModel


def shape(subject: Subject) -> Verdict:
    """One vector for each position, on the device of the input, for every 1 ≤ T ≤ block_size and every dtype.

    (B, T, C) gives (B, T, C) of the same dtype; a model's tokens (B, T) give logits (B, T, V) in the dtype of its
    parameters. The figure counts the lengths of one dtype for which that is not so.
    """

    def findings() -> Iterator[Finding]:
        for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
            module = copy.deepcopy(subject).to(dtype)
            wrong: list[str] = []
            for time in range(1, module.block_size + 1):
                for batch_size in (1, 3):
                    given = cast(draw_input(module, batch_size, time, 1.0, THOROUGH.seed), dtype)
                    with torch.no_grad():
                        y = module(given)
                    channels = module.vocab_size if isinstance(module, LanguageModel) else module.n_embd
                    if (y.shape, y.dtype, y.device) != ((batch_size, time, channels), dtype, given.device):
                        wrong.append(f"{kind(given)} gives {kind(y)}")
            yield Finding(len(wrong), 0, wrong[0] if wrong else "")

    return judge("shape", findings(), device_of(subject))


def batch(subject: Subject, conditions: Conditions | None = None) -> Verdict:
    """Every row of the batch comes out the same alone, and among the others in another order.

    Dropout is off, and what draws random numbers of its own is left out: another batch draws others.
    """
    conditions = conditions_of(subject, conditions)

    def findings() -> Iterator[Finding]:
        for trial in comparable(trials(subject, conditions, sorted({1, *whole_and_odd(subject.block_size)}))):
            allowed = trial.allowed(REORDERED)
            together = trial.module(trial.input)
            scale = magnitude(together)
            turned = trial.module(trial.input.flip(0)).flip(0)
            yield Finding(largest(together - turned) / scale, allowed, "rows in another order", trial.setting)
            for row in range(len(trial.input)):
                alone = trial.module(trial.input[row : row + 1])[0]
                yield Finding(largest(together[row] - alone) / scale, allowed, f"row {row} alone", trial.setting)

    with torch.no_grad():
        return judge("batch", findings(), device_of(subject))


def finite_range(subject: Subject) -> Verdict:
    """Outputs and gradients are finite wherever the float64 result, rounded to the dtype, is finite.

    In float32, bfloat16 and float16, x of scale 1, 1e2 and 1e4, parameters as they are, T = block_size. The loss is a
    mean divided by the scale, as a loss scaler would do. Values and averages, which pass between the strategy and the
    model's maps around it, are rounded in float64 too: what the dtype cannot hold there is no fault of the strategy's.
    The figure counts numbers.
    """
    scales: Sequence[float | None] = THOROUGH.input_scales if isinstance(subject, Aggregation) else (None,)

    def findings() -> Iterator[Finding]:
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            low = copy.deepcopy(subject).to(dtype)
            silence_dropout(low)
            exact = copy.deepcopy(low).double()
            for layer in layers(exact):
                layer.value.register_forward_hook(lambda _, __, v, dtype=dtype: v.to(dtype).double())
                layer.output.register_forward_pre_hook(lambda _, y, dtype=dtype: y[0].to(dtype).double())
            for scale in scales:
                given = cast(draw_input(low, 2, low.block_size, scale, THOROUGH.seed), dtype)
                results: list[dict[str, Tensor]] = []
                for module, x in ((low, given), (exact, cast(given, torch.float64))):
                    y = module(x.requires_grad_() if x.is_floating_point() else x)
                    cotangent = torch.full_like(y, 1 / ((scale or 1.0) * y.numel()))
                    results.append(with_gradients(y, cotangent, x, module))
                got, reference = results
                for name in got:
                    lost = int((reference[name].to(dtype).isfinite() & ~got[name].isfinite()).sum())
                    at = "" if scale is None else f", x of scale {scale:g}"
                    yield Finding(lost, 0, f"{name} in {dtype}{at}")

    return judge("finite_range", findings(), device_of(subject))

"""The table of weights: what fills it, and that every way to A @ v is the same operation. Of a model: each layer's."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from trilab.agg.base import Aggregation
from trilab.laws.trials import (
    ORDINARY,
    Conditions,
    Subject,
    Trial,
    comparable,
    conditions_of,
    device_of,
    differences,
    draw_input,
    every_length,
    kind,
    largest,
    layers,
    trials,
    with_gradients,
)
from trilab.laws.verdict import Finding, Verdict, judge
from trilab.model import LanguageModel

# Two ways to the same sum, at scales where both are well conditioned.
TWO_WAYS = 1e-9


def table(subject: Subject, conditions: Conditions = ORDINARY) -> Verdict:
    """The forward pass is output(weights(x) @ value(x)): values, and gradients of x and of every parameter.

    A strategy without a table of weights has nothing to compare and passes.
    """
    weighted = [layer for layer in layers(subject) if layer.has_weights]
    return judge("table", _compared(weighted, Aggregation.mix, conditions), device_of(subject))


def loop(subject: Subject, conditions: Conditions = ORDINARY) -> Verdict:
    """The forward pass is the strategy's own loop: values, and gradients of x and of every parameter.

    A strategy without a table and without a loop of its own has nothing to compare and passes.
    """
    told = [layer for layer in layers(subject) if layer.has_weights or type(layer).loop is not Aggregation.loop]
    return judge("loop", _compared(told, lambda layer, x, v: layer.loop(x, v), conditions), device_of(subject))


def _compared(
    aggregations: list[Aggregation], slowly: Callable[[Aggregation, Tensor, Tensor], Tensor], conditions: Conditions
) -> Iterator[Finding]:
    for aggregation in aggregations:
        for trial in comparable(trials(aggregation, conditions, every_length(aggregation.block_size))):
            module, x = trial.module, trial.input.requires_grad_()
            assert isinstance(module, Aggregation)
            fast = module(x)
            slow = module.output(slowly(module, x, module.value(x)))
            cotangent = fast.detach().cos()  # any fixed numbers of order one
            one, two = (with_gradients(y, cotangent, x, module) for y in (fast, slow))
            for name, difference in differences(one, two).items():
                yield Finding(difference, trial.allowed(TWO_WAYS), name, trial.setting)


def triangle(subject: Subject, conditions: Conditions | None = None) -> Verdict:
    """weights(x) is (B|1, H|1, T, T), exactly zero above the diagonal, and keeps what the strategy says of itself.

    Its rows sum to 1 (`about.rows_sum_to_one`), it is the same for every input (not `about.data_dependent`). Dropout
    is off: what is left of a row after it sums to 1 on average only. A strategy without a table passes.
    """
    conditions = conditions_of(subject, conditions)

    def findings() -> Iterator[Finding]:
        for trial in comparable(trials(subject, conditions, every_length(subject.block_size))):
            setting = trial.setting
            another = draw_input(trial.module, len(trial.input), setting.time, setting.input_scale, conditions.seed + 1)
            tables = zip(layers(trial.module), _tables(trial, trial.input), _tables(trial, another), strict=True)
            for aggregation, weights, elsewhere in tables:
                if weights is None or elsewhere is None:
                    continue
                rows, time = trial.input.shape[:2]
                fits = (
                    weights.ndim == 4
                    and weights.shape[0] in (1, rows)
                    and aggregation.n_embd % weights.shape[1] == 0
                    and weights.shape[2:] == (time, time)
                    and weights.dtype == torch.float64
                )
                yield Finding(not fits, 0, f"for {kind(trial.input)} the table is {kind(weights)}", setting)
                if not fits:
                    continue
                yield Finding(largest(weights.triu(1)), 0, "weight above the diagonal", setting)
                if aggregation.about.rows_sum_to_one:
                    off = (weights.sum(-1) - 1).abs().amax((0, 1))  # (T,)
                    yield Finding(
                        largest(off), trial.allowed(TWO_WAYS), f"row {int(off.argmax())} does not sum to 1", setting
                    )
                if not aggregation.about.data_dependent:
                    yield Finding(largest(weights - elsewhere), 0, "another input has another table", setting)

    with torch.no_grad():
        return judge("triangle", findings(), device_of(subject))


def _tables(trial: Trial, given: Tensor) -> list[Tensor | None]:
    """Each layer's, or None where a strategy has none."""
    if isinstance(trial.module, LanguageModel):
        return trial.module.weights(given)
    return [trial.module.weights(given) if trial.module.has_weights else None]

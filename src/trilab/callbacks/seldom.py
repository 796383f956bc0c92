"""A callback that costs a step nothing where it has nothing to do."""

from typing import Any

from lightning.pytorch import Callback


class Seldom(Callback):
    """Lightning calls every hook of every callback around each step, with a stopwatch, unless it cannot be called.

    So those that come in each step are None here; a subclass defines the ones it needs. On a tiny model the idle ones
    of five callbacks take a tenth of the step.
    """

    on_train_batch_start: Any = None
    on_before_zero_grad: Any = None
    on_before_backward: Any = None
    on_after_backward: Any = None
    on_before_optimizer_step: Any = None
    on_train_batch_end: Any = None
    on_validation_batch_start: Any = None
    on_validation_batch_end: Any = None

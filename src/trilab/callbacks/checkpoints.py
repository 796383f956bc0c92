"""best.ckpt and last.ckpt: the weights to use, and the state to go on from; and where a training may stop."""

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import distributed

from trilab import stopping
from trilab.callbacks.seldom import Seldom
from trilab.learner import Learner


class Checkpoints(Seldom):
    """Keeps the checkpoint with the lowest validation loss, and the latest; stops after a step when asked to.

    Nothing of it is stored in a checkpoint, no path above all: a run's folder may be moved, and goes on.

    Args:
        folder: where they are kept.
        every: optimizer steps between two saves of last.ckpt; there is always one at the end.
        minutes: it is also saved when so long has passed since the last save; None: only by steps.
        val_every: optimizer steps between validations. Where a validation follows a step, last.ckpt is saved after it,
            so that a run that goes on has neither to repeat nor to miss it.
        timeout: seconds that a process waits for the others' word.
    """

    def __init__(
        self, folder: Path, *, every: int, val_every: int, minutes: float | None = None, timeout: float = 600.0
    ) -> None:
        self.best = folder / "best.ckpt"
        self.last = folder / "last.ckpt"
        self.every = every
        self.seconds = float("inf") if minutes is None else 60 * minutes
        self.val_every = val_every
        self.timeout = timedelta(seconds=timeout)
        self._clock = 0.0
        self._group: distributed.ProcessGroup | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock, and find out how to hear of the end.

        Raises:
            Stopped: somebody asked for an end before the first step.
        """
        self._clock = time.monotonic()
        if trainer.world_size > 1:
            # on the CPU, so that nobody waits for a device
            self._group = distributed.new_group(backend="gloo", timeout=self.timeout)
        stopping.listen_again()  # Lightning has taken SIGTERM for itself, and would end without a checkpoint
        _, signum = self._agreed(False)
        if signum:
            raise stopping.Stopped(signum)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save last.ckpt, or stop, after a step that no validation follows."""
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return  # amid a step
        step = trainer.global_step
        if step % self.val_every and step < trainer.max_steps:
            self._after_step(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save best.ckpt where it is, last.ckpt where it is due."""
        assert isinstance(pl_module, Learner)
        if trainer.state.fn != "fit":
            return
        if pl_module.best_step == trainer.global_step:
            trainer.save_checkpoint(self.best)
        if trainer.global_step < trainer.max_steps:
            self._after_step(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the end."""
        self._save(trainer)

    def _after_step(self, trainer: Trainer) -> None:
        due = trainer.global_step % self.every == 0 or time.monotonic() - self._clock >= self.seconds
        due, signum = self._agreed(due)
        if due or signum:
            self._save(trainer)
        if signum:
            raise stopping.Stopped(signum)

    def _agreed(self, due: bool) -> tuple[bool, int]:
        """Whether to save after this step, and the signal to stop for, or 0: the same for all processes."""
        signum = stopping.wished() or 0
        if self._group is not None:
            words = torch.tensor([int(due), signum])
            distributed.all_reduce(words, distributed.ReduceOp.MAX, group=self._group)
            due, signum = bool(words[0]), int(words[1])
        return due, signum

    def _save(self, trainer: Trainer) -> None:
        for logger in trainer.loggers:
            logger.save()  # no checkpoint is ahead of the metrics on the disk
        trainer.save_checkpoint(self.last)
        self._clock = time.monotonic()

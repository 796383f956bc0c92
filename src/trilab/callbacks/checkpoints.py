"""best.ckpt and last.ckpt: the weights to use, and the state to go on from."""

from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from trilab.learner import Learner


class Checkpoints(Callback):
    """Keeps the checkpoint with the lowest validation loss, and the latest.

    Nothing of it is stored in a checkpoint, no path above all: a run's folder may be moved, and goes on.

    Args:
        folder: where they are kept.
        every: optimizer steps between two saves of last.ckpt; there is always one at the end.
        val_every: optimizer steps between validations. Where both fall on one step, last.ckpt is saved after the
            validation, so that a run that goes on from it has neither to repeat nor to miss it.
    """

    def __init__(self, folder: Path, *, every: int, val_every: int) -> None:
        self.best = folder / "best.ckpt"
        self.last = folder / "last.ckpt"
        self.every = every
        self.val_every = val_every
        self._saved = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """What is gone on from is saved already; saving it again amid a step's micro-steps would not be the same."""
        self._saved = trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save last.ckpt where no validation follows."""
        step = trainer.global_step
        if step % self.every == 0 and step % self.val_every and step != self._saved and step < trainer.max_steps:
            self._save(trainer)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save best.ckpt where it is, last.ckpt where it is due."""
        assert isinstance(pl_module, Learner)
        if pl_module.best_step == trainer.global_step:
            trainer.save_checkpoint(self.best)
        if trainer.global_step % self.every == 0 and trainer.global_step < trainer.max_steps:
            self._save(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the end."""
        self._save(trainer)

    def _save(self, trainer: Trainer) -> None:
        trainer.save_checkpoint(self.last)
        self._saved = trainer.global_step

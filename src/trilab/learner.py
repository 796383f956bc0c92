"""What Lightning trains: one language model, its loss, its optimizer and its validation metrics."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor, nn

from trilab.init import seed_of
from trilab.loss import mean_nats
from trilab.metrics import validation_metrics
from trilab.model import LanguageModel
from trilab.optim import Optim, adamw, lr_factor


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside, the mode it was in after."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)


class Diverged(ArithmeticError):
    """A loss that is NaN or infinite. The message names the step (the first is 1)."""


class Learner(LightningModule):
    """Minimises mean cross-entropy; measures sums over the whole validation split.

    Training losses are kept as tensors and looked at only when somebody asks (`drain_losses`), so that a step never
    waits for the device.

    Args:
        model: what is trained.
        optim: how its weights move.
        seed: of what is drawn while training (dropout).
        max_steps: optimizer steps of the whole training, for the learning rate's schedule.
        description: stored in every checkpoint under "trilab" (see checkpoint.describe).
    """

    def __init__(
        self, model: LanguageModel, optim: Optim, *, seed: int, max_steps: int, description: dict[str, Any]
    ) -> None:
        super().__init__()
        self.model = model
        self.optim = optim
        self.seed = seed
        self.max_steps = max_steps
        self.description = description
        self.validation = validation_metrics()
        self.val_loss = math.nan
        self.best_val_loss = math.inf
        self.best_step = 0
        self.best_is_lost = False
        self._losses: list[Tensor] = []
        self._steps: list[int] = []

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Mean nats per character of one micro-step."""
        step = self.global_step
        # what dropout draws is a function of (seed, micro-step, rank): a resumed run draws the same
        micro_step = batch_idx % self.trainer.accumulate_grad_batches
        seed = seed_of(self.seed, f"training:{step}:{micro_step}:{self.global_rank}")
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        else:  # torch.manual_seed formats a stack trace each time, for devices that are not in use: slower than a step
            torch.default_generator.manual_seed(seed)
        inputs, targets = batch
        loss = mean_nats(self.model(inputs), targets)
        self._losses.append(loss.detach())
        self._steps.append(step + 1)
        return loss

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End after the last step by asking to stop: Lightning then validates once more, whatever the interval."""
        if self.global_step >= self.max_steps:
            self.trainer.should_stop = True

    def drain_losses(self) -> float:
        """Mean training loss since the last call, in nats per character; NaN if there was no step.

        Raises:
            Diverged: one of the losses is not finite.
        """
        if not self._losses:
            return math.nan
        # every process has the loss of its own share of a step
        losses = self.trainer.strategy.reduce(torch.stack(self._losses).double(), reduce_op="mean").cpu()
        steps, self._losses, self._steps = self._steps, [], []
        wrong = (~losses.isfinite()).nonzero()
        if len(wrong):
            first = int(wrong[0])
            raise Diverged(
                f"The training loss became {losses[first].item()} at step {steps[first]}. Lower optim.lr "
                f"(now {self.optim.lr}), warm up (optim.warmup_steps) or clip (optim.grad_clip)."
            )
        return losses.mean().item()

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Add one batch's sums and counts."""
        inputs, targets = batch
        self.validation.update(self.model(inputs), targets)

    def on_validation_epoch_end(self) -> None:
        """Log the metrics of the whole split and remember the best loss."""
        values = {name: value.item() for name, value in self.validation.compute().items()}
        self.validation.reset()
        step = self.global_step
        self.val_loss = values["val/loss"]
        if not math.isfinite(self.val_loss):
            raise Diverged(f"The validation loss is {self.val_loss} after step {step}. Lower optim.lr={self.optim.lr}.")
        if self.val_loss < self.best_val_loss:
            self.best_val_loss, self.best_step = self.val_loss, step
        if self.trainer.is_global_zero:
            for logger in self.trainer.loggers:
                logger.log_metrics(values, step=step)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Make the checkpoint stand alone, and never from a training that has already diverged."""
        wrong = [s for s, loss in zip(self._steps, self._losses, strict=True) if not loss.isfinite()]
        if wrong:
            raise Diverged(f"The training loss was not finite at step {wrong[0]}; no checkpoint is written after it.")
        best = {"val_loss": self.best_val_loss, "step": self.best_step}
        checkpoint["trilab"] = {**self.description, "step": self.global_step, "best": best}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on from the best loss so far, unless its weights are lost."""
        if not self.best_is_lost:
            best = checkpoint["trilab"]["best"]
            self.best_val_loss, self.best_step = best["val_loss"], best["step"]

    def lr_of(self, step: int) -> float:
        """Learning rate that optimizer step number `step` (the first is 1) was taken with."""
        return self.optim.lr * lr_factor(step - 1, self.optim, self.max_steps)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """AdamW and its rate, moved once per optimizer step."""
        optimizer = adamw(self.model, self.optim)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: lr_factor(step, self.optim, self.max_steps)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

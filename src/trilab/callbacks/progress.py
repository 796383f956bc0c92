"""Loss, learning rate and speed while training: to the loggers, and to a bar or lines that people read."""

import time
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from trilab.callbacks.seldom import Seldom
from trilab.learner import Learner

REDRAWN = 4  # times a second: Rich's 10 would take a hundredth of a tiny model's training


class TrainingProgress(Seldom):
    """Logs the mean training loss of every `every` steps with the rate and the characters per second.

    Args:
        every: optimizer steps between two looks at the losses.
        batch_chars: characters learned from in one optimizer step.
        console: draws a bar on a terminal, plain lines at each validation elsewhere; None shows nothing.
    """

    def __init__(self, *, every: int, batch_chars: int, console: Console | None) -> None:
        self.every = every
        self.batch_chars = batch_chars
        self.console = console
        self.train_seconds = 0.0
        self.train_steps = 0
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._clock = 0.0
        self._step = 0
        self._latest: dict[str, float] = {}

    @property
    def chars_per_second(self) -> float:
        """Training speed so far, over all processes, without validation and checkpoints."""
        return self.train_steps * self.batch_chars / self.train_seconds if self.train_seconds else 0.0

    def state_dict(self) -> dict[str, Any]:
        """Kept in checkpoints, so that the speed of a run is that of all its parts."""
        return {"train_seconds": self.train_seconds, "train_steps": self.train_steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint's."""
        self.train_seconds, self.train_steps = state_dict["train_seconds"], state_dict["train_steps"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock and draw the bar."""
        self._step = trainer.global_step
        if self.console is not None and self.console.is_terminal:
            self._bar = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[figures]}"),
                TimeRemainingColumn(),
                console=self.console,
                refresh_per_second=REDRAWN,
            )
            self._task = self._bar.add_task("training", total=trainer.max_steps, completed=self._step, figures="")
            self._bar.start()
        self._clock = time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Every `every` steps: one line of metrics."""
        step = trainer.global_step
        if step % self.every == 0 and step != self._step:
            self._log(trainer, pl_module)

    def _log(self, trainer: Trainer, learner: LightningModule) -> None:
        assert isinstance(learner, Learner)
        loss = learner.drain_losses()  # waits for the device, so the clock below is honest
        step = trainer.global_step
        seconds, steps = time.perf_counter() - self._clock, step - self._step
        if not steps:
            return
        self.train_seconds += seconds
        self.train_steps += steps
        self._latest = {
            "train/loss": loss,
            "lr": learner.lr_of(step),
            "chars_per_second": steps * self.batch_chars / seconds,
        }
        if trainer.is_global_zero:
            for logger in trainer.loggers:
                logger.log_metrics(self._latest, step=step)
        self._draw(step)
        self._step, self._clock = step, time.perf_counter()

    def _draw(self, step: int, val_loss: float | None = None) -> None:
        speed = self._latest.get("chars_per_second", 0.0)
        figures = f"loss {self._latest.get('train/loss', float('nan')):.3f}  {speed:,.0f} chars/s"
        if self._bar is not None:
            self._bar.update(self._task, completed=step, figures=figures)
        if val_loss is not None and self.console is not None and self._bar is None:
            self.console.print(f"step {step:>6,}  {figures}  val/loss {val_loss:.4f}", highlight=False)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Stop the clock, and never validate a training that has diverged."""
        if trainer.state.fn == "fit":
            self._log(trainer, pl_module)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the validation loss; start the clock again."""
        assert isinstance(pl_module, Learner)
        if trainer.state.fn != "fit":
            return
        self._draw(trainer.global_step, pl_module.val_loss)
        if self._bar is not None:
            self._bar.update(self._task, description=f"val/loss {pl_module.val_loss:.4f}")
        self._clock = time.perf_counter()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the bar down."""
        self._stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Take the bar down before the message."""
        self._stop()

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

"""What Lightning trains: one language model, its loss, its optimizer and its validation metrics."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torchmetrics import MetricCollection

from trilab.compiling import compiled
from trilab.errors import TrainingError
from trilab.init import seed_of
from trilab.loss import char_nats, mean_nats
from trilab.metrics import Loss, LossByBlock, LossByPosition, answer_metrics, validation_metrics
from trilab.model import LanguageModel
from trilab.optim import Optim, adamw, lr_factor
from trilab.sharding import gather, shard, skeleton
from trilab.windows import Windows


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode inside, the mode it was in after."""
    training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(training)


class Diverged(TrainingError):
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
        by_block: measures the last validation stretch by stretch.
        compile_mode: training steps by torch.compile, see compiling.compiled; None: as the model is.
    """

    def __init__(
        self,
        model: LanguageModel,
        optim: Optim,
        *,
        seed: int,
        max_steps: int,
        description: dict[str, Any],
        by_block: LossByBlock,
        compile_mode: str | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.compile_mode = compile_mode
        self.optim = optim
        self.seed = seed
        self.max_steps = max_steps
        self.description = description
        self.validation = validation_metrics()
        self.by_position = LossByPosition(model.block_size)
        self.by_block = by_block
        self.answering = answer_metrics()
        self.testing = Loss()
        self.test_answering = answer_metrics()
        self.val_loss = math.nan
        self.test_loss = math.nan
        self.answers: dict[str, float] = {}
        self.test_answers: dict[str, float] = {}
        self.loss_by_position: list[float] = []
        self.loss_by_block: dict[str, list[Any]] = {}
        self.best_val_loss = math.inf
        self.best_step = 0
        self.best_is_lost = False
        self._began = time.monotonic()
        self._seconds_before = 0.0
        self._steps: list[int] = []
        self._losses: list[Tensor] = []
        self._settled = torch.empty(0, dtype=torch.float64)
        self._skeletons: list[LanguageModel] = []  # in a list, since a module's modules are trained
        self._compiled: Callable[[Tensor], Tensor] | None = None

    # Hooks of each step that Lightning need not call; see callbacks.seldom.
    on_train_batch_start: Any = None
    on_before_zero_grad: Any = None
    on_before_backward: Any = None
    on_after_backward: Any = None

    def __setattr__(self, name: str, value: Any) -> None:
        """As any module's, but quick for a name: Lightning notes that of every hook it calls."""
        if type(value) is str and name in self.__dict__:
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)

    def configure_model(self) -> None:
        """Spread the weights over the processes, where the strategy is one that wants them so."""
        if self.device_mesh is not None and not self._skeletons:
            self._skeletons = [skeleton(self.model)]
            shard(self.model, self.device_mesh["data_parallel"])

    def whole_model(self) -> LanguageModel | None:
        """The model with all its weights in one place, to be called in other ways than by `forward`.

        All processes must call this. It is the model itself, or where its weights are spread, a copy on the CPU of the
        first process and None on the others.
        """
        if not self._skeletons:
            return self.model
        return self._skeletons[0] if gather(self.model, self._skeletons[0]) else None

    def training_step(self, batch: Windows, batch_idx: int) -> Tensor:
        """Mean nats per character of one micro-step."""
        forward = self._forward(batch.inputs)
        step = self.global_step
        # what dropout draws is a function of (seed, micro-step, rank): a resumed run draws the same
        micro_step = batch_idx % self.trainer.accumulate_grad_batches
        seed = seed_of(self.seed, f"training:{step}:{micro_step}:{self.global_rank}")
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        else:  # torch.manual_seed formats a stack trace each time, for devices that are not in use: slower than a step
            torch.default_generator.manual_seed(seed)
        loss = mean_nats(forward(batch.inputs), batch.targets)
        self._losses.append(loss.detach())
        self._steps.append(step + 1)
        return loss

    def _forward(self, inputs: Tensor) -> Callable[[Tensor], Tensor]:
        """The model, compiled if that is wanted; before anything is drawn, of which compiling takes some."""
        if self.compile_mode is None:
            return self.model
        if self._compiled is None:
            self._compiled = compiled(self.model, self.compile_mode, inputs)
        return self._compiled

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Set the step's learning rate; refuse weights without a gradient on several processes.

        These would wait for one another's gradients without end.

        Raises:
            TrainingError: there is such a weight; the message names it.
        """
        rate = self.lr_of(self.global_step + 1)
        for group in optimizer.param_groups:
            group["lr"] = rate
        if self.trainer.world_size == 1:
            return
        idle = [name for name, p in self.model.named_parameters() if p.requires_grad and p.grad is None]
        if idle:
            raise TrainingError(
                f"The loss does not depend on {', '.join(idle)}: several processes can only share gradients that are "
                "there. Use every parameter in `forward`, set its requires_grad to False, or train on one process."
            )

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End after the last step by asking to stop: Lightning then validates once more, whatever the interval."""
        if self.global_step >= self.max_steps:
            self.trainer.should_stop = True

    def drain_losses(self) -> float:
        """Mean training loss since the last call, in nats per character; NaN if there was no step.

        Raises:
            Diverged: one of the losses is not finite.
        """
        losses = self._settle()
        if not len(losses):
            return math.nan
        steps, self._steps, self._settled = self._steps, [], losses.new_empty(0)
        wrong = (~losses.isfinite()).nonzero()
        if len(wrong):
            first = int(wrong[0])
            raise Diverged(
                f"The training loss became {losses[first].item()} at step {steps[first]}. Lower optim.lr "
                f"(now {self.optim.lr}), warm up (optim.warmup_steps) or clip (optim.grad_clip)."
            )
        return losses.mean().item()

    def _settle(self) -> Tensor:
        """The pending losses, one a micro-step, on the CPU, as means over the processes."""
        if self._losses:
            # every process has the loss of its own share of a step
            losses = self.trainer.strategy.reduce(torch.stack(self._losses).double(), reduce_op="mean").cpu()
            self._settled, self._losses = torch.cat([self._settled, losses]), []
        return self._settled

    def validation_step(self, batch: Windows, batch_idx: int) -> None:
        """Add one batch's sums and counts; after the last step also where in the window and in the text they arose."""
        logits = self._counted(batch)
        self.validation.update(logits, batch.targets)
        _add_answers(self.answering, logits, batch)
        if self.global_step >= self.max_steps:
            nats = char_nats(logits, batch.targets)
            self.by_position.update(nats)
            self.by_block.update(nats, batch.starts)

    def test_step(self, batch: Windows, batch_idx: int) -> None:
        """Add one batch of the text that nothing was chosen by."""
        logits = self._counted(batch)
        self.testing.update(logits, batch.targets)
        _add_answers(self.test_answering, logits, batch)

    def on_test_epoch_end(self) -> None:
        """Remember the loss of the whole split, and of its answers."""
        self.test_loss = self.testing.compute().item()
        self.testing.reset()
        self.test_answers = _of_answers(self.test_answering)

    def _counted(self, batch: Windows) -> Tensor:
        """Logits of the windows whose targets count."""
        logits: Tensor = self.model(batch.inputs)[: len(batch.targets)]
        return logits

    def on_validation_epoch_end(self) -> None:
        """Log the metrics of the whole split and remember the best loss."""
        values = {name: value.item() for name, value in self.validation.compute().items()}
        self.validation.reset()
        self.answers = _of_answers(self.answering)
        values |= {f"val/{name}": value for name, value in self.answers.items()}
        step = self.global_step
        if step >= self.max_steps:
            self._keep_where_it_arose()
        self.val_loss = values["val/loss"]
        if not math.isfinite(self.val_loss):
            raise Diverged(f"The validation loss is {self.val_loss} after step {step}. Lower optim.lr={self.optim.lr}.")
        if self.val_loss < self.best_val_loss:
            self.best_val_loss, self.best_step = self.val_loss, step
        if self.trainer.is_global_zero:
            for logger in self.trainer.loggers:
                logger.log_metrics(values, step=step)

    def _keep_where_it_arose(self) -> None:
        """All processes must call this."""
        nats, characters = self.by_block.compute()
        self.loss_by_position = self.by_position.compute().tolist()
        self.loss_by_block = {"nats": nats.tolist(), "characters": characters.tolist()}
        self.by_position.reset()
        self.by_block.reset()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Make the checkpoint stand alone, and never from a training that has already diverged."""
        losses = self._settle()
        wrong = [step for step, loss in zip(self._steps, losses, strict=True) if not loss.isfinite()]
        if wrong:
            raise Diverged(f"The training loss was not finite at step {wrong[0]}; no checkpoint is written after it.")
        best = {"val_loss": self.best_val_loss, "step": self.best_step}
        # the next line of metrics.jsonl is a mean over losses on both sides of a checkpoint
        pending = {"steps": list(self._steps), "losses": losses.clone()}
        checkpoint["trilab"] = {
            **self.description,
            "step": self.global_step,
            "best": best,
            "pending": pending,
            "seconds": self.seconds,
        }

    @property
    def seconds(self) -> float:
        """Wall time since the training began, without the pauses between its parts."""
        return self._seconds_before + time.monotonic() - self._began

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Go on from the best loss so far, unless its weights are lost."""
        pending = checkpoint["trilab"].get("pending", {"steps": [], "losses": self._settled})
        self._steps, self._settled = list(pending["steps"]), pending["losses"]
        self._seconds_before = checkpoint["trilab"].get("seconds", 0.0)
        if not self.best_is_lost:
            best = checkpoint["trilab"]["best"]
            self.best_val_loss, self.best_step = best["val_loss"], best["step"]

    def lr_of(self, step: int) -> float:
        """Learning rate that optimizer step number `step` (the first is 1) was taken with."""
        return self.optim.lr * lr_factor(step - 1, self.optim, self.max_steps)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
        """Forget the gradients, as optimizer.zero_grad does in ten times the time."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Scale gradients down to the largest norm, if there is one.

        As Lightning does, but for bfloat16 too: there it refuses a fused optimizer, which might divide by a scale that
        only float16 has. Gradients of a small norm are not multiplied by 1, where no device has to be waited for.
        """
        if not gradient_clip_val:
            return
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        norm = get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
        # where weights are spread over processes so is the norm, and to look at it means to wait for them
        if norm.is_cpu and not self._skeletons and norm + 1e-6 <= gradient_clip_val:  # as the factor is computed
            return
        clip_grads_with_norm_(parameters, gradient_clip_val, norm)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW, whose rate is a function of the step and no state of a training: see on_before_optimizer_step."""
        # fused it would also divide by the scale of float16, and leave Lightning nothing to clip
        return adamw(self.model, self.optim, fused=self.trainer.precision != "16-mixed")


def _add_answers(metrics: MetricCollection, logits: Tensor, batch: Windows) -> None:
    """Add one batch's answers; nothing, where its text has none."""
    if batch.answers is not None:
        metrics.update(logits[batch.answers][None], batch.targets[batch.answers][None])  # (1, answers, V), (1, answers)


def _of_answers(metrics: MetricCollection) -> dict[str, float]:
    """What all processes' answers come to, and begin anew; empty where no answer was in the text."""
    if not all(metric.update_called for metric in metrics.values()):
        return {}
    found = {name: value.item() for name, value in metrics.compute().items()}
    metrics.reset()
    return {name: value for name, value in found.items() if not math.isnan(value)}

"""When something of a model is shown: beside validations as the training goes on, and at its end."""

from abc import ABC, abstractmethod

from lightning.pytorch import LightningModule, Trainer

from trilab.callbacks.seldom import Seldom
from trilab.learner import Learner
from trilab.loggers import Shows
from trilab.model import LanguageModel


class Showing(Seldom, ABC):
    """Shows the whole model every so many steps and after the last one; nothing of the training depends on it.

    A validation is where nobody counts the seconds as training, so the first one from each multiple of `every` on is
    where it shows. Which those are does not depend on where a training was broken off.

    Args:
        every: optimizer steps between two looks, if there is a logger that can show one; None: only at the end.
        val_every: optimizer steps between validations.
    """

    def __init__(self, *, every: int | None, val_every: int) -> None:
        self.every = every
        self.val_every = val_every

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show, where it is time to."""
        step = trainer.global_step
        if self.every is None or trainer.state.fn != "fit" or step >= trainer.max_steps:
            return
        if step // self.every > (step - self.val_every) // self.every:
            self._show(trainer, pl_module, needed=any(isinstance(logger, Shows) for logger in trainer.loggers))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the trained model."""
        self._show(trainer, pl_module, needed=True)

    def _show(self, trainer: Trainer, pl_module: LightningModule, *, needed: bool) -> None:
        assert isinstance(pl_module, Learner)
        model = pl_module.whole_model()  # every process must ask
        if model is not None and trainer.is_global_zero and needed:
            self.show(model, trainer)

    @abstractmethod
    def show(self, model: LanguageModel, trainer: Trainer) -> None:
        """Called in the first process only; whether it is the end is for trainer.global_step to say."""

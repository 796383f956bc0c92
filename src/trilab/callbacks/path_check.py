"""The way in which a model really trains (device, precision) is put before the law of causality too."""

import logging
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer

from trilab.callbacks.seldom import Seldom
from trilab.errors import TrainingError
from trilab.gate import Coverage, Leak, examine_path
from trilab.learner import Learner

log = logging.getLogger("trilab")

DTYPES = {"16": torch.float16, "bf16": torch.bfloat16}


class PathCheck(Seldom):
    """Before the first step, on the device, in the precision and with the gradients of it: no logit may see the future.

    What the gate proves in float64 need not hold for the kernels that other devices and dtypes choose.

    Args:
        tokens: (B, T) ids to begin from; two rows, since a mixer may look ahead by way of another.
        refuse: raise on a leak; otherwise it is told and training goes on.
    """

    def __init__(self, tokens: torch.Tensor, *, refuse: bool) -> None:
        self.tokens = tokens
        self.refuse = refuse
        self.coverage: Coverage | None = None
        self.leak: str | None = None

    def state_dict(self) -> dict[str, Any]:
        """Kept in checkpoints: a run that has no step left to do is not examined again."""
        return {"coverage": self.coverage.as_dict() if self.coverage else None, "leak": self.leak}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Know what was found before."""
        covered = state_dict["coverage"]
        self.coverage = Coverage.of(covered) if covered else None
        self.leak = state_dict["leak"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Examine.

        Raises:
            TrainingError: refuse is set, and a logit moves with later tokens. The training has begun: it has failed.
        """
        assert isinstance(pl_module, Learner)
        dtype = DTYPES.get(str(trainer.precision).partition("-")[0], torch.float32)
        model = pl_module.model

        def forward(tokens: torch.Tensor) -> torch.Tensor:
            with trainer.precision_plugin.forward_context():
                logits: torch.Tensor = model(tokens)
                return logits

        try:
            self.coverage = examine_path(
                forward,
                self.tokens.to(pl_module.device),
                model.vocab_size,
                dtype,
                seconds=1.0 if trainer.world_size == 1 else 0.0,  # every process must make the same calls
            )
        except Leak as leak:
            if self.refuse:
                raise TrainingError(str(leak)) from leak
            self.leak = leak.line
            log.warning("%s", leak)

"""AdamW with weight decay on matrices only, and the learning rate over the steps."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trilab.errors import BadInput


@dataclass(frozen=True)
class Optim:
    """How the weights move.

    Args:
        lr: learning rate after warm-up.
        beta1, beta2, eps: AdamW's.
        weight_decay: on matrices (tensors of two or more dimensions); vectors and gains are never decayed.
        schedule: "constant" or "cosine" (down to lr · min_lr_ratio at the last step).
        warmup_steps: steps over which the rate rises linearly from lr / warmup_steps to lr.
        min_lr_ratio: where the cosine ends, as a share of lr: so it follows when lr is swept.
        grad_clip: largest gradient norm; None does not clip.
    Raises:
        BadInput: a value that no training can use.
    """

    lr: float = 1e-2
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01
    schedule: str = "constant"
    warmup_steps: int = 0
    min_lr_ratio: float = 0.0
    grad_clip: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise BadInput(f"optim.lr={self.lr} must be a finite number above 0.")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise BadInput(f"optim.{name}={getattr(self, name)} must lie in [0, 1).")
        if not self.eps > 0:
            raise BadInput(f"optim.eps={self.eps} must be above 0.")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise BadInput(f"optim.weight_decay={self.weight_decay} must be a finite number, 0 or more.")
        if self.schedule not in ("constant", "cosine"):
            raise BadInput(f"optim.schedule={self.schedule} is not known: constant or cosine.")
        if self.warmup_steps < 0:
            raise BadInput(f"optim.warmup_steps={self.warmup_steps} must be 0 or more.")
        if not 0 <= self.min_lr_ratio <= 1:
            raise BadInput(f"optim.min_lr_ratio={self.min_lr_ratio} must lie in [0, 1].")
        if self.grad_clip is not None and not self.grad_clip > 0:
            raise BadInput(f"optim.grad_clip={self.grad_clip} must be above 0, or null for no clipping.")


def adamw(model: nn.Module, optim: Optim, *, fused: bool = True) -> torch.optim.AdamW:
    """AdamW over two groups: matrices with weight decay, everything else without.

    Args:
        fused: all arithmetic of one parameter in one pass over it, which is quicker. That reads a parameter and its
            gradient as they lie in memory, without a look at their strides. Autograd has a gradient lie as its
            parameter does, unless this has gaps (a slice of something larger): then it is not done.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    fused = fused and all(map(_has_no_gaps, parameters))
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": optim.weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=optim.lr,
        betas=(optim.beta1, optim.beta2),
        eps=optim.eps,
        fused=fused,
    )


def _has_no_gaps(tensor: Tensor) -> bool:
    spans = ((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return not tensor.numel() or 1 + sum(spans) == tensor.numel()


def lr_factor(step: int, optim: Optim, max_steps: int) -> float:
    """Learning rate of a step (0 is the first) divided by optim.lr."""
    if step < optim.warmup_steps:
        return (step + 1) / optim.warmup_steps
    if optim.schedule == "constant":
        return 1.0
    progress = (step - optim.warmup_steps) / max(1, max_steps - 1 - optim.warmup_steps)
    return optim.min_lr_ratio + (1 - optim.min_lr_ratio) * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))

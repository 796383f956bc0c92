"""What is measured on validation text: thin torchmetrics classes over sums and counts.

Every metric is (sum over characters) / (number of characters), so that uneven batches and several processes give
exactly what one pass over the whole text gives.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from trilab.loss import summed_nats


class Sums(Metric):
    """A metric whose sums and counts keep their dtype when the module around them is put into a lower precision."""

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> nn.Module:
        return super()._apply(lambda tensor: fn(tensor).to(tensor.dtype), exclude_state)


class Loss(Sums):
    """Mean cross-entropy, nats per character."""

    full_state_update = False
    higher_is_better: bool | None = False
    nats: Tensor
    count: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("nats", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, targets: Tensor) -> None:
        """Add a batch: logits (B, T, V), targets (B, T)."""
        self.nats += summed_nats(logits, targets)
        self.count += targets.numel()

    def compute(self) -> Tensor:
        """() float64; NaN before the first character."""
        return self.nats / self.count


class BitsPerChar(Loss):
    """Mean cross-entropy, bits per character: nats / ln 2."""

    def compute(self) -> Tensor:
        """() float64; NaN before the first character."""
        return super().compute() / math.log(2)


class Perplexity(Loss):
    """exp(mean nats): how many equally likely characters would be as hard to guess.

    The exponential of the mean, in float32, never a mean of exponentials: one impossible character among many leaves
    it finite.
    """

    def compute(self) -> Tensor:
        """() float32; NaN before the first character."""
        return super().compute().float().exp()


class Accuracy(Sums):
    """Share of characters whose likeliest guess is right."""

    full_state_update = False
    higher_is_better: bool | None = True
    right: Tensor
    count: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("right", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, targets: Tensor) -> None:
        """Add a batch: logits (B, T, V), targets (B, T)."""
        self.right += (logits.argmax(-1) == targets).sum()
        self.count += targets.numel()

    def compute(self) -> Tensor:
        """() float64; NaN before the first character."""
        return self.right.double() / self.count


def validation_metrics() -> MetricCollection:
    """Loss, bits per character, perplexity and accuracy under their names `val/…`."""
    return MetricCollection(
        {
            "val/loss": Loss(),
            "val/bits_per_char": BitsPerChar(),
            "val/perplexity": Perplexity(),
            "val/accuracy": Accuracy(),
        },
        # the first three share their sums: the cross-entropy of a batch is computed once
        compute_groups=[["val/loss", "val/bits_per_char", "val/perplexity"], ["val/accuracy"]],
    )

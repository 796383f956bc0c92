"""What is measured on validation text: thin torchmetrics classes over sums and counts.

Every metric is (sum over characters) / (number of characters), so that uneven batches and several processes give
exactly what one pass over the whole text gives.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
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


class LossByPosition(Sums):
    """Mean cross-entropy of the character after each position of a window: what a longer past is worth.

    Args:
        block_size: T, positions of a window.
    """

    full_state_update = False
    higher_is_better: bool | None = False
    nats: Tensor
    count: Tensor

    def __init__(self, block_size: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("nats", torch.zeros(block_size, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros(block_size, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, nats: Tensor) -> None:
        """Add a batch: the (B, T) nats of its characters; windows may be shorter than block_size."""
        batch, time = nats.shape
        self.nats[:time] += nats.sum(0)
        self.count[:time] += batch

    def compute(self) -> Tensor:
        """(T,) float64, nats per character; NaN at positions that no window has reached."""
        return self.nats / self.count


class LossByBlock(Sums):
    """Cross-entropy of stretches of the text that follow one another, each about as long as the others.

    Two models that read the same text can be compared stretch by stretch.

    Args:
        first: where the text begins, in tokens.
        length: of a stretch, in tokens.
        n_blocks: stretches.
    """

    full_state_update = False
    higher_is_better: bool | None = False
    nats: Tensor
    count: Tensor

    def __init__(self, first: int, length: int, n_blocks: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.first = first
        self.length = length
        self.add_state("nats", torch.zeros(n_blocks, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros(n_blocks, dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, nats: Tensor, starts: Tensor) -> None:
        """Add a batch: the (B, T) nats of its characters and where its windows begin, (B,) in tokens."""
        block = (starts - self.first) // self.length  # (B,)
        # as a product, whose order of summing is the same each time on every device
        within = F.one_hot(block, len(self.nats))  # (B, blocks)
        self.nats += nats.sum(1) @ within.double()
        self.count += within.sum(0) * nats.shape[1]

    def compute(self) -> tuple[Tensor, Tensor]:
        """Sums of nats, (blocks,) float64, and the characters that they are over, (blocks,) int64."""
        return self.nats, self.count


def answer_metrics() -> MetricCollection:
    """Loss and accuracy of answers alone, under the names of a run's summary."""
    return MetricCollection({"answer_loss": Loss(), "answer_accuracy": Accuracy()}, compute_groups=False)


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

"""Cross-entropy of the next character, in nats (natural logarithm)."""

from torch import Tensor
from torch.nn import functional as F


def mean_nats(logits: Tensor, targets: Tensor) -> Tensor:
    """What training minimises: mean over characters, computed in float32 whatever the logits' dtype.

    Args:
        logits: (B, T, V).
        targets: (B, T) int64 ids.
    Returns:
        () float32, nats per character.
    """
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def char_nats(logits: Tensor, targets: Tensor) -> Tensor:
    """Each character's cross-entropy, computed in float32.

    Args:
        logits: (B, T, V).
        targets: (B, T) int64 ids.
    Returns:
        (B, T) float64, nats, to be added up.
    """
    nats = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")
    return nats.double().view(targets.shape)


def summed_nats(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum over characters: each one's cross-entropy in float32, added up in float64.

    Sums, unlike means, add up exactly over batches of any size and over processes.

    Args:
        logits: (B, T, V).
        targets: (B, T) int64 ids.
    Returns:
        () float64, nats.
    """
    return char_nats(logits, targets).sum()

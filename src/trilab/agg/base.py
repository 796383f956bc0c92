"""The contract that every aggregation strategy keeps, and what a strategy says of itself."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from trilab.errors import BadInput


@dataclass(frozen=True)
class About:
    """What a strategy says of itself, for tables and docs. C is n_embd, T the number of tokens, H the heads."""

    formula: str = ""
    cost: str = ""
    """Arithmetic of one forward pass over T tokens, as O(…)."""
    state: str = ""
    """Numbers to carry from token to token when streaming."""
    rows_sum_to_one: bool = False
    source: str = ""


class Aggregation(nn.Module):
    """A causal token mixer: output t is a summary of inputs 0…t, y = A @ v with A lower-triangular.

    Subclasses give `weights` (what fills A), or `mix` (a faster way to A @ v, or a summary that is no weighted sum at
    all), or both; then `mix` must be the same operation as the table, values and gradients. Residual, norm of the
    residual stream, additive positions and output dropout belong to the block around it, so that comparisons are fair.

    Constructors are ordinary PyTorch. The model sees to it that whatever they draw in place (as nn.init does) is a
    function of (seed, parameter name) alone: see init.py.

    Args:
        n_embd: channels C in and out.
        block_size: most tokens T of one call.
    Raises:
        BadInput: a size below 1.
    """

    about: ClassVar[About] = About()

    def __init__(self, n_embd: int, block_size: int) -> None:
        super().__init__()
        for name, value in (("n_embd", n_embd), ("block_size", block_size)):
            if value < 1:
                raise BadInput(f"{name}={value} must be at least 1.")
        self.n_embd = n_embd
        self.block_size = block_size
        self.value: nn.Module = nn.Identity()
        self.output: nn.Module = nn.Identity()

    def project(self, *, value: bool, output: bool) -> None:
        """Put a learned map before (value, no bias) and after (output) the mixing; both are identities at first."""
        if value:
            self.value = nn.Linear(self.n_embd, self.n_embd, bias=False)
        if output:
            self.output = nn.Linear(self.n_embd, self.n_embd)

    @property
    def has_weights(self) -> bool:
        """Whether the strategy is a weighted sum, with a table to show; a nonlinear recurrence is not."""
        return type(self).weights is not Aggregation.weights

    def weights(self, x: Tensor) -> Tensor:
        """The table A for this input.

        Args:
            x: (B, T, C) floating point.
        Returns:
            (B or 1, H or 1, T, T), exactly zero above the diagonal, float32 or wider: rounded to half precision a row
            of weights no longer sums to 1. H may be n_embd: a table a channel.
        """
        raise NotImplementedError(f"{type(self).__name__} is not a weighted sum: it has no table of weights.")

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        """A(x) @ v, head by head; what a strategy with a faster way overrides.

        Args:
            x: (B, T, C), what the weights are made from.
            v: (B, T, C), what is averaged.
        Returns:
            (B, T, C).
        """
        weights = self.weights(x)  # (B|1, H|1, T, T)
        return merge_heads(weights @ split_heads(v.to(weights.dtype), weights.shape[1])).to(v.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Summarise the past of every position.

        Args:
            x: (B, T, C) floating point; T in tokens, 1 ≤ T ≤ block_size.
        Returns:
            (B, T, C), dtype and device of x.
        Raises:
            ValueError: T > block_size; the message gives both.
        """
        if x.shape[1] > self.block_size:
            raise ValueError(f"{x.shape[1]} tokens are more than block_size={self.block_size}.")
        y: Tensor = self.output(self.mix(x, self.value(x)))
        return y


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums over time are kept: float32, or wider if dtype is."""
    return torch.promote_types(dtype, torch.float32)


def head_size(n_embd: int, n_head: int) -> int:
    """Channels of one head, C / H.

    Raises:
        BadInput: H below 1, or not a divisor of C.
    """
    if n_head < 1:
        raise BadInput(f"agg.n_head={n_head} must be at least 1.")
    if n_embd % n_head:
        raise BadInput(f"model.n_embd={n_embd} is not divisible by agg.n_head={n_head}, the number of heads.")
    return n_embd // n_head


def split_heads(x: Tensor, n_head: int) -> Tensor:
    """(B, T, C) → (B, H, T, C / H)."""
    batch, time, channels = x.shape
    return x.view(batch, time, n_head, channels // n_head).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, T, C / H) → (B, T, C)."""
    batch, n_head, time, size = x.shape
    return x.transpose(1, 2).reshape(batch, time, n_head * size)


def lower_triangle(block_size: int) -> Tensor:
    """(T, T) booleans, true where position t (row) may look at position s (column): s ≤ t."""
    return torch.ones(block_size, block_size, dtype=torch.bool).tril()

"""A strategy at work on tokens few enough to be looked at one by one."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from trilab.agg.base import Aggregation
from trilab.explain.strategy import HEAD_SIZE, Strategy
from trilab.influence import influence
from trilab.laws.trials import draw, redraw

SEED = 1337  # the lecture's
TIME = 8  # tokens, also the lecture's
REDRAW_SEED = 2
INPUT_SCALE = 0.5  # with redrawn parameters of eight channels in four heads, scores then spread by about 2


@dataclass(frozen=True)
class Example:
    """An aggregation and an input for it, in float64.

    x: (B, T, C).
    """

    aggregation: Aggregation
    x: Tensor

    @cached_property
    def tables(self) -> Tensor | None:
        """Of the first row of the batch, (H or 1, T, T); None for what is no weighted sum."""
        if not self.aggregation.has_weights:
            return None
        with torch.no_grad():
            return self.aggregation.weights(self.x)[0]

    @cached_property
    def influence(self) -> Tensor:
        """How much output t moves with input s: (T, T), the Jacobian at the first row of the batch."""
        return influence(self.aggregation, self.x[:1])

    @property
    def picture(self) -> Tensor:
        """The first table, or the influence map where there is none: (T, T)."""
        return self.influence if self.tables is None else self.tables[0]


def lecture_toy(strategy: Strategy) -> Example:
    """Seed 1337, x = randn(4, 8, 2), and then the strategy as it is constructed; two channels for each head."""
    n_embd = HEAD_SIZE * strategy.n_head
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        x = torch.randn(4, TIME, n_embd)
        return Example(strategy.build(n_embd, TIME).double(), x.double())


def redrawn(strategy: Strategy, n_embd: int) -> Example:
    """With parameters of standard normal size, so that tables that begin as zeros show what they can become."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        aggregation = strategy.build(n_embd, TIME).double()
    redraw(aggregation, 1.0, REDRAW_SEED)
    return Example(aggregation, INPUT_SCALE * draw((1, TIME, n_embd), aggregation, REDRAW_SEED))

"""`table`: one learned table of affinities, the same for every text."""

import torch
from torch import Tensor, nn

from trilab.agg.base import About, StaticTableAggregation, lower_triangle
from trilab.ops.triangle import causal_softmax


class LearnedTable(StaticTableAggregation):
    """Weighted average with learned weights: A = softmax(mask(W)), W a (T, T) parameter, zeros at first.

    Starts as the uniform mean and learns how much each position is worth to each later one, whatever the characters
    are. T² parameters. O(T²·C) time.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call; the table is block_size by block_size.
    Source:
        Karpathy, Let's build GPT, 54:42-58:26 (version 3), with parameters in place of the zeros.
    """

    about = About(
        formula="A = softmax(mask(W)), W learned",
        cost="O(T²·C)",
        state="T·C",
        rows_sum_to_one=True,
        data_dependent=False,
        source="Karpathy, Let's build GPT, 54:42-58:26 (version 3), with learned affinities",
    )

    tril: Tensor

    def __init__(self, n_embd: int, block_size: int) -> None:
        super().__init__(n_embd, block_size)
        self.register_buffer("tril", lower_triangle(block_size), persistent=False)
        self.affinities = nn.Parameter(torch.zeros(block_size, block_size))

    def rows(self, first: int, time: int, dtype: torch.dtype) -> Tensor:
        affinities = self.affinities[first:time, :time].to(dtype)
        return causal_softmax(affinities, self.tril[first:time, :time])[None]

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        y = []
        for t in range(v.shape[1]):
            affinities = self.affinities[t, : t + 1]  # the future is not among them: nothing to mask
            y.append(affinities.softmax(0) @ v[:, : t + 1])  # (B, C)
        return torch.stack(y, dim=1)

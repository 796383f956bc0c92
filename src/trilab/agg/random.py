"""`random`: affinities drawn once and never learned."""

import math

import torch
from torch import Tensor

from trilab.agg.base import About, StaticTableAggregation, lower_triangle
from trilab.errors import BadInput
from trilab.ops.triangle import causal_softmax


class RandomWeights(StaticTableAggregation):
    """Weighted average with random weights: A = softmax(mask(scale · R)), R normal, drawn once and frozen.

    What looking back is worth when nobody chose where to look. R is a buffer: saved with the weights, never trained.
    O(T²·C) time.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
        scale: standard deviation of the affinities; towards 0 rows become uniform, large ones one-hot.
    Raises:
        BadInput: scale is not finite.
    Source:
        Karpathy, Let's build GPT, 54:42-58:26 (version 3), with draws in place of the zeros.
    """

    about = About(
        formula="A = softmax(mask(scale · R))",
        cost="O(T²·C)",
        state="T·C",
        rows_sum_to_one=True,
        data_dependent=False,
        source="Karpathy, Let's build GPT, 54:42-58:26 (version 3), with random affinities",
    )

    tril: Tensor
    affinities: Tensor

    def __init__(self, n_embd: int, block_size: int, *, scale: float = 1.0) -> None:
        super().__init__(n_embd, block_size)
        if not math.isfinite(scale):
            raise BadInput(f"agg.scale={scale} must be a finite number, such as 1.0.")
        self.scale = scale
        self.register_buffer("tril", lower_triangle(block_size), persistent=False)
        self.register_buffer("affinities", torch.empty(block_size, block_size).normal_())

    def rows(self, first: int, time: int, dtype: torch.dtype) -> Tensor:
        affinities = self.scale * self.affinities[first:time, :time].to(dtype)
        return causal_softmax(affinities, self.tril[first:time, :time])[None]

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        y = []
        for t in range(v.shape[1]):
            affinities = self.scale * self.affinities[t, : t + 1]  # the future is not among them: nothing to mask
            y.append(affinities.softmax(0) @ v[:, : t + 1])  # (B, C)
        return torch.stack(y, dim=1)

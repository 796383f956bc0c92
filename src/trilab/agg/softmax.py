"""`softmax`: the prefix mean as a masked softmax of affinities that are all zero."""

import torch
from torch import Tensor

from trilab.agg.base import About, Aggregation, accumulator, lower_triangle


class SoftmaxMean(Aggregation):
    """Average of everything seen so far, by a softmax: A = softmax(mask(0)), the mask -inf above the diagonal.

    Equal affinities share a row equally, so this is `matmul` bit for bit; but now the zeros can be replaced by
    affinities that say who interests whom. No parameters. O(T²·C) time.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
    Source:
        Karpathy, Let's build GPT, 54:42-58:26 (version 3).
    """

    about = About(
        formula="A = softmax(mask(0))",
        cost="O(T²·C)",
        state="T·C",
        rows_sum_to_one=True,
        data_dependent=False,
        source="Karpathy, Let's build GPT, 54:42-58:26 (version 3)",
    )

    tril: Tensor

    def __init__(self, n_embd: int, block_size: int) -> None:
        super().__init__(n_embd, block_size)
        self.register_buffer("tril", lower_triangle(block_size), persistent=False)

    def weights(self, x: Tensor) -> Tensor:
        time = x.shape[1]
        affinities = torch.zeros(time, time, dtype=accumulator(x.dtype), device=x.device)
        affinities = affinities.masked_fill(~self.tril[:time, :time], -torch.inf)
        return affinities.softmax(-1)[None, None]

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        y = []
        for t in range(v.shape[1]):
            affinities = v.new_zeros(t + 1)  # the future is not among them: nothing to mask
            y.append(affinities.softmax(0) @ v[:, : t + 1])  # (B, C)
        return torch.stack(y, dim=1)

"""`loop`: the prefix mean as it is first written down, one position after the other."""

import torch
from torch import Tensor

from trilab.agg.base import About, Aggregation, Flops, accumulator


class LoopMean(Aggregation):
    """Average of everything seen so far, by a loop: y_t = mean of v_0 … v_t.

    The slow truth for `matmul`, `softmax` and `cumsum`: nobody needs to be convinced that it is right and causal. No
    parameters. O(T²·C) time, in T separate steps.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
    Source:
        Karpathy, Let's build GPT, 42:13-47:11 (version 1). He loops over the batch too; here one step takes the same
        position of all rows.
    """

    about = About(
        formula="y_t = mean(v_0 … v_t)",
        cost="O(T²·C)",
        state="T·C",
        rows_sum_to_one=True,
        data_dependent=False,
        source="Karpathy, Let's build GPT, 42:13-47:11 (version 1)",
    )

    def weights(self, x: Tensor) -> Tensor:
        time = x.shape[1]
        ones = torch.ones(time, time, dtype=accumulator(x.dtype), device=x.device)
        tril = ones.tril()
        return (tril / tril.sum(1, keepdim=True))[None, None]

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return self.loop(x, v)

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        accumulate = accumulator(v.dtype)
        means = [v[:, : t + 1].mean(1, dtype=accumulate) for t in range(v.shape[1])]  # T times (B, C)
        return torch.stack(means, dim=1).to(v.dtype)

    def mix_flops(self, time: int) -> Flops:
        additions = time * (time + 1) // 2 * self.n_embd  # t + 1 tokens for each t
        return Flops(additions, additions)

"""`sum`: the running sum, the triangle of ones before anybody divides its rows."""

import torch
from torch import Tensor

from trilab.agg.base import About, Aggregation, Flops, State, accumulator
from trilab.ops.prefix import prefix_sum


class PrefixSum(Aggregation):
    """Sum of everything seen so far: y_t = v_0 + … + v_t.

    The lower triangle of ones, not normalised: outputs grow with the position. No parameters. O(T·C) time, C numbers of
    state.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
    Source:
        Karpathy, Let's build GPT, 47:11-51:54: tril of ones, before its rows are normalised; here by a cumulative sum.
    """

    about = About(
        formula="y_t = v_0 + … + v_t",
        cost="O(T·C)",
        state="C",
        data_dependent=False,
        source="Karpathy, Let's build GPT, 47:11-51:54",
    )

    def weights(self, x: Tensor) -> Tensor:
        time = x.shape[1]
        return torch.ones(time, time, dtype=accumulator(x.dtype), device=x.device).tril()[None, None]

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return prefix_sum(v)

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        total, totals = torch.zeros_like(v[:, 0]), []
        for t in range(v.shape[1]):
            total = total + v[:, t]  # (B, C)
            totals.append(total)
        return torch.stack(totals, dim=1)

    def init_state(self, like: Tensor) -> State:
        return (torch.zeros_like(like, dtype=accumulator(like.dtype)),)

    def mix_step(self, x: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        total = state[0] + v
        return total.to(v.dtype), (total,)

    def state_size(self, time: int) -> int:
        return self.n_embd

    def mix_flops(self, time: int) -> Flops:
        return Flops(time * self.n_embd, time * self.n_embd)

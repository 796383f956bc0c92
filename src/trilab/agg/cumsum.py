"""`cumsum`: the prefix mean as a running sum divided by the count."""

import torch
from torch import Tensor

from trilab.agg.base import About, Aggregation, Flops, State, accumulator
from trilab.ops.prefix import prefix_mean


class CumsumMean(Aggregation):
    """Average of everything seen so far: y_t = (v_0 + … + v_t) / (t + 1).

    The same table as `matmul`, never built: each sum is the one before plus one token. No parameters. O(T·C) time, that
    of reading and writing; C + 1 numbers of state.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
    Source:
        Karpathy, Let's build GPT, 42:13-58:26 gives the mean; here by a cumulative sum, in at least float32.
    """

    about = About(
        formula="y_t = (v_0 + … + v_t) / (t + 1)",
        cost="O(T·C)",
        state="C + 1",
        rows_sum_to_one=True,
        data_dependent=False,
        source="Karpathy, Let's build GPT, 42:13-58:26, as a cumulative sum",
    )

    def weights(self, x: Tensor) -> Tensor:
        time = x.shape[1]
        counts = torch.arange(1, time + 1, dtype=accumulator(x.dtype), device=x.device)
        return (1 / counts[:, None]).expand(time, time).tril()[None, None]

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return prefix_mean(v)

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        total, means = torch.zeros_like(v[:, 0]), []
        for t in range(v.shape[1]):
            total = total + v[:, t]  # (B, C)
            means.append(total / (t + 1))
        return torch.stack(means, dim=1)

    def init_state(self, like: Tensor) -> State:
        total = torch.zeros_like(like, dtype=accumulator(like.dtype))
        return total, torch.zeros(len(like), 1, dtype=torch.int64, device=like.device)

    def mix_step(self, x: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        total, count = state
        total, count = total + v, count + 1
        return (total / count).to(v.dtype), (total, count)

    def state_size(self, time: int) -> int:
        return self.n_embd + 1

    def mix_flops(self, time: int) -> Flops:
        return Flops(time * self.n_embd, time * self.n_embd)

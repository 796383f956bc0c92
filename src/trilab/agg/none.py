"""`none`: no mixing at all, what every strategy is compared with."""

import torch
from torch import Tensor

from trilab.agg.base import About, Aggregation, Flops, State, accumulator


class Identity(Aggregation):
    """Every token keeps to itself: y_t = v_t.

    The table is the identity matrix, so the model around it sees one token at a time. No parameters, no arithmetic, no
    state. The baseline: what a strategy gains over it is what the past is worth.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
    Source:
        Karpathy, Let's build GPT, 58:26-62:00: embeddings and lm_head are in place, self-attention is not yet.
    """

    about = About(
        formula="y_t = v_t",
        cost="O(1)",
        state="0",
        rows_sum_to_one=True,
        data_dependent=False,
        source="Karpathy, Let's build GPT, 58:26-62:00",
    )

    def weights(self, x: Tensor) -> Tensor:
        return torch.eye(x.shape[1], dtype=accumulator(x.dtype), device=x.device)[None, None]

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        y = [v[:, t] for t in range(v.shape[1])]  # T times (B, C)
        return torch.stack(y, dim=1)

    def init_state(self, like: Tensor) -> State:
        return ()

    def mix_step(self, x: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        return v, state

    @property
    def reach(self) -> int:
        return 1

    def state_size(self, time: int) -> int:
        return 0

    def mix_flops(self, time: int) -> Flops:
        return Flops()

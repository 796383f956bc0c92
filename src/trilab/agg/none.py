"""`none`: no mixing at all, what every strategy is compared with."""

import torch
from torch import Tensor

from trilab.agg.base import About, Aggregation, accumulator


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
        source="Karpathy, Let's build GPT, 58:26-62:00",
    )

    def weights(self, x: Tensor) -> Tensor:
        return torch.eye(x.shape[1], dtype=accumulator(x.dtype), device=x.device)[None, None]

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        return v

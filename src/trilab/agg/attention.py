"""`attention`: affinities made from the tokens themselves."""

import torch
from torch import Tensor, nn

from trilab.agg.base import About, Aggregation, accumulator, head_size, lower_triangle, split_heads
from trilab.errors import BadInput


class SelfAttention(Aggregation):
    """Weighted average where each token asks and each earlier one answers: A = softmax(mask(Q Kᵀ / √(C / H))).

    Q = x Wq and K = x Wk, cut into H heads with a table each. Value and output maps are the model's (`project`).
    2·C² parameters. O(T²·C + T·C²) time; 2·T·C numbers of state, the keys and values of the past.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
        n_head: heads H; must divide n_embd.
        scaled: divide affinities by √(C / H), so that their spread at first does not grow with the head size.
        dropout: share of weights set to zero while training, the rest scaled up; rows then sum to 1 on average only.
    Raises:
        BadInput: n_embd not divisible by n_head; dropout outside [0, 1).
    Source:
        Karpathy, Let's build GPT, 62:00-71:38 (version 4), scaling 76:56-79:11, heads 81:59-84:25. His heads are
        separate modules side by side; here they are slices of one projection.
    """

    about = About(
        formula="A = softmax(mask(Q Kᵀ / √(C / H)))",
        cost="O(T²·C + T·C²)",
        state="2·T·C",
        rows_sum_to_one=True,
        source="Karpathy, Let's build GPT, 62:00-71:38 (version 4), 76:56-84:25",
    )

    tril: Tensor

    def __init__(
        self, n_embd: int, block_size: int, *, n_head: int = 1, scaled: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__(n_embd, block_size)
        if not 0 <= dropout < 1:
            raise BadInput(f"agg.dropout={dropout} must lie in [0, 1).")
        size = head_size(n_embd, n_head)
        self.n_head = n_head
        self.scale = size**-0.5 if scaled else 1.0
        self.query = nn.Linear(n_embd, n_embd, bias=False)
        self.key = nn.Linear(n_embd, n_embd, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("tril", lower_triangle(block_size), persistent=False)

    def weights(self, x: Tensor) -> Tensor:
        time = x.shape[1]
        wide = accumulator(x.dtype)  # a large product of queries and keys overflows float16
        q = split_heads(self.query(x).to(wide), self.n_head)  # (B, H, T, C / H)
        k = split_heads(self.key(x).to(wide), self.n_head)  # (B, H, T, C / H)
        affinities = self.scale * q @ k.transpose(-2, -1)  # (B, H, T, T)
        affinities = affinities.masked_fill(~self.tril[:time, :time], -torch.inf)
        weights: Tensor = self.dropout(affinities.softmax(-1))
        return weights

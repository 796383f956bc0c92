"""`alibi`: attention that likes near tokens better, by a fixed amount per token of distance."""

import torch
from torch import Tensor, nn

from trilab.agg.base import (
    About,
    Flops,
    QueryKeyAggregation,
    State,
    merge_heads,
    product_flops,
    split_heads,
)
from trilab.errors import BadInput
from trilab.ops.attention import attention


class AlibiAttention(QueryKeyAggregation):
    """Attention with linear biases: A = softmax(mask(Q Kᵀ / √(C / H) - m_h (t - s))), m_h = 2^(-8 (h + 1) / H).

    Each head h = 0 … H - 1 has a fixed slope m_h, from steep (near tokens only) to nearly flat; positions need no
    parameters. 2·C² parameters. O(T²·C + T·C²) time; 2·T·C numbers of state, the keys and values of the past. Memory
    for one (H, T, T) of penalties, whatever the size of the batch; under dropout on a CPU for all pairs.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
        n_head: heads H; must divide n_embd.
        dropout: share of weights set to zero while training, the rest scaled up; rows then sum to 1 on average only.
    Raises:
        BadInput: n_embd not divisible by n_head; dropout outside [0, 1).
    Source:
        Press, Smith, Lewis, Train short, test long: attention with linear biases enables input length extrapolation,
        2022. For a number of heads that is no power of two they interleave two series of slopes; here one formula
        serves all.
    """

    about = About(
        formula="A = softmax(mask(Q Kᵀ / √(C / H) - m_h (t - s))), m_h = 2^(-8 (h + 1) / H)",
        cost="O(T²·C + T·C²)",
        state="2·T·C",
        rows_sum_to_one=True,
        source="Press, Smith, Lewis, Train short, test long, 2022",
    )

    def __init__(self, n_embd: int, block_size: int, *, n_head: int = 1, dropout: float = 0.0) -> None:
        super().__init__(n_embd, block_size, n_head=n_head)
        if not 0 <= dropout < 1:
            raise BadInput(f"agg.dropout={dropout} must lie in [0, 1).")
        self.scale = self.head_size**-0.5
        self.dropout = nn.Dropout(dropout)

    def weights(self, x: Tensor) -> Tensor:
        q, k = self.heads(self.query(x)), self.heads(self.key(x))  # (B, H, T, C / H)
        weights: Tensor = self.dropout((self.scale * q @ k.mT + self._bias(k)).softmax(-1))
        return weights

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        q, k, values = (self.heads(part) for part in (self.query(x), self.key(x), v))  # (B, H, T, C / H)
        return merge_heads(attention(q, k, values, self._bias(k), scale=self.scale, dropout=self._dropout)).to(v.dtype)

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        q, k = self.heads(self.query(x)), self.heads(self.key(x))  # (B, H, T, C / H)
        values, slopes = split_heads(v.to(k.dtype), self.n_head), self._slopes(k)
        y = []
        for t in range(x.shape[1]):
            distances = torch.arange(t, -1, -1, device=x.device)[:, None]  # t, …, 1, 0
            affinities = self.scale * (k[:, :, : t + 1] @ q[:, :, t, :, None]) - slopes * distances  # (B, H, t + 1, 1)
            y.append((affinities.softmax(2) * values[:, :, : t + 1]).sum(2))
        return merge_heads(torch.stack(y, 2)).to(v.dtype)

    def init_state(self, like: Tensor) -> State:
        nothing = like.new_empty(len(like), 0, self.n_embd)
        return nothing, nothing  # keys, values

    def mix_step(self, x: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        keys = torch.cat([state[0], self.key(x)[:, None]], 1)  # (B, t + 1, C)
        values = torch.cat([state[1], v[:, None]], 1)  # (B, t + 1, C)
        self._fits(keys.shape[1])
        q, k, seen = (self.heads(part) for part in (self.query(x)[:, None], keys, values))
        bias = self._bias(k, first=keys.shape[1] - 1)
        y = merge_heads(attention(q, k, seen, bias, scale=self.scale, dropout=self._dropout))[:, 0]
        return y.to(v.dtype), (keys, values)

    def state_size(self, time: int) -> int:
        return 2 * time * self.n_embd

    def mix_flops(self, time: int) -> Flops:
        projections = product_flops(time, self.n_embd, self.n_embd) * 2
        return projections + product_flops(time, self.n_embd, time) * 2

    def _bias(self, k: Tensor, first: int = 0) -> Tensor:
        """Of positions first, first + 1, … towards the keys (B, H, S, D): (1, H, S - first, S), -inf for later ones."""
        now = torch.arange(k.shape[2], device=k.device)
        distances = now[first:, None] - now
        return (-self._slopes(k) * distances).masked_fill(distances < 0, -torch.inf)[None]

    @property
    def _dropout(self) -> float:
        return self.dropout.p if self.training else 0.0

    def _slopes(self, like: Tensor) -> Tensor:
        """(H, 1, 1), steep ones first."""
        heads = torch.arange(1, self.n_head + 1, dtype=like.dtype, device=like.device)
        slopes: Tensor = 2 ** (-8 * heads / self.n_head)
        return slopes[:, None, None]

"""`retention`: affinities without a softmax, fading with distance at a fixed rate."""

import torch
from torch import Tensor

from trilab.agg.base import (
    About,
    Flops,
    QueryKeyAggregation,
    State,
    accumulator,
    merge_heads,
    product_flops,
)
from trilab.ops.chunks import linear_attention, linear_attention_flops, linear_attention_step, segment_sums


class Retention(QueryKeyAggregation):
    """Weighted sum that fades with distance: A[t, s] = (q_t · k_s) / √(C / H) · γ_h^(t - s), γ_h = 1 - 2^(-5 - h).

    Head h = 0 … H - 1 remembers about 2^(5 + h) tokens. Weights may be negative and rows do not sum to 1: the result
    grows with the cube of the input, so a norm around it matters. All that is kept of the past is one matrix a head,
    S_t = γ S_{t-1} + k_t v_tᵀ.

    2·C² parameters. O(T·C²) time: chunks of tokens compared pair by pair, and S for what came before; C² / H numbers of
    state.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
        n_head: heads H; must divide n_embd.
    Raises:
        BadInput: n_embd not divisible by n_head.
    Source:
        Sun, Dong, Huang, Ma, Xia, Xue, Wang, Wei, Retentive network, 2023. Without their rotation of queries and keys,
        group norm and output gate: norms are the block's.
    """

    about = About(
        formula="A[t, s] = (q_t · k_s) / √(C / H) · γ_h^(t - s), γ_h = 1 - 2^(-5 - h)",
        cost="O(T·C²)",
        state="C² / H",
        source="Sun, Dong, Huang, Ma, Xia, Xue, Wang, Wei, Retentive network, 2023",
    )

    def __init__(self, n_embd: int, block_size: int, *, n_head: int = 1) -> None:
        super().__init__(n_embd, block_size, n_head=n_head)

    def weights(self, x: Tensor) -> Tensor:
        q, k = self._queries_keys(x)
        return q @ k.mT * segment_sums(self._log_decay(q)).exp()

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        q, k = self._queries_keys(x)
        return merge_heads(linear_attention(q, k, self.heads(v), self._log_decay(q))).to(v.dtype)

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        (q, k), values = self._queries_keys(x), self.heads(v)  # (B, H, T, C / H)
        decay = self._log_decay(q).exp()[..., None, None]  # (1, H, T, 1, 1)
        S, y = torch.zeros_like(q[:, :, 0, None]), []
        for t in range(x.shape[1]):
            S = decay[:, :, t] * S + k[:, :, t, :, None] * values[:, :, t, None, :]  # (B, H, C / H, C / H)
            y.append(q[:, :, t, None, :] @ S)
        return merge_heads(torch.cat(y, 2)).to(v.dtype)

    def init_state(self, like: Tensor) -> State:
        return (like.new_zeros(len(like), self.n_head, self.head_size, self.head_size, dtype=accumulator(like.dtype)),)

    def mix_step(self, x: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        q, k = self._queries_keys(x[:, None])
        y, S = linear_attention_step(q, k, self.heads(v[:, None]), self._log_decay(q), *state)
        return merge_heads(y)[:, 0].to(v.dtype), (S,)

    def state_size(self, time: int) -> int:
        return self.n_embd * self.head_size

    def mix_flops(self, time: int) -> Flops:
        sums = linear_attention_flops(time, self.head_size, self.head_size)
        return product_flops(time, self.n_embd, self.n_embd) * 2 + Flops(sums, 2 * sums) * self.n_head

    def _queries_keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Queries, already divided by √(C / H), and keys: (B, H, T, C / H)."""
        return self.heads(self.query(x)) * self.head_size**-0.5, self.heads(self.key(x))

    def _log_decay(self, like: Tensor) -> Tensor:
        """log γ of every head, the same for every token: (1, H, T)."""
        heads = torch.arange(self.n_head, dtype=like.dtype, device=like.device)
        return torch.log1p(-(2 ** (-5 - heads)))[None, :, None].expand(-1, -1, like.shape[2])

"""`gated`: affinities without a softmax, and tokens that decide how much of the past fades."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from trilab.agg.base import (
    About,
    Flops,
    QueryKeyAggregation,
    State,
    accumulator,
    merge_heads,
    product_flops,
)
from trilab.ops.chunks import (
    chunk_lengths,
    linear_attention,
    linear_attention_flops,
    linear_attention_step,
    segment_sums,
)


class GatedLinearAttention(QueryKeyAggregation):
    """Weighted sum that fades as the tokens say: A[t, s] = (q_t · k_s) / √(C / H) · a_{s+1} ⋯ a_t.

    One gate a head and token, a_r = σ(w · x_r + b): near 1 keeps the past, near 0 forgets it. Weights may be negative
    and rows do not sum to 1. All that is kept of the past is one matrix a head, S_t = a_t S_{t-1} + k_t v_tᵀ.

    At first b = log n with n = T^((h + 1) / H) for heads h = 0 … H - 1, so that a is about n / (n + 1) and the head
    remembers about n tokens, the last head the whole block. At a = ½ what lies 20 tokens back would reach neither the
    output nor the gradient, and the gates could not learn to keep it.

    2·C² + H·(C + 1) parameters. O(T·C²) time: chunks of tokens compared pair by pair, and S for what came before;
    C² / H numbers of state.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
        n_head: heads H; must divide n_embd.
    Raises:
        BadInput: n_embd not divisible by n_head.
    Source:
        Dao, Gu, Transformers are SSMs (Mamba-2), 2024; Yang, Wang, Shen, Panda, Kim, Gated linear attention
        transformers, 2024, with a gate a channel. Here a sigmoid gate as theirs in place of Mamba-2's exp(-Δ A), no Δ
        on what is written, 1 / √(C / H) as in attention, and no convolutions, norms and output gates. The gate begins
        as in Tallec, Ollivier, Can recurrent neural networks warp time?, 2018, spread evenly instead of drawn.
    """

    about = About(
        formula="A[t, s] = (q_t · k_s) / √(C / H) · a_{s+1} ⋯ a_t, a_r = σ(w · x_r + b)",
        cost="O(T·C²)",
        state="C² / H",
        source="Dao, Gu, Mamba-2, 2024; Yang, Wang, Shen, Panda, Kim, Gated linear attention, 2024",
    )

    def __init__(self, n_embd: int, block_size: int, *, n_head: int = 1) -> None:
        super().__init__(n_embd, block_size, n_head=n_head)
        self.gate = nn.Linear(n_embd, n_head)
        with torch.no_grad():
            self.gate.bias.copy_(math.log(block_size) * torch.arange(1, n_head + 1) / n_head)

    def weights(self, x: Tensor) -> Tensor:
        q, k = self._queries_keys(x)
        return q @ k.mT * segment_sums(self._log_decay(x)).exp()

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        q, k = self._queries_keys(x)
        return merge_heads(linear_attention(q, k, self.heads(v), self._log_decay(x))).to(v.dtype)

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        (q, k), values = self._queries_keys(x), self.heads(v)  # (B, H, T, C / H)
        a = self.heads(self.gate(x)).sigmoid()[..., None]  # (B, H, T, 1, 1)
        S, y = torch.zeros_like(q[:, :, 0, None]), []
        for t in range(x.shape[1]):
            S = a[:, :, t] * S + k[:, :, t, :, None] * values[:, :, t, None, :]  # (B, H, C / H, C / H)
            y.append(q[:, :, t, None, :] @ S)
        return merge_heads(torch.cat(y, 2)).to(v.dtype)

    def init_state(self, like: Tensor) -> State:
        return (like.new_zeros(len(like), self.n_head, self.head_size, self.head_size, dtype=accumulator(like.dtype)),)

    def mix_step(self, x: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        q, k = self._queries_keys(x[:, None])
        y, S = linear_attention_step(q, k, self.heads(v[:, None]), self._log_decay(x[:, None]), *state)
        return merge_heads(y)[:, 0].to(v.dtype), (S,)

    def state_size(self, time: int) -> int:
        return self.n_embd * self.head_size

    def mix_flops(self, time: int) -> Flops:
        projections = product_flops(time, self.n_embd, 2 * self.n_embd + self.n_head)
        sums = linear_attention_flops(time, self.head_size, self.head_size)
        decays = sum(length * length for length in chunk_lengths(time))  # sums of log a for every pair of a chunk
        return projections + Flops(sums + decays, 2 * sums + decays) * self.n_head

    def _queries_keys(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Queries, already divided by √(C / H), and keys: (B, H, T, C / H)."""
        return self.heads(self.query(x)) * self.head_size**-0.5, self.heads(self.key(x))

    def _log_decay(self, x: Tensor) -> Tensor:
        """log a: (B, H, T)."""
        return logsigmoid(self.heads(self.gate(x))[..., 0])

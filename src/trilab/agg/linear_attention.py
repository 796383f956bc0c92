"""`linear_attention`: attention with a similarity that factors, so that the past fits in one matrix."""

import torch
from torch import Tensor
from torch.nn.functional import elu, pad

from trilab.agg.base import (
    About,
    Flops,
    QueryKeyAggregation,
    State,
    accumulator,
    merge_heads,
    product_flops,
    split_heads,
)
from trilab.ops.chunks import linear_attention, linear_attention_flops, linear_attention_step

FLOOR = 1e-6  # least feature


class LinearAttention(QueryKeyAggregation):
    """Weighted average by similarity of positive features: A[t, s] = φ(q_t) · φ(k_s) / Σ_{r ≤ t} φ(q_t) · φ(k_r).

    φ(x) = elu(x) + 1 + 1e-6. The similarity is a product: Σ φ(k_s) v_sᵀ and Σ φ(k_s) are all that is kept of the past.

    2·C² parameters. O(T·C²) time: chunks of tokens compared pair by pair, one matrix a head for what came before;
    C² / H + C numbers of state.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
        n_head: heads H; must divide n_embd.
    Raises:
        BadInput: n_embd not divisible by n_head.
    Source:
        Katharopoulos, Vyas, Pappas, Fleuret, Transformers are RNNs, 2020. They add the small number to the sum that is
        divided by; here each feature has it, so that rows sum to 1 exactly even where all of elu + 1 is rounded to 0.
    """

    about = About(
        formula="A[t, s] = φ(q_t) · φ(k_s) / Σ_{r ≤ t} φ(q_t) · φ(k_r), φ(x) = elu(x) + 1 + 1e-6",
        cost="O(T·C²)",
        state="C² / H + C",
        rows_sum_to_one=True,
        source="Katharopoulos, Vyas, Pappas, Fleuret, Transformers are RNNs, 2020",
    )

    def __init__(self, n_embd: int, block_size: int, *, n_head: int = 1) -> None:
        super().__init__(n_embd, block_size, n_head=n_head)

    def weights(self, x: Tensor) -> Tensor:
        q, k = self._features(x)
        similarities = (q @ k.mT).tril()  # (B, H, T, T)
        return similarities / similarities.sum(-1, keepdim=True)

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        q, k = self._features(x)
        return self._means(linear_attention(q, k, self._counted(v), self._no_decay(q))).to(v.dtype)

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        q, k = self._features(x)  # (B, H, T, C / H)
        values = self.heads(v)
        y = []
        for t in range(x.shape[1]):
            similarities = k[:, :, : t + 1] @ q[:, :, t, :, None]  # (B, H, t + 1, 1)
            y.append((similarities * values[:, :, : t + 1]).sum(2) / similarities.sum(2))
        return merge_heads(torch.stack(y, 2)).to(v.dtype)

    def init_state(self, like: Tensor) -> State:
        sizes = self.n_head, self.head_size, self.head_size + 1
        return (like.new_zeros(len(like), *sizes, dtype=accumulator(like.dtype)),)

    def mix_step(self, x: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        q, k = self._features(x[:, None])
        sums, S = linear_attention_step(q, k, self._counted(v[:, None]), self._no_decay(q), *state)
        return self._means(sums)[:, 0].to(v.dtype), (S,)

    def state_size(self, time: int) -> int:
        return self.n_embd * (self.head_size + 1)

    def mix_flops(self, time: int) -> Flops:
        sums = linear_attention_flops(time, self.head_size, self.head_size + 1)
        return product_flops(time, self.n_embd, self.n_embd) * 2 + Flops(sums, 2 * sums) * self.n_head

    def _features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """φ of queries and keys: (B, H, T, C / H)."""
        wide = accumulator(x.dtype)
        # before the heads are split: torch.compile loses the strides of an elu of a transposed tensor
        q, k = (split_heads(elu(part(x).to(wide)) + (1 + FLOOR), self.n_head) for part in (self.query, self.key))
        return q, k

    def _counted(self, v: Tensor) -> Tensor:
        """(B, T, C) → (B, H, T, C / H + 1), the last channel 1: its weighted sum is the sum of the weights."""
        return pad(self.heads(v), (0, 1), value=1.0)

    def _means(self, sums: Tensor) -> Tensor:
        """(B, H, T, C / H + 1) → (B, T, C), the sums divided by the last of them."""
        return merge_heads(sums[..., :-1] / sums[..., -1:])

    def _no_decay(self, like: Tensor) -> Tensor:
        return like.new_zeros(1, 1, like.shape[2])

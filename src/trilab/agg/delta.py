"""`delta`: a memory of values by key, where a token overwrites what its key gave before."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from trilab.agg.base import (
    About,
    Flops,
    QueryKeyAggregation,
    State,
    accumulator,
    merge_heads,
    product_flops,
)
from trilab.ops.chunks import CHUNK, chunk_lengths


class DeltaRule(QueryKeyAggregation):
    """Memory written by correction: S_t = S_{t-1} (I - β_t k_t k_tᵀ) + β_t v_t k_tᵀ, y_t = S_t q_t.

    S holds values by key, one matrix a head. Each token reads what its key gives, S_{t-1} k_t, and moves it by β_t of
    the way to v_t: u_t = β_t (v_t - S_{t-1} k_t) is added along k_t. Queries and keys have length 1, so that a step at
    β = 1 replaces exactly and none overshoots; β_t = σ(w · x_t + b). It is a weighted sum,
    A = tril(Q Kᵀ) (I + tril(diag(β) K Kᵀ, -1))⁻¹ diag(β); weights may be negative and rows do not sum to 1.

    2·C² + H·(C + 1) parameters. O(T·C²) time: chunks of tokens solved together, and S for what came before; C² / H
    numbers of state.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
        n_head: heads H; must divide n_embd.
    Raises:
        BadInput: n_embd not divisible by n_head.
    Source:
        Schlag, Irie, Schmidhuber, Linear transformers are secretly fast weight programmers, 2021; in chunks: Yang,
        Wang, Zhang, Shen, Kim, Parallelizing linear transformers with the delta rule over sequence length, 2024.
        Without their feature maps, convolutions and output norms.
    """

    about = About(
        formula="S_t = S_{t-1} (I - β_t k_t k_tᵀ) + β_t v_t k_tᵀ, y_t = S_t q_t",
        cost="O(T·C²)",
        state="C² / H",
        source="Schlag, Irie, Schmidhuber, 2021; Yang, Wang, Zhang, Shen, Kim, 2024",
    )

    def __init__(self, n_embd: int, block_size: int, *, n_head: int = 1) -> None:
        super().__init__(n_embd, block_size, n_head=n_head)
        self.rate = nn.Linear(n_embd, n_head)

    def weights(self, x: Tensor) -> Tensor:
        q, k, beta = self._parts(x)
        overlaps = (beta * k @ k.mT).tril(-1)  # (B, H, T, T)
        return _solve(overlaps, (q @ k.mT).tril(), left=False) * beta.mT

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        parts = (*self._parts(x), self.heads(v))
        S: Tensor | None = None  # (B, H, C / H, C / H), keys by values: the transpose of the formula's
        y: list[Tensor] = []
        for q, k, beta, values in zip(*(torch.split(part, CHUNK, 2) for part in parts), strict=True):
            known = values if S is None else values - k @ S  # all but what this chunk's own tokens have written
            u = _solve((beta * k @ k.mT).tril(-1), beta * known)  # (B, H, L, C / H)
            here = (q @ k.mT).tril() @ u
            y.append(here if S is None else here + q @ S)
            if len(y) * CHUNK < x.shape[1]:
                S = k.mT @ u if S is None else S + k.mT @ u
        return merge_heads(torch.cat(y, 2)).to(v.dtype)

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        (q, k, beta), values = self._parts(x), self.heads(v)
        q, k, beta, values = (part.transpose(1, 2)[..., None] for part in (q, k, beta, values))  # (B, T, H, C / H, 1)
        S, y = torch.zeros_like(q[:, 0] @ k[:, 0].mT), []
        for t in range(x.shape[1]):
            recalled = S @ k[:, t]  # (B, H, C / H, 1)
            S = S + beta[:, t] * (values[:, t] - recalled) @ k[:, t].mT  # (B, H, C / H, C / H)
            y.append(S @ q[:, t])
        return torch.stack(y, 1).flatten(2).to(v.dtype)

    def init_state(self, like: Tensor) -> State:
        return (like.new_zeros(len(like), self.n_head, self.head_size, self.head_size, dtype=accumulator(like.dtype)),)

    def mix_step(self, x: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        (q, k, beta), (S,) = self._parts(x[:, None]), state
        S = S + k.mT @ (beta * (self.heads(v[:, None]) - k @ S))
        return merge_heads(q @ S)[:, 0].to(v.dtype), (S,)

    def state_size(self, time: int) -> int:
        return self.n_embd * self.head_size

    def mix_flops(self, time: int) -> Flops:
        projections = product_flops(time, self.n_embd, 2 * self.n_embd + self.n_head)
        size, lengths = self.head_size, chunk_lengths(time)
        heads = Flops()
        for n, length in enumerate(lengths):
            solve = length * length * size
            heads += product_flops(length, size, length) * 2 + product_flops(length, length, size)
            # backward: one solve for the right side, one product for the matrix
            heads += Flops(solve, solve) + Flops(0, 2 * length * length * size)
            looks_back, is_carried_on = n > 0, n < len(lengths) - 1
            heads += product_flops(length, size, size) * (2 * looks_back + is_carried_on)
        return projections + heads * self.n_head

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys of length 1, (B, H, T, C / H), and β, (B, H, T, 1)."""
        q, k = (normalize(self.heads(part(x)), dim=-1) for part in (self.query, self.key))
        return q, k, self.heads(self.rate(x)).sigmoid()


def _solve(below: Tensor, right: Tensor, *, left: bool = True) -> Tensor:
    """(I + below)⁻¹ @ right, or right @ (I + below)⁻¹; what below holds on and above its diagonal is not read."""
    solved: Tensor = torch.linalg.solve_triangular(below, right, upper=False, left=left, unitriangular=True)
    return solved

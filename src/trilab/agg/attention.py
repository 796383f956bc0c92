"""`attention`: affinities made from the tokens themselves."""

import torch
from torch import Tensor, nn

from trilab.agg.base import (
    About,
    Flops,
    QueryKeyAggregation,
    State,
    accumulator,
    lower_triangle,
    merge_heads,
    product_flops,
    split_heads,
)
from trilab.errors import BadInput
from trilab.ops.attention import attention, window_attention, window_attention_pairs

ROTARY_BASE = 10_000


class SelfAttention(QueryKeyAggregation):
    """Weighted average where each token asks and each earlier one answers: A = softmax(mask(Q Kᵀ / √(C / H))).

    Q = x Wq and K = x Wk, cut into H heads with a table each. Value and output maps are the model's (`project`).
    2·C² parameters. O(T²·C + T·C²) time; 2·T·C numbers of state, the keys and values of the past.

    The table is made for `weights` only: the averages come from fused kernels, O(T·C) memory, gradients too.
    Where there is none, under dropout on a CPU, all H·T² pairs of each row of the batch are kept for the gradient.

    With a window each token sees itself and the window - 1 before it: O(T·window·C + T·C²) time, in blocks of queries
    over their own keys and the window - 1 before, and a state that stops growing at 2·(window - 1)·C numbers. Rotary
    positions turn queries and keys, pair of channels by pair, by an angle that grows with the position, so that their
    product knows how far they are apart.

    Args:
        n_embd: channels C.
        block_size: most tokens T of one call.
        n_head: heads H; must divide n_embd.
        scaled: divide affinities by √(C / H), so that their spread at first does not grow with the head size.
        dropout: share of weights set to zero while training, the rest scaled up; rows then sum to 1 on average only.
        window: tokens seen, this one included; None for all.
        rotary: turn queries and keys by their positions.
    Raises:
        BadInput: n_embd not divisible by n_head; dropout outside [0, 1); window below 1; rotary with an odd head size.
    Source:
        Karpathy, Let's build GPT, 62:00-71:38 (version 4), scaling 76:56-79:11, heads 81:59-84:25. His heads are
        separate modules side by side; here they are slices of one projection. Window: Beltagy, Peters, Cohan,
        Longformer, 2020, without its global tokens. Rotary: Su, Lu, Pan, Murtadha, Wen, Liu, RoFormer, 2021.
    """

    about = About(
        formula="A = softmax(mask(Q Kᵀ / √(C / H)))",
        cost="O(T²·C + T·C²); with a window O(T·window·C + T·C²)",
        state="2·T·C; with a window 2·min(T, window - 1)·C",
        rows_sum_to_one=True,
        source="Karpathy, Let's build GPT, 62:00-71:38 (version 4), 76:56-84:25",
    )

    tril: Tensor

    def __init__(
        self,
        n_embd: int,
        block_size: int,
        *,
        n_head: int = 1,
        scaled: bool = True,
        dropout: float = 0.0,
        window: int | None = None,
        rotary: bool = False,
    ) -> None:
        super().__init__(n_embd, block_size, n_head=n_head)
        if not 0 <= dropout < 1:
            raise BadInput(f"agg.dropout={dropout} must lie in [0, 1).")
        if window is not None and window < 1:
            raise BadInput(f"agg.window={window} must be at least 1 (tokens seen, this one included), or null for all.")
        if rotary and self.head_size % 2:
            raise BadInput(
                f"agg.rotary=true turns pairs of channels: the head size, model.n_embd / agg.n_head = {n_embd} / "
                f"{n_head} = {self.head_size}, must be even."
            )
        self.scale = self.head_size**-0.5 if scaled else 1.0
        self.window = window
        self.rotary = rotary
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("tril", lower_triangle(min(window or block_size, block_size)), persistent=False)

    def weights(self, x: Tensor) -> Tensor:
        time, size = x.shape[1], len(self.tril)
        visible = self.tril[:time, :time] if time <= size else lower_triangle(time, x.device).triu(1 - size)
        q, k = self._turned(self.query(x)), self._turned(self.key(x))  # (B, H, T, C / H)
        affinities = (self.scale * q @ k.mT).masked_fill(~visible, -torch.inf)
        weights: Tensor = self.dropout(affinities.softmax(-1))
        return weights

    def mix(self, x: Tensor, v: Tensor) -> Tensor:
        q, k = self._turned(self.query(x)), self._turned(self.key(x))  # (B, H, T, C / H)
        y = window_attention(q, k, self.heads(v), len(self.tril), scale=self.scale, dropout=self._dropout)
        return merge_heads(y).to(v.dtype)

    def loop(self, x: Tensor, v: Tensor) -> Tensor:
        q, k = self._turned(self.query(x)), self._turned(self.key(x))  # (B, H, T, C / H)
        values = split_heads(v.to(k.dtype), self.n_head)
        y = []
        for t in range(x.shape[1]):
            seen = slice(max(0, t + 1 - len(self.tril)), t + 1)
            affinities = self.scale * (k[:, :, seen] @ q[:, :, t, :, None])  # (B, H, S, 1)
            y.append((affinities.softmax(2) * values[:, :, seen]).sum(2))
        return merge_heads(torch.stack(y, 2)).to(v.dtype)

    def init_state(self, like: Tensor) -> State:
        nothing = like.new_empty(len(like), 0, self.n_embd)
        return nothing.to(accumulator(like.dtype)) if self._kept_turned else nothing, nothing  # keys, values

    def mix_step(self, x: Tensor, v: Tensor, state: State) -> tuple[Tensor, State]:
        seen = state[0].shape[1] + 1
        if self.window is None:
            self._fits(seen)
        # positions are counted from the oldest key kept: only distances matter
        q, key = self.query(x)[:, None], self.key(x)[:, None]  # (B, 1, C)
        if self._kept_turned:
            q, here = self._turned(torch.cat([q, key]), first=seen - 1).chunk(2)  # (B, H, 1, C / H)
            key = merge_heads(here)
        else:
            q = self._turned(q, first=seen - 1)
        keys, values = torch.cat([state[0], key], 1), torch.cat([state[1], v[:, None]], 1)  # (B, S, C)
        k = self.heads(keys) if self._kept_turned else self._turned(keys)
        y = merge_heads(attention(q, k, self.heads(values), scale=self.scale, dropout=self._dropout))[:, 0]
        oldest = int(seen == self.window)  # the next token sees one less
        return y.to(v.dtype), (keys[:, oldest:], values[:, oldest:])

    @property
    def reach(self) -> int | None:
        return self.window

    def state_size(self, time: int) -> int:
        kept = time if self.window is None else min(time, self.window - 1)
        return 2 * kept * self.n_embd

    def mix_flops(self, time: int) -> Flops:
        projections = product_flops(time, self.n_embd, self.n_embd) * 2
        return projections + product_flops(window_attention_pairs(time, len(self.tril)), self.n_embd, 1) * 2

    @property
    def _kept_turned(self) -> bool:
        """Whether the keys of the past keep their positions, so that each is turned once only."""
        return self.rotary and self.window is None

    @property
    def _dropout(self) -> float:
        return self.dropout.p if self.training else 0.0

    def _turned(self, projected: Tensor, first: int = 0) -> Tensor:
        """(B, T, C) → (B, H, T, C / H), turned by positions first, first + 1, …"""
        x = self.heads(projected)
        if not self.rotary:
            return x
        time, size = x.shape[2:]
        positions = torch.arange(first, first + time, dtype=x.dtype, device=x.device)
        speeds = ROTARY_BASE ** (-torch.arange(0, size, 2, dtype=x.dtype, device=x.device) / size)
        angles = positions[:, None] * speeds  # (T, C / H / 2)
        cos, sin = angles.cos(), angles.sin()
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)

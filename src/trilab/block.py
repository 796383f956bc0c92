"""One block: norm, aggregation, residual, MLP. The aggregation only mixes; everything around it is owned here."""

from torch import Tensor, nn

from trilab.agg.base import Aggregation


class MLP(nn.Module):
    """Each position by itself: Linear, ReLU, Linear back.

    Args:
        n_embd: channels in and out.
        width: hidden channels per channel; 0 leaves the second Linear out, as the lecture's first feed-forward does.
    """

    def __init__(self, n_embd: int, width: int) -> None:
        super().__init__()
        hidden = n_embd * (width or 1)
        self.expand = nn.Linear(n_embd, hidden)
        self.contract: nn.Module = nn.Linear(hidden, n_embd) if width else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) → (B, T, C)."""
        y: Tensor = self.contract(self.expand(x).relu())
        return y


class Block(nn.Module):
    """x → x + agg(norm(x)) → x + mlp(norm(x)), where norm, the sums and the MLP can each be left out.

    Args:
        agg: the strategy.
        norm: LayerNorm before the aggregation and before the MLP (pre-norm, as GPT-2).
        residual: add each part's input to its output.
        mlp: whether there is an MLP.
        mlp_width: see MLP.
        dropout: share of each part's outputs set to zero while training.
    """

    def __init__(
        self, agg: Aggregation, *, norm: bool, residual: bool, mlp: bool, mlp_width: int, dropout: float
    ) -> None:
        super().__init__()
        n_embd = agg.n_embd
        self.norm_agg: nn.Module = nn.LayerNorm(n_embd) if norm else nn.Identity()
        self.agg = agg
        self.norm_mlp: nn.Module = nn.LayerNorm(n_embd) if norm and mlp else nn.Identity()
        self.mlp: nn.Module | None = MLP(n_embd, mlp_width) if mlp else None
        self.dropout = nn.Dropout(dropout)
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) → (B, T, C)."""
        y: Tensor = self.dropout(self.agg(self.norm_agg(x)))
        x = x + y if self.residual else y
        if self.mlp is None:
            return x
        y = self.dropout(self.mlp(self.norm_mlp(x)))
        return x + y if self.residual else y

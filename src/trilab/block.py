"""One block: norm, aggregation, residual, MLP. The aggregation only mixes; everything around it is owned here."""

from torch import Tensor, nn

from trilab.agg.base import Aggregation, Flops, State, product_flops


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
        rows = x.flatten(0, -2)  # no view after ReLU: torch.compile would keep a mask beside it, at a third of a step
        y: Tensor = self.contract(self.expand(rows).relu())
        return y.view(x.shape)

    def flops(self, time: int) -> Flops:
        """Of one row of `time` tokens."""
        layers = [layer for layer in (self.expand, self.contract) if isinstance(layer, nn.Linear)]
        return sum((product_flops(time, layer.in_features, layer.out_features) for layer in layers), Flops())


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
        self.mlp = MLP(n_embd, mlp_width) if mlp else None
        self.dropout = nn.Dropout(dropout)
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) → (B, T, C)."""
        y: Tensor = self.agg(self.norm_agg(x))
        return self._around(x, y)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """One more token, (B, C), and what the aggregation carries; see Aggregation.step."""
        y, state = self.agg.step(self.norm_agg(x), state)
        return self._around(x, y), state

    def _around(self, x: Tensor, y: Tensor) -> Tensor:
        """What stands around the aggregation's y; each position by itself."""
        mixed: Tensor = self.dropout(y)
        x = x + mixed if self.residual else mixed
        if self.mlp is None:
            return x
        own: Tensor = self.dropout(self.mlp(self.norm_mlp(x)))
        return x + own if self.residual else own

    def flops(self, time: int) -> Flops:
        """Of one row of `time` tokens."""
        return self.agg.flops(time) + (self.mlp.flops(time) if self.mlp else Flops())

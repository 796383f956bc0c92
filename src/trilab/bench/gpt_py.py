"""The transformer as the lecture's gpt.py writes it: heads one after another, each with maps and a mask of its own."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Head(nn.Module):
    """One head of self-attention, (B, T, C) → (B, T, D)."""

    tril: Tensor

    def __init__(self, n_embd: int, head_size: int, block_size: int, dropout: float) -> None:
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(n_embd, head_size, bias=False) for _ in range(3))
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Weighted averages of values."""
        time = x.shape[1]
        keys, queries = self.key(x), self.query(x)
        affinities = queries @ keys.transpose(-2, -1) * keys.shape[-1] ** -0.5
        affinities = affinities.masked_fill(self.tril[:time, :time] == 0, float("-inf"))
        y: Tensor = self.dropout(F.softmax(affinities, dim=-1)) @ self.value(x)
        return y


class Block(nn.Module):
    """Heads side by side, then an MLP; each after a LayerNorm and beside a residual path."""

    def __init__(self, n_embd: int, n_head: int, block_size: int, dropout: float) -> None:
        super().__init__()
        self.heads = nn.ModuleList(Head(n_embd, n_embd // n_head, block_size, dropout) for _ in range(n_head))
        self.output = nn.Linear(n_embd, n_embd)
        self.dropout = nn.Dropout(dropout)
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd), nn.ReLU(), nn.Linear(4 * n_embd, n_embd), nn.Dropout(dropout)
        )
        self.norm_heads, self.norm_mlp = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, C) → (B, T, C)."""
        normed = self.norm_heads(x)
        together = torch.cat([head(normed) for head in self.heads], dim=-1)
        x = x + self.dropout(self.output(together))
        y: Tensor = x + self.mlp(self.norm_mlp(x))
        return y


class Transformer(nn.Module):
    """The same sums as `LanguageModel` with model=gpt and agg=attention, and as many parameters.

    Args:
        vocab_size, block_size, n_embd, n_head, n_layer, dropout: as for `LanguageModel`.
    Source:
        Karpathy, Let's build GPT, gpt.py.
    """

    def __init__(
        self, vocab_size: int, block_size: int, *, n_embd: int, n_head: int, n_layer: int, dropout: float
    ) -> None:
        super().__init__()
        self.block_size = block_size
        self.tokens = nn.Embedding(vocab_size, n_embd)
        self.positions = nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*(Block(n_embd, n_head, block_size, dropout) for _ in range(n_layer)))
        self.norm = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) ids → (B, T, V) logits."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        logits: Tensor = self.lm_head(self.norm(self.blocks(x)))
        return logits

"""The language model: token embedding + position embedding → blocks around the aggregation → lm_head."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, islice
from typing import cast

import torch
from torch import Tensor, nn

from trilab.agg.base import Aggregation, Flops, State, product_flops
from trilab.block import Block
from trilab.errors import BadInput
from trilab.init import named_draws, seed_of

# (n_embd, block_size) → the strategy of one layer.
MakeAggregation = Callable[[int, int], Aggregation]
# Tokens taken so far, and what each layer carries.
ModelState = tuple[int, tuple[State, ...]]

MOST_LAYERS = 10_000  # more would take minutes to build, and no machine trains them


class LanguageModel(nn.Module):
    """Characters so far → logits of the next one. Bigram, flat and gpt are three settings of this one model.

    With everything off and one layer it is flat: embedding → aggregation → lm_head. With lm_head off the embedding has
    vocab_size channels and is itself the table of logits: the lecture's bigram when the strategy is `none`.

    Every initial value is a function of (seed, parameter name, shape): see init.py.

    Args:
        vocab_size: V, number of distinct characters.
        block_size: T, most characters looked back on.
        make_agg: (n_embd, block_size) → the strategy of each layer; or several, a pattern repeated over the layers.
        seed: of the initial values.
        n_embd: channels C; None with lm_head off (they are the vocabulary).
        n_layer: blocks.
        n_head: heads that strategies with heads follow; must divide n_embd.
        positions: add a learned vector per position.
        norm: LayerNorm in the blocks and before lm_head.
        residual: add each part's input to its output.
        mlp: an MLP after each aggregation.
        mlp_width: its hidden channels per channel; 0 leaves its second Linear out.
        value: a learned map of what is averaged.
        output: a learned map of the averages.
        dropout: share of outputs set to zero while training.
        lm_head: a Linear from channels to logits.
        init_std: standard deviation of the model's own Linear and Embedding weights (GPT-2: 0.02), biases then zero;
            None leaves PyTorch's own.
    Raises:
        BadInput: a size below 1, more than MOST_LAYERS, dropout outside [0, 1), n_embd not divisible by n_head, n_embd
            given with lm_head off.
    Source:
        Karpathy, Let's build GPT; the block is GPT-2's.
    """

    def __init__(
        self,
        vocab_size: int,
        block_size: int,
        make_agg: MakeAggregation | Sequence[MakeAggregation],
        *,
        seed: int = 1337,
        n_embd: int | None = 32,
        n_layer: int = 1,
        n_head: int = 1,
        positions: bool = True,
        norm: bool = False,
        residual: bool = False,
        mlp: bool = False,
        mlp_width: int = 4,
        value: bool = False,
        output: bool = False,
        dropout: float = 0.0,
        lm_head: bool = True,
        init_std: float | None = None,
    ) -> None:
        super().__init__()
        if not lm_head and n_embd not in (None, vocab_size):
            raise BadInput(
                f"model.n_embd={n_embd} with model.lm_head=false: the embedding is then the table of logits, "
                f"with as many channels as the vocabulary ({vocab_size}). Set model.n_embd=null."
            )
        if lm_head and n_embd is None:
            raise BadInput("model.n_embd=null goes with model.lm_head=false only: give a number of channels.")
        if init_std is not None and not 0 <= init_std < math.inf:
            raise BadInput(f"model.init_std={init_std} must be a finite number, 0 or more, or null for PyTorch's own.")
        channels = n_embd if lm_head and n_embd is not None else vocab_size
        sizes = {"model.n_embd": channels, "model.n_layer": n_layer, "model.n_head": n_head}
        for name, size in (sizes | {"data.block_size": block_size}).items():
            if size < 1:
                raise BadInput(f"{name}={size} must be at least 1.")
        if n_layer > MOST_LAYERS:
            raise BadInput(f"model.n_layer={n_layer} must be at most {MOST_LAYERS:,}.")
        pattern = [make_agg] if callable(make_agg) else list(make_agg)
        if len(pattern) > n_layer:
            raise BadInput(
                f"model.agg_per_layer names {len(pattern)} strategies, but model.n_layer={n_layer}: name one a layer, "
                "or a shorter pattern, which is repeated."
            )
        if mlp_width < 0:
            raise BadInput(f"model.mlp_width={mlp_width} must be 0 or more.")
        if channels % n_head:
            raise BadInput(f"model.n_embd={channels} is not divisible by model.n_head={n_head}.")
        if not 0 <= dropout < 1:
            raise BadInput(f"model.dropout={dropout} must lie in [0, 1).")
        self.vocab_size = vocab_size
        self.block_size = block_size
        with named_draws(self, seed):
            self.token_embedding_table = nn.Embedding(vocab_size, channels)
            self.position_embedding_table = nn.Embedding(block_size, channels) if positions else None
            self.blocks = nn.ModuleList()
            for layer, make in enumerate(islice(cycle(pattern), n_layer)):
                torch.default_generator.manual_seed(seed_of(seed, f"blocks.{layer}.agg"))
                agg = make(channels, block_size)
                own = set(agg.modules())
                agg.project(value=value, output=output)
                block = Block(agg, norm=norm, residual=residual, mlp=mlp, mlp_width=mlp_width, dropout=dropout)
                self.blocks.append(block)
                if init_std is not None:
                    _draw_normal((m for m in block.modules() if m not in own), init_std)
            self.norm: nn.Module = nn.LayerNorm(channels) if norm else nn.Identity()
            self.lm_head: nn.Module = nn.Linear(channels, vocab_size) if lm_head else nn.Identity()
            if init_std is not None:
                _draw_normal([self.token_embedding_table, self.position_embedding_table, self.lm_head], init_std)

    def embed(self, tokens: Tensor) -> Tensor:
        """(B, T) ids → (B, T, C): token embedding + position embedding."""
        time = tokens.shape[1]
        if time > self.block_size:
            raise ValueError(f"{time} characters are more than block_size={self.block_size}.")
        x: Tensor = self.token_embedding_table(tokens)  # (B, T, C)
        if self.position_embedding_table is not None:
            positions = self.position_embedding_table.weight
            # a slice's gradient is filled up with zeros and added: in a tiny model a hundredth of a step
            x = x + (positions if time == self.block_size else positions[:time])
        return x

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of every next character.

        Args:
            tokens: (B, T) int64 ids, 1 ≤ T ≤ block_size.
        Returns:
            (B, T, V).
        Raises:
            ValueError: T > block_size; the message gives both.
        """
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.lm_head(self.norm(x))
        return logits

    def init_state(self, batch_size: int) -> ModelState:
        """What `step` carries, before the first character."""
        like = self.token_embedding_table.weight.new_empty(batch_size, self.token_embedding_table.embedding_dim)
        return 0, tuple(block.agg.init_state(like) for block in self._blocks)

    def step(self, tokens: Tensor, state: ModelState) -> tuple[Tensor, ModelState]:
        """Take one more character: equals the last position of `forward` on all characters so far, to rounding.

        Args:
            tokens: (B,) int64 ids.
            state: what `init_state` or the last `step` returned; it is not changed.
        Returns:
            (B, V) logits of the next character, and the new state.
        Raises:
            ValueError: more than block_size characters, unless the model is `unbounded`.
        """
        time, states = state
        if time >= self.block_size and not self.unbounded:
            raise ValueError(f"{time + 1} characters are more than block_size={self.block_size}.")
        x: Tensor = self.token_embedding_table(tokens)  # (B, C)
        if self.position_embedding_table is not None:
            x = x + self.position_embedding_table.weight[time]
        new: list[State] = []
        for block, carried in zip(self._blocks, states, strict=True):
            x, carried = block.step(x, carried)
            new.append(carried)
        logits: Tensor = self.lm_head(self.norm(x))
        return logits, (time + 1, tuple(new))

    @property
    def unbounded(self) -> bool:
        """Whether `step` may go on past block_size: no positions, and no layer whose state grows with the text."""
        return self.position_embedding_table is None and all(block.agg.recurrent for block in self._blocks)

    @property
    def forgets(self) -> bool:
        """Whether `unbounded` changes nothing: what lies block_size characters back is out of every layer's reach."""
        reaches = [block.agg.reach for block in self._blocks]
        known = [reach for reach in reaches if reach is not None]
        return self.unbounded and len(known) == len(reaches) and 1 + sum(known) - len(known) <= self.block_size

    def flops(self, time: int) -> Flops:
        """Of one row of `time` characters."""
        head = Flops()
        if isinstance(self.lm_head, nn.Linear):
            head = product_flops(time, self.lm_head.in_features, self.lm_head.out_features)
        return sum((block.flops(time) for block in self._blocks), head)

    def state_size(self, time: int) -> int:
        """Numbers that `step` carries for one row after `time` characters."""
        return sum(block.agg.state_size(time) for block in self._blocks)

    @property
    def _blocks(self) -> list[Block]:
        return cast(list[Block], list(self.blocks))

    @torch.no_grad()
    def weights(self, tokens: Tensor) -> list[Tensor | None]:
        """Each layer's table on these tokens: (B|1, H|1, T, T), or None where the strategy has no table."""
        tables: list[Tensor | None] = []
        x = self.embed(tokens)
        for block in self._blocks:
            tables.append(block.agg.weights(block.norm_agg(x)) if block.agg.has_weights else None)
            x = block(x)
        return tables


def _draw_normal(modules: Iterable[nn.Module | None], std: float) -> None:
    for module in modules:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

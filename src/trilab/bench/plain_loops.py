"""Training loops in plain PyTorch, as a person writes them who needs no laboratory: what train.py is measured against.

No logging, no checkpoints, no validation, no clipping. All but one train the same model object as train.py.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from trilab.agg.attention import SelfAttention
from trilab.bench.gpt_py import Transformer
from trilab.block import Block
from trilab.model import LanguageModel

# (tokens, block_size, batch_size, device) → inputs and targets, (B, T) each, on the device.
Draw = Callable[[Tensor, int, int, torch.device], tuple[Tensor, Tensor]]


def one_by_one(tokens: Tensor, block_size: int, batch_size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Windows as gpt.py cuts them: each by itself, in a list that is then stacked, inputs and targets apart."""
    starts = torch.randint(len(tokens) - block_size, (batch_size,))
    inputs = torch.stack([tokens[start : start + block_size] for start in starts])  # (B, T)
    targets = torch.stack([tokens[start + 1 : start + block_size + 1] for start in starts])
    return inputs.to(device), targets.to(device)


def all_at_once(tokens: Tensor, block_size: int, batch_size: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The same windows by one look-up in a view of all that there are, on the device."""
    starts = torch.randint(len(tokens) - block_size, (batch_size,), device=device)
    windows = tokens.unfold(0, block_size + 1, 1)[starts]  # (B, T + 1)
    return windows[:, :-1], windows[:, 1:]


class PlainLoop:
    """A model, an optimizer, and steps.

    Args:
        model: in training mode, on any device.
        tokens: (n,) int64, of the training split, where `draw` wants them.
        batch_size: windows of one step.
        draw: how windows are cut.
        fused: one kernel for the whole update, and not one for each tensor.
        half: products in bfloat16 (autocast).
        compiled: torch.compile.
    """

    def __init__(
        self,
        model: LanguageModel | Transformer,
        tokens: Tensor,
        batch_size: int,
        draw: Draw,
        *,
        fused: bool,
        half: bool = False,
        compiled: bool = False,
    ) -> None:
        self.model = model
        self._forward: Callable[[Tensor], Tensor] = torch.compile(model) if compiled else model
        self.device = next(model.parameters()).device
        self._loss = torch.autocast(self.device.type, torch.bfloat16)(self._mean_nats) if half else self._mean_nats
        self.tokens = tokens
        self.batch_size = batch_size
        self.draw = draw
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused or None)

    def steps(self, number: int) -> None:
        """Take so many optimizer steps."""
        for _ in range(number):
            inputs, targets = self.draw(self.tokens, self.model.block_size, self.batch_size, self.device)
            loss = self._loss(inputs, targets)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()

    def _mean_nats(self, inputs: Tensor, targets: Tensor) -> Tensor:
        logits = self._forward(inputs)  # (B, T, V)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def as_in_gpt_py(model: LanguageModel, tokens: Tensor, batch_size: int) -> PlainLoop:
    """The lecture's: windows one by one from a text on the CPU, AdamW as it comes.

    Source:
        Karpathy, Let's build GPT, gpt.py; there the model returns its loss too.
    """
    return PlainLoop(model, tokens.cpu(), batch_size, one_by_one, fused=False)


def as_in_gpt_py_throughout(model: LanguageModel, tokens: Tensor, batch_size: int) -> PlainLoop:
    """The same, with the model too as gpt.py writes it: a head at a time. As many parameters, values of its own.

    Args:
        model: attention in blocks with norm, residual, MLP and output maps.
    """
    first = model.blocks[0]
    assert isinstance(first, Block)
    assert isinstance(first.agg, SelfAttention)
    written = Transformer(
        model.vocab_size,
        model.block_size,
        n_embd=first.agg.n_embd,
        n_head=first.agg.n_head,
        n_layer=len(model.blocks),
        dropout=first.dropout.p,
    )
    device = model.token_embedding_table.weight.device
    return PlainLoop(written.to(device), tokens.cpu(), batch_size, one_by_one, fused=False)


def vectorised(model: LanguageModel, tokens: Tensor, batch_size: int) -> PlainLoop:
    """The quickest that plain PyTorch offers without another precision or a compiler."""
    return PlainLoop(model, tokens, batch_size, all_at_once, fused=True)


def with_nanogpt_settings(model: LanguageModel, tokens: Tensor, batch_size: int) -> PlainLoop:
    """Vectorised, in bfloat16, compiled: what nanoGPT trains with on a GPU.

    Source:
        Karpathy, nanoGPT, train.py; there windows are cut from a file.
    """
    return PlainLoop(model, tokens, batch_size, all_at_once, fused=True, half=True, compiled=True)

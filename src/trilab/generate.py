"""A trained model and a beginning → more text."""

import torch
from torch import Tensor

from trilab.model import LanguageModel


@torch.no_grad()
def generate(
    model: LanguageModel, tokens: Tensor, count: int, *, temperature: float = 1.0, generator: torch.Generator
) -> Tensor:
    """Continue each row by `count` characters, each drawn from the model's distribution.

    The model looks back on the last block_size characters at most, as in training.

    Args:
        model: on any device, in evaluation mode.
        tokens: (B, T) int64 ids, T ≥ 1.
        count: characters to add.
        temperature: divides the logits; 0 takes the likeliest character each time.
        generator: of the draws, on the model's device.
    Returns:
        (B, T + count) int64 ids.
    """
    for _ in range(count):
        logits = model(tokens[:, -model.block_size :])[:, -1].float()  # (B, V)
        if temperature == 0:
            following = logits.argmax(-1, keepdim=True)
        else:
            # the largest becomes 0, so that no temperature overflows
            scaled = (logits - logits.amax(-1, keepdim=True)) / temperature
            following = torch.multinomial(scaled.softmax(-1), 1, generator=generator)
        tokens = torch.cat([tokens, following], dim=1)
    return tokens

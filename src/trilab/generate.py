"""A trained model and a beginning → more text."""

import torch
from torch import Tensor

from trilab.errors import BadInput
from trilab.model import LanguageModel


@torch.no_grad()
def generate(
    model: LanguageModel,
    tokens: Tensor,
    count: int,
    *,
    temperature: float = 1.0,
    generator: torch.Generator,
    unbounded: bool = False,
) -> Tensor:
    """Continue each row by `count` characters, each drawn from the model's distribution.

    The model looks back on the last block_size characters at most, as in training. Up to there each character is one
    step from the carried state. Past it the text moves on while positions stay, so that no state can be used again:
    the last block_size characters are read anew for each.

    Args:
        model: on any device, in evaluation mode.
        tokens: (B, T) int64 ids, T ≥ 1.
        count: characters to add.
        temperature: divides the logits; 0 takes the likeliest character each time.
        generator: of the draws, on the model's device.
        unbounded: go on from the carried state past block_size too: constant time a character and a past without
            end, which is another text than the cropped one. For models without positions whose state does not grow.
    Returns:
        (B, T + count) int64 ids.
    Raises:
        BadInput: unbounded, and the model is not.
    """
    if unbounded and not model.unbounded:
        raise BadInput(
            "--unbounded needs a model without positions (model.positions=false) whose strategies carry a state that "
            "does not grow with the text, such as ema or min_gru: this one looks back on block_size characters."
        )
    state = model.init_state(len(tokens))
    read = 0  # tokens that the state has taken
    for _ in range(count):
        if unbounded or tokens.shape[1] <= model.block_size:
            for token in tokens[:, read:].unbind(1):
                logits, state = model.step(token, state)
            read = tokens.shape[1]
        else:
            logits = model(tokens[:, -model.block_size :])[:, -1]
        tokens = torch.cat([tokens, _draw(logits.float(), temperature, generator)], dim=1)
    return tokens


def _draw(logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """(B, V) logits → (B, 1) ids."""
    if temperature == 0:
        return logits.argmax(-1, keepdim=True)
    # the largest becomes 0, so that no temperature overflows
    scaled = (logits - logits.amax(-1, keepdim=True)) / temperature
    return torch.multinomial(scaled.softmax(-1), 1, generator=generator)

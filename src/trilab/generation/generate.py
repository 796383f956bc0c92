"""A model and the beginning of a text → the tokens that follow."""

from collections import deque
from collections.abc import Iterator

import torch
from torch import Tensor

from trilab.errors import BadInput
from trilab.generation.sampling import Sampling
from trilab.model import LanguageModel, ModelState

AS_THE_MODEL_SAYS = Sampling()


def generate(
    model: LanguageModel,
    tokens: Tensor,
    count: int,
    *,
    sampling: Sampling = AS_THE_MODEL_SAYS,
    generator: torch.Generator,
    unbounded: bool = False,
) -> Tensor:
    """Continue each row by `count` characters; see `stream`, which this is at once.

    Args:
        tokens: (B, T) int64 ids, T ≥ 1.
        count: characters to add.
    Returns:
        (B, T + count) int64 ids.
    """
    following = stream(model, tokens, sampling=sampling, generator=generator, unbounded=unbounded)
    written = [token[:, None] for _, token in zip(range(count), following, strict=False)]
    return torch.cat([tokens, *written], dim=1)


def stream(
    model: LanguageModel,
    tokens: Tensor,
    *,
    sampling: Sampling = AS_THE_MODEL_SAYS,
    generator: torch.Generator,
    unbounded: bool = False,
) -> Iterator[Tensor]:
    """Continue each row without end, a character at a time, each drawn from the model's distribution.

    The model looks back on the last block_size characters at most, as in training. Up to there each character is one
    step from the carried state. Past it the text moves on while positions stay, so that no state can be used again:
    the last block_size characters are read anew for each. Not so where the model `forgets` what lies further back and
    has no positions: the state says the same, and each character stays one step. Memory does not grow with the text.

    Args:
        model: on any device, in evaluation mode.
        tokens: (B, T) int64 ids, T ≥ 1, on the model's device.
        sampling: how a character is chosen.
        generator: of the draws, on the CPU: one seed draws alike on every device.
        unbounded: go on from the carried state past block_size too: constant time a character and a past without
            end, which is another text than the cropped one. For models without positions whose state does not grow.
    Returns:
        An iterator over (B,) int64 ids, one for each character.
    Raises:
        BadInput: unbounded, and the model is not; or, as it is drawn, a model whose logits are no numbers.
    """
    if unbounded and not model.unbounded:
        raise BadInput(
            "--unbounded needs a model without positions (model.positions=false) whose strategies carry a state that "
            "does not grow with the text, such as ema or min_gru: this one looks back on block_size characters."
        )
    return _following(model, tokens, sampling, generator, unbounded)


@torch.no_grad()
def _following(
    model: LanguageModel, tokens: Tensor, sampling: Sampling, generator: torch.Generator, unbounded: bool
) -> Iterator[Tensor]:
    if model.forgets:
        tokens, unbounded = tokens[:, -model.block_size :], True
    time = tokens.shape[1]
    past = deque(tokens[:, -model.block_size :].unbind(1), maxlen=model.block_size)  # what the model may look back on
    carries = unbounded or time <= model.block_size
    if carries:
        state = model.init_state(len(tokens))
        for place in range(time):  # not over all at once: a tensor of each would take more than the prompt
            logits, state = _step(model, tokens[:, place], state)
    while True:
        if not carries:
            logits = _last(model, torch.stack(tuple(past), 1))
        token = draw(logits, sampling, generator).to(tokens.device)
        yield token
        time += 1
        past.append(token)
        carries = unbounded or time <= model.block_size
        if carries:
            logits, state = _step(model, token, state)


# In inference mode an operation costs a tenth less. What is drawn outside of it may be trained on.


@torch.inference_mode()
def _step(model: LanguageModel, token: Tensor, state: ModelState) -> tuple[Tensor, ModelState]:
    return model.step(token, state)


@torch.inference_mode()
def _last(model: LanguageModel, tokens: Tensor) -> Tensor:
    logits: Tensor = model(tokens)[:, -1]
    return logits


def draw(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """Choose one character a row.

    Args:
        logits: (B, V) on any device.
        generator: on the CPU; left alone where the likeliest is taken.
    Returns:
        (B,) ids on the CPU.
    Raises:
        BadInput: logits that are NaN or +inf.
    """
    logits = logits.cpu().double()  # double, in which no temperature above 0 is rounded to 0
    below = logits - logits.amax(-1, keepdim=True)  # the largest becomes 0, so that no temperature overflows
    if below.isnan().any():
        raise BadInput(
            "The model's logits are NaN or infinite: its training diverged, or its weights are damaged. "
            "Take another checkpoint."
        )
    if sampling.greedy:
        return logits.argmax(-1)
    odds = (below / sampling.temperature).softmax(-1)
    if sampling.top_k is not None or sampling.top_p < 1:
        odds = _likeliest(odds, logits, sampling)
    return torch.multinomial(odds, 1, generator=generator)[:, 0]


def _likeliest(odds: Tensor, logits: Tensor, sampling: Sampling) -> Tensor:
    """(B, V) probabilities, 0 for those that top_k and top_p leave out; of equal ones the first id is the likelier."""
    order = logits.argsort(
        dim=-1, descending=True, stable=True
    )  # not of odds: a high temperature rounds them to equals
    kept = odds.gather(-1, order)
    if sampling.top_k is not None:
        kept[:, sampling.top_k :] = 0
    if sampling.top_p < 1:
        likelier = kept.cumsum(-1) - kept  # what those before each have together
        kept[likelier >= sampling.top_p * kept.sum(-1, keepdim=True)] = 0
    return torch.zeros_like(odds).scatter(-1, order, kept)

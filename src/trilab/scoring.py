"""A model and a text → how well it guesses each character, line by line."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from trilab.errors import BadInput
from trilab.known_text import KnownText
from trilab.loss import char_nats
from trilab.model import LanguageModel

BATCH = 1 << 12  # characters that go through the model at a time, about


@dataclass(frozen=True)
class Loss:
    """What some characters cost together: each -ln of the probability that the model gave it, in nats."""

    characters: int
    nats: float

    @property
    def nats_per_char(self) -> float | None:
        """None where there is no character."""
        return self.nats / self.characters if self.characters else None

    @property
    def bits_per_char(self) -> float | None:
        """None where there is no character."""
        return self.nats / self.characters / math.log(2) if self.characters else None


@dataclass(frozen=True)
class Score:
    """A whole text, and each of its lines as (text, loss); a line end counts to the line that it ends."""

    whole: Loss
    lines: list[tuple[str, Loss]]


def score(model: LanguageModel, known: KnownText, *, console: Console | None = None) -> Score:
    """What every known character but the first costs, which has nothing before it to be guessed from.

    Args:
        console: where a long text's progress is shown, if that is a terminal.
    Raises:
        BadInput: fewer than two characters that the model knows, or losses that are no numbers.
    """
    count = len(known.tokens)
    if count < 2:
        raise BadInput(
            f"The text has {count} {'character' if count == 1 else 'characters'} that the model knows: it takes two, "
            "since the first has nothing before it to be guessed from."
        )
    nats = text_nats(model, torch.from_numpy(known.tokens).long(), console=console).numpy()
    if not np.isfinite(nats).all():
        raise BadInput(
            "The model's losses are NaN or infinite: its training diverged, or its weights are damaged. "
            "Take another checkpoint."
        )
    lines = known.text.removesuffix("\n").split("\n")
    ends = np.cumsum([len(line) + 1 for line in lines])
    scored = np.searchsorted(known.places[1:], ends)  # characters scored up to each line's end
    sums = np.concatenate([[0.0], nats.cumsum()])[scored]
    losses = zip(np.diff(scored, prepend=0).tolist(), np.diff(sums, prepend=0.0).tolist(), strict=True)
    return Score(
        Loss(count - 1, float(nats.sum())),
        [(line, Loss(characters, nats)) for line, (characters, nats) in zip(lines, losses, strict=True)],
    )


@torch.no_grad()
def text_nats(model: LanguageModel, tokens: Tensor, *, console: Console | None = None) -> Tensor:
    """The cross-entropy of every token but the first, with much of the past before it: O(n) in the length of the text.

    Windows of block_size tokens that overlap by half. A window adds what comes after the one before it, so that each
    token is guessed once, from block_size / 2 tokens at least and block_size at most, where the text has as many.

    Args:
        model: in evaluation mode, on the device of the tokens.
        tokens: (n,) int64 ids, n ≥ 2.
        console: see `score`.
    Returns:
        (n - 1,) float64 on the CPU, nats.
    """
    inputs, targets = tokens[:-1], tokens[1:]
    length = min(model.block_size, len(inputs))
    last = len(inputs) - length
    starts = torch.tensor([*range(0, last, length - length // 2), last])
    batches = torch.split(starts, max(1, BATCH // length))
    nats = torch.empty(len(inputs), dtype=torch.float64)
    done = 0
    silent = console is None or not console.is_terminal
    for batch in track(batches, "reading", console=console, transient=True, disable=silent):
        rows = batch.to(tokens.device)
        logits = model(inputs.unfold(0, length, 1)[rows])  # (B, T, V)
        costs = char_nats(logits, targets.unfold(0, length, 1)[rows]).cpu()  # (B, T)
        for start, cost in zip(batch.tolist(), costs, strict=True):
            nats[done : start + length] = cost[done - start :]
            done = start + length
    return nats

"""A model and a text → how well it guesses each character, line by line."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from trilab.errors import BadInput
from trilab.generation.known_text import KnownText
from trilab.loss import char_nats
from trilab.model import LanguageModel
from trilab.windows import gather

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
    """What a text costs, the whole and line by line."""

    known: KnownText
    whole: Loss
    sums: NDArray[np.float64]
    """(whole.characters,) nats from the beginning of the text up to each character that was guessed."""

    def lines(self) -> Iterator[tuple[str, Loss]]:
        """Each line less its end, and what it costs; a line end counts to the line that it ends."""
        known, guessed, nats = 0, 0, 0.0
        for line, characters in self.known.lines():
            known += characters
            guessed_by_now = max(known - 1, 0)  # all that are known but the first
            nats_by_now = float(self.sums[guessed_by_now - 1]) if guessed_by_now else 0.0
            yield line, Loss(guessed_by_now - guessed, nats_by_now - nats)
            guessed, nats = guessed_by_now, nats_by_now


def score(model: LanguageModel, known: KnownText, *, console: Console | None = None) -> Score:
    """What every known character but the first costs, which has nothing before it to be guessed from.

    Memory: about ten bytes for each character, beside the text.

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
    nats = text_nats(model, known.tokens, console=console)
    if not np.isfinite(nats).all():
        raise BadInput(
            "The model's losses are NaN or infinite: its training diverged, or its weights are damaged. "
            "Take another checkpoint."
        )
    whole = Loss(count - 1, float(nats.sum()))
    return Score(known, whole, np.cumsum(nats, out=nats))


@torch.no_grad()
def text_nats(
    model: LanguageModel, tokens: NDArray[np.integer], *, console: Console | None = None
) -> NDArray[np.float64]:
    """The cross-entropy of every token but the first, with much of the past before it: O(n) in the length of the text.

    Windows of block_size tokens that overlap by half. A window adds what comes after the one before it, so that each
    token is guessed once, from block_size / 2 tokens at least and block_size at most, where the text has as many.

    Args:
        model: in evaluation mode, on the CPU.
        tokens: (n,) ids, n ≥ 2.
        console: see `score`.
    Returns:
        (n - 1,) nats.
    """
    length = min(model.block_size, len(tokens) - 1)
    last, stride = len(tokens) - 1 - length, length - length // 2
    count, rows = -(-last // stride) + 1, max(1, BATCH // length)  # of all windows, and of those at a time
    nats = np.empty(len(tokens) - 1)
    done = 0
    silent = console is None or not console.is_terminal
    for first in track(range(0, count, rows), "reading", console=console, transient=True, disable=silent):
        starts = (torch.arange(first, min(first + rows, count)) * stride).clamp(max=last)  # (B,)
        inputs, targets = gather(torch.from_numpy(tokens), starts, length)  # (B, T)
        costs = char_nats(model(inputs), targets).numpy()  # (B, T)
        for start, cost in zip(starts.tolist(), costs, strict=True):
            nats[done : start + length] = cost[done - start :]
            done = start + length
    return nats

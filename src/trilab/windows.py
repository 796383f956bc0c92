"""Tokens → (inputs, targets): which stretches of a text are read, when, and by whom.

A window is block_size + 1 neighbouring tokens: all but the last are inputs, all but the first are targets.
Training draws windows at random, as a function of (seed, step) alone; validation reads every target once, in order.
"""

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from trilab.errors import BadInput


class Splits(NamedTuple):
    """A text cut in three, in its own order. A part that was not asked for is empty."""

    train: Tensor
    val: Tensor
    test: Tensor


def split(
    tokens: Tensor,
    *,
    block_size: int,
    origin: str,
    val_share: float = 0.1,
    test_share: float = 0.0,
    episode: int = 1,
) -> Splits:
    """Cut a text into its beginning to train on, then the validation part, then the test part.

    The shares count as the decimals they are written as, and the earlier parts are rounded down: of 1,115,394 tokens
    with the default shares, train gets the first 1,003,854 and validation the last 111,540, as in nanoGPT.

    Args:
        tokens: (n,) token ids.
        block_size: tokens of context; every part needs one token more.
        origin: where the text came from, for messages.
        val_share: share of the text for validation, above 0.
        test_share: share for testing; 0 leaves the test part empty.
        episode: the parts begin at multiples of so many tokens, and windows too: block_size must be one.
    Returns:
        Views of tokens.
    Raises:
        BadInput: shares that leave no room for one another; a part that is too short, with its length; a text in which
            every character is the same; windows that do not hold whole episodes.
    """
    _require_positive("data.block_size", block_size)
    if block_size % episode:
        raise BadInput(
            f"data.block_size={block_size} does not hold whole episodes of {origin}, which are {episode:,} characters "
            f"long: make it a multiple of {episode}."
        )
    if not (0 < val_share < 1 and 0 <= test_share < 1 and val_share + test_share < 1):
        raise BadInput(
            f"data.val_share={val_share} and data.test_share={test_share} are not shares of one text: val_share must "
            "be above 0, test_share at least 0, and both together below 1, for example 0.1 and 0.1."
        )
    val, test = Fraction(str(val_share)), Fraction(str(test_share))
    n = len(tokens)
    val_begins, test_begins = (int(share * n) // episode * episode for share in (1 - val - test, 1 - test))
    splits = Splits(tokens[:val_begins], tokens[val_begins:test_begins], tokens[test_begins:])
    for name, part in zip(("training", "validation", "test"), splits, strict=True):
        asked_for = name != "test" or test_share > 0
        if asked_for and len(part) <= block_size:
            raise BadInput(
                f"data.block_size={block_size} needs at least {block_size + 1:,} characters in each split; the {name} "
                f"split of {origin} has {len(part):,} (of {n:,}). Lower data.block_size or use a longer text."
            )
    # the beginning alone decides nearly always, and needs no memory for a large text
    if bool((tokens[: 1 << 20] == tokens[0]).all()) and bool((tokens == tokens[0]).all()):
        raise BadInput(
            f"{origin} is one character over and over ({n:,} times), a vocabulary of 1: there is nothing to predict. "
            "Use a text with at least two different characters."
        )
    return splits


class TrainWindows:
    """Windows to train on, drawn uniformly and independently: those of a step depend on (seed, step) alone.

    So a resumed run goes on exactly, and every run with the same seed reads the same windows, whatever it trains.

    Args:
        tokens: (n,) token ids of the training split.
        block_size: T, inputs of a window in tokens.
        batch_size: B, windows of one optimizer step, over all processes and accumulated micro-batches together.
        seed: any integer.
        episode: windows begin at multiples of so many tokens.
    Raises:
        BadInput: a size below 1; no window at all; batch_size above the number of windows.
    """

    def __init__(self, tokens: Tensor, block_size: int, batch_size: int, seed: int, *, episode: int = 1) -> None:
        _require_positive("data.block_size", block_size)
        _require_positive("data.batch_size", batch_size)
        self.tokens = tokens
        self.block_size = block_size
        self.batch_size = batch_size
        self.episode = episode
        self.n_windows = max((len(tokens) - block_size - 1) // episode + 1, 0)
        if batch_size > self.n_windows:
            raise BadInput(
                f"data.batch_size={batch_size} is more than the {self.n_windows:,} windows that the training split has "
                f"({len(tokens):,} characters, data.block_size={block_size}). Lower data.batch_size or use a longer "
                "text."
            )
        # A key of its own: no other draw in a run that starts from the same seed is correlated with this one.
        key = int.from_bytes(hashlib.blake2b(f"windows {seed}".encode(), digest_size=16).digest(), "little")
        self._generator = np.random.Philox(key=key)
        self._state: Any = self._generator.state  # before any draw; to set it takes a tenth of a new generator's time

    def starts(self, step: int) -> Tensor:
        """Where the windows of an optimizer step start.

        Args:
            step: optimizer steps done before, 0 ≤ step < 2**64.
        Returns:
            (B,) int64, each the start of one of the n_windows windows.
        """
        # Philox counts its blocks of four numbers in the counter's lowest 64-bit word, so the step goes into the next:
        # in the lowest, the draws of neighbouring steps would overlap. The raw stream is guaranteed to stay as it is.
        self._state["state"]["counter"][1] = step
        self._generator.state = self._state
        # The remainder gives no window a probability that is off by more than 2**-64.
        starts = self._generator.random_raw(self.batch_size) % np.uint64(self.n_windows)  # (B,)
        return torch.from_numpy(starts.astype(np.int64) * self.episode)


def shard(starts: Tensor, micro_step: int, accumulate: int, rank: int, world_size: int) -> Tensor:
    """The windows of an optimizer step that one process reads in one micro-step.

    The slices of all micro-steps and ranks, in this order, are the whole batch: so any number of processes, and any
    accumulation, reads the same windows.

    Args:
        starts: (B,) of the whole step.
        micro_step: 0 … accumulate - 1.
        accumulate: micro-steps of an optimizer step.
        rank: 0 … world_size - 1.
        world_size: processes.
    Returns:
        (B / (accumulate * world_size),), a view of starts.
    Raises:
        BadInput: B is not divisible.
    """
    size, left_over = divmod(len(starts), accumulate * world_size)
    if left_over:
        raise BadInput(
            f"data.batch_size={len(starts)} cannot be dealt evenly to {world_size} processes times {accumulate} "
            f"accumulated micro-batches: make it a multiple of {accumulate * world_size}."
        )
    begins = (micro_step * world_size + rank) * size
    return starts[begins : begins + size]


class Windows(NamedTuple):
    """What a model reads and what it is to say, cut out of a text."""

    inputs: Tensor
    """(B, T) int64."""
    targets: Tensor
    """(B, T) int64: the token after each input; (0, T) where none of them counts."""
    starts: Tensor
    """(B,) int64: where each window with targets begins in the text."""
    answers: Tensor | None = None
    """(B, T) bool, as many rows as targets: which of them are answers; None for a text that asks nothing."""


def gather(tokens: Tensor, starts: Tensor, block_size: int) -> tuple[Tensor, Tensor]:
    """Cut windows out of a text.

    Args:
        tokens: (n,) token ids, any integer type and device.
        starts: (B,) int64, each in 0 … n - block_size - 1.
        block_size: T, in tokens.
    Returns:
        inputs and targets, each (B, T) int64, contiguous, on the device of tokens; targets[b, t] is the token that
        follows inputs[b, t].
    """
    windows = tokens.unfold(0, block_size + 1, 1).index_select(0, starts.to(tokens.device))  # (B, T + 1)
    inputs, targets = (
        windows.narrow(1, first, block_size).to(torch.int64, memory_format=torch.contiguous_format, copy=True)
        for first in (0, 1)
    )
    return inputs, targets


def gather_targets(marks: Tensor, starts: Tensor, block_size: int) -> Tensor:
    """Cut out what is known of each target.

    Args:
        marks: (n,) something of every character of the text.
        starts, block_size: as in `gather`.
    Returns:
        (B, T), on the device of marks and in its dtype.
    """
    return marks.unfold(0, block_size, 1)[starts.to(marks.device) + 1]


class WindowBatch(NamedTuple):
    """Windows of one length, to be given to `gather`."""

    starts: Tensor
    """(B,) int64."""
    length: int
    """T of these windows, in tokens: block_size, or less for the last window of a split."""
    counted: bool = True
    """Whether its targets count; False for what a process reads only to keep in step with the others."""


class ValidationBatches(Sequence[WindowBatch]):
    """Windows side by side that have every token of a split but its first as a target, once, in order.

    Each batch is made when it is asked for: a long text has millions of windows. What is left at the end, shorter than
    block_size, is a batch of its own.

    Args:
        n_tokens: tokens of the split; below 2 there is nothing to predict and no batch.
        block_size: T, in tokens.
        windows_per_batch: most windows of a batch.
        begins: where the split begins in the text.
    Raises:
        BadInput: a size below 1.
    """

    def __init__(self, n_tokens: int, block_size: int, windows_per_batch: int, *, begins: int = 0) -> None:
        _require_positive("data.block_size", block_size)
        _require_positive("windows_per_batch", windows_per_batch)
        self.block_size, self.windows_per_batch, self.begins = block_size, windows_per_batch, begins
        self.n_whole, self.left_over = divmod(max(n_tokens - 1, 0), block_size)
        self._whole_batches = -(-self.n_whole // windows_per_batch)

    def __len__(self) -> int:
        return self._whole_batches + bool(self.left_over)

    @overload
    def __getitem__(self, index: int) -> WindowBatch: ...
    @overload
    def __getitem__(self, index: slice) -> list[WindowBatch]: ...
    def __getitem__(self, index: int | slice) -> WindowBatch | list[WindowBatch]:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        place = range(len(self))[index]
        if place == self._whole_batches:
            return WindowBatch(torch.tensor([self.begins + self.n_whole * self.block_size]), self.left_over)
        first = place * self.windows_per_batch
        windows = torch.arange(first, min(first + self.windows_per_batch, self.n_whole))
        return WindowBatch(self.begins + windows * self.block_size, self.block_size)


def blocks(n_tokens: int, block_size: int, most: int = 100) -> tuple[int, int]:
    """How a split is cut into stretches of whole windows, for comparing models stretch by stretch.

    Args:
        n_tokens: tokens of the split.
        block_size: T, in tokens.
        most: stretches that there may be.
    Returns:
        Tokens of a stretch, and the number of stretches; the last may be shorter.
    """
    n_windows = -(-max(n_tokens - 1, 0) // block_size)
    windows = max(1, -(-n_windows // most))
    return windows * block_size, -(-n_windows // windows)


class Dealt(Dataset[WindowBatch]):
    """The batches that one process reads: every one counts on exactly one process, whole.

    A batch is the same on one process or many, and so are its sums. Every process gets as many, since processes that
    share a model's weights must call it equally often: who would have one less reads the last batch uncounted.
    """

    def __init__(self, batches: Sequence[WindowBatch], rank: int, world_size: int) -> None:
        self.batches, self.rank, self.world_size = batches, rank, world_size

    def __len__(self) -> int:
        return -(-len(self.batches) // self.world_size)

    def __getitem__(self, index: int) -> WindowBatch:
        place = range(len(self))[index] * self.world_size + self.rank
        return self.batches[place] if place < len(self.batches) else self.batches[-1]._replace(counted=False)


def _require_positive(name: str, value: int) -> None:
    if value < 1:
        raise BadInput(f"{name}={value} must be at least 1.")

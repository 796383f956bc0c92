"""What a text gives away to a reader that learns nothing by gradient: losses to hold a trained model's against."""

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trilab.atomic import replacing
from trilab.errors import BadInput

MAX_ORDER = 6
METHOD = 1
"""Raised with every change to a figure, so that none is shown that was kept by an older version."""

_FOLDER = ".references"  # hidden: the other folders of an experiment are its runs
_NO_GRAM = np.iinfo(np.int64).max

Tokens = NDArray[np.integer]


@dataclass(frozen=True)
class References:
    """Mean losses on the validation split, nats per character, over every character but the first, as for a model."""

    uniform: float
    """All V characters equally likely: ln V."""
    unigram: float
    """Each character as often as in the training split, counted once more than it is there: (c + 1) / (n + V)."""
    windowed: Mapping[int, float]
    """Order n → loss of the n-gram that reads the windows that the model reads, and nothing before them."""
    full: Mapping[int, float]
    """Order n → loss of the n-gram that always reads its n - 1 characters, as far as the split has them."""
    source: float | None = None
    """Loss of the process that wrote the text on these very characters, where it is known."""

    def as_dict(self) -> dict[str, Any]:
        """As summary.json has it: the orders as text."""
        return {
            **asdict(self),
            "windowed": {str(order): loss for order, loss in self.windowed.items()},
            "full": {str(order): loss for order, loss in self.full.items()},
        }


class _Weights(NamedTuple):
    """P(w | h) = own[hw] + rest[h] · P(w | h without its first token). What was never seen is at [-1]: 0 and 1."""

    own: NDArray[np.float64]
    """(n-grams + 1,)"""
    rest: NDArray[np.float64]
    """(contexts + 1,)"""


class KneserNey:
    """Interpolated Kneser-Ney n-grams, of every order m = 1 … max_order at once.

    P_m(w | h) = (max(c(hw) - D, 0) + D · #{v: c(hv) > 0} · Q_{m-1}(w | h')) / Σ_v c(hv)

    h are the m - 1 tokens before w, and h' is h without the first of them. c counts in the training text. Q is the same
    with continuation counts in place of c: the number of different tokens that precede hw; below order 1 comes the
    uniform 1 / V, so every token has a probability. Where h was never seen, the next lower order speaks alone.
    D = n1 / (n1 + 2 n2) for every order and kind of count, with n1 and n2 the n-grams counted once and twice; 1/2 where
    none is counted once. O(n log n) time for each order, O(n) numbers of memory.

    Args:
        tokens: (n,) integers of the training text, each in 0 … V - 1.
        vocab_size: V.
        max_order: the longest n-grams, in tokens.
    Raises:
        BadInput: a token outside the vocabulary; a size below 1.
    Source:
        Kneser and Ney, Improved backing-off for m-gram language modeling, ICASSP 1995; the interpolated form and the
        estimate of D from Chen and Goodman, An empirical study of smoothing techniques for language modeling, Computer
        Speech and Language 13, 1999, whose modified form has three discounts an order where this has one. No marks of
        begin and end are added to the text.
    """

    def __init__(self, tokens: Tokens, *, vocab_size: int, max_order: int = MAX_ORDER) -> None:
        _require("vocab_size", vocab_size, least=1)
        _require("max_order", max_order, least=1)
        self.vocab_size = vocab_size
        self.max_order = max_order
        text = _checked(tokens, vocab_size)
        self._keys: list[NDArray[np.int64]] = []  # per order, sorted: number of the context · V + last token
        self._raw: list[_Weights] = []
        self._continuation: list[_Weights] = []  # of order 1 … max_order - 1
        # An n-gram's number is its rank among those of its order, so a key stays below n · V, however long the n-gram.
        ending_here = np.zeros(len(text) + 1, dtype=np.int64)  # the empty n-gram ends everywhere
        contexts, n_contexts = ending_here[:0], 1
        for order in range(1, max_order + 1):
            keys, numbers, counts = np.unique(
                ending_here[:-1] * vocab_size + text[order - 1 :], return_inverse=True, return_counts=True
            )
            if order > 1:
                endings = np.empty(len(keys), dtype=np.int64)  # n-gram → the one without its first token
                endings[numbers] = ending_here[1:]
                preceding = np.bincount(endings, minlength=len(contexts))
                self._continuation.append(_weights(preceding, contexts, n_contexts))
                n_contexts = len(contexts)
            contexts = keys // vocab_size
            self._raw.append(_weights(counts, contexts, n_contexts))
            self._keys.append(np.append(keys, _NO_GRAM))
            ending_here = numbers

    def probabilities(self, tokens: Tokens) -> NDArray[np.float64]:
        """How likely each token of a text was, given the tokens before it.

        Args:
            tokens: (…, n) integers, each in 0 … V - 1.
        Returns:
            (max_order, …, n): at [m - 1, …, i] the probability P_m of token i given the m - 1 before it; NaN where the
            text has fewer before it.
        Raises:
            BadInput: a token outside the vocabulary.
        """
        text = _checked(tokens, self.vocab_size)
        result = np.full((self.max_order, *text.shape), np.nan)
        ending_here = np.zeros((*text.shape[:-1], text.shape[-1] + 1), dtype=np.int64)
        shorter = np.full(ending_here.shape, 1 / self.vocab_size)
        for order, (keys, raw) in enumerate(zip(self._keys, self._raw, strict=True), 1):
            contexts, shorter = ending_here[..., :-1], shorter[..., 1:]
            wanted = contexts * self.vocab_size + text[..., order - 1 :]  # negative, so found nowhere, after unseen -1
            places = np.searchsorted(keys, wanted)
            ending_here = np.where(keys[places] == wanted, places, -1)
            result[order - 1, ..., order - 1 :] = raw.own[ending_here] + raw.rest[contexts] * shorter
            if order < self.max_order:
                continuation = self._continuation[order - 1]
                shorter = continuation.own[ending_here] + continuation.rest[contexts] * shorter
        return result

    def after(self, context: Tokens) -> NDArray[np.float64]:
        """The distribution of the next token.

        Args:
            context: (k,) integers, the tokens before it; the last max_order - 1 are read.
        Returns:
            (V,), of order min(k + 1, max_order); sums to 1.
        Raises:
            BadInput: a token outside the vocabulary.
        """
        read = context[max(len(context) - self.max_order + 1, 0) :]
        every = np.arange(self.vocab_size)[:, None]
        texts = np.hstack([np.tile(read, (self.vocab_size, 1)).astype(np.int64), every])  # (V, k + 1)
        return self.probabilities(texts)[len(read), :, -1]


def reference_losses(
    train: Tokens, val: Tokens, *, vocab_size: int, block_size: int, max_order: int = MAX_ORDER
) -> References:
    """What predictors without training by gradient lose on the validation split.

    Uniform, unigram, and the n-grams of `KneserNey`. At position t of a window a model has read t + 1 characters; the
    windowed n-gram of order n reads the last min(n - 1, t + 1) of them, and is then of order min(n, t + 2). The windows
    are those of `trilab.windows.ValidationBatches`.

    Args:
        train: (n,) integers, each in 0 … V - 1: the characters that are counted.
        val: (m,) the same for the characters that are predicted, all but the first; m ≥ 2.
        vocab_size: V.
        block_size: T, in characters.
        max_order: the longest n-grams, at least 2.
    Returns:
        Losses for orders 2 … max_order, all finite.
    Raises:
        BadInput: a size that is too small; a token outside the vocabulary.
    """
    _require("data.block_size", block_size, least=1)
    _require("max_order", max_order, least=2)
    if len(val) < 2:
        raise BadInput(f"The validation split has {len(val)} characters; references need at least 2.")
    model = KneserNey(train, vocab_size=vocab_size, max_order=max_order)
    losses = -np.log(model.probabilities(val)[:, 1:])  # (max_order, m - 1)
    before = np.arange(1, len(val))  # characters of the split before each target
    counts = np.bincount(train, minlength=vocab_size) + 1
    return References(
        uniform=math.log(vocab_size),
        unigram=float(-np.log(counts[val[1:]] / counts.sum()).mean()),
        windowed=_means(losses, (before - 1) % block_size + 1),
        full=_means(losses, before),
    )


def references_for(
    experiment: Path, *, text_sha256: str, train: Tokens, val: Tokens, begins: int, vocab_size: int, block_size: int
) -> References:
    """`reference_losses`, computed once for all the runs of an experiment that read the same characters.

    Kept in the experiment's folder. A file that is damaged is written again; runs that end at the same time compute the
    same, and either's file is whole. Where nothing can be written, the result is only returned.

    Args:
        experiment: outputs/<experiment_name>.
        text_sha256: of the text that train and val were cut from, train at its beginning.
        begins: where in the text val begins, in characters.
        train, val, vocab_size, block_size: see `reference_losses`.
    Raises:
        BadInput: see `reference_losses`.
    """
    made_of = [METHOD, text_sha256, len(train), begins, len(val), vocab_size, block_size, MAX_ORDER]
    kept = experiment / _FOLDER / f"{hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]}.json"
    with suppress(OSError, ValueError, TypeError, KeyError):
        return _read(kept)
    found = reference_losses(train, val, vocab_size=vocab_size, block_size=block_size)
    with suppress(OSError), replacing(kept) as file:  # a run that is trained is not lost for a second of computing
        file.write(json.dumps(found.as_dict(), indent=2).encode())
    return found


def _weights(counts: NDArray[np.int64], contexts: NDArray[np.int64], n_contexts: int) -> _Weights:
    """What counts of n-grams come to.

    Args:
        counts: (n-grams,) c(hw); 0 where hw does not count.
        contexts: (n-grams,) the number of h.
        n_contexts: how many there are.
    """
    once, twice = np.count_nonzero(counts == 1), np.count_nonzero(counts == 2)
    discount = once / (once + 2 * twice) if once else 0.5
    totals = np.bincount(contexts, weights=counts, minlength=n_contexts)
    followers = np.bincount(contexts, weights=counts > 0, minlength=n_contexts)
    seen = np.maximum(totals, 1)
    rest = np.where(totals > 0, discount * followers / seen, 1.0)
    return _Weights(
        own=np.append(np.maximum(counts - discount, 0) / seen[contexts], 0.0),
        rest=np.append(rest, 1.0),
    )


def _means(losses: NDArray[np.float64], context: NDArray[np.int64]) -> dict[int, float]:
    """Order n ≥ 2 → mean loss where `context` characters, at least 1, can be read: of order min(n, context + 1)."""
    best = losses[1]
    means = {2: float(best.mean())}
    for order in range(3, len(losses) + 1):
        best = np.where(context >= order - 1, losses[order - 1], best)
        means[order] = float(best.mean())
    return means


def _checked(tokens: Tokens, vocab_size: int) -> NDArray[np.int64]:
    text = tokens.astype(np.int64, copy=False)
    for extreme in (text.min(), text.max()) if text.size else ():
        if not 0 <= extreme < vocab_size:
            raise BadInput(f"Token {extreme} is not in the vocabulary of {vocab_size:,}: 0 … {vocab_size - 1:,}.")
    return text


def _require(name: str, value: int, *, least: int) -> None:
    if value < least:
        raise BadInput(f"{name}={value} must be at least {least}.")


def _read(kept: Path) -> References:
    """What `references_for` wrote.

    Raises:
        OSError, ValueError, TypeError, KeyError: it is not there, or not as it was written.
    """
    written = json.loads(kept.read_text(encoding="utf-8"))
    orders = range(2, MAX_ORDER + 1)
    return References(
        uniform=_finite(written["uniform"]),
        unigram=_finite(written["unigram"]),
        windowed={order: _finite(written["windowed"][str(order)]) for order in orders},
        full={order: _finite(written["full"][str(order)]) for order in orders},
    )


def _finite(loss: Any) -> float:
    if not isinstance(loss, float) or not math.isfinite(loss):
        raise ValueError(f"{loss} is no loss.")
    return loss

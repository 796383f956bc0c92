"""`data=markov`: a text of which everything is known: how often what follows what, and how well it can be guessed."""

import math
from bisect import bisect_right
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trilab.corpora.drawn import MOST_CHARACTERS, Draws, at_least, at_most, corpus_of, lower
from trilab.corpus import Corpus
from trilab.errors import BadInput

ONE = 1 << 32
"""Probabilities are multiples of 1 / ONE, so that draws and losses are of exactly the same numbers."""
MOST_ENTRIES = 1 << 20  # of the table
LEAST_CONCENTRATION = 1e-300  # logarithms of shares, divided by it, are still finite
MOST_ROUNDS = 100_000


def read(
    *, characters: int = 1_000_000, seed: int = 0, order: int = 2, symbols: int = 16, concentration: float = 0.1
) -> Corpus:
    """A Markov chain: each character is drawn from P(· | the `order` characters before it).

    Every row of P is drawn from a Dirichlet distribution: the smaller the concentration, the surer what follows. The
    first characters are uniform. The source's own loss is -ln P, and tends to `entropy_rate` in the long run.

    Args:
        characters: of the text, at most MOST_CHARACTERS.
        seed: of P and of the text; the seed of a run changes neither.
        order: characters that the next one depends on.
        symbols: lower-case letters to draw from (then Han characters).
        concentration: of the Dirichlet distribution, at least LEAST_CONCENTRATION; 1 is uniform over all distributions.
    Raises:
        BadInput: a table of more than MOST_ENTRIES probabilities, symbols ** (order + 1); a size out of range.
    """
    at_most("characters", characters, MOST_CHARACTERS)
    table = transitions(order=order, symbols=symbols, concentration=concentration, seed=seed)
    at_least("characters", characters, order + 1)
    draws = Draws("markov text", seed)
    start = int(draws.below(len(table), 1)[0])
    states = _walk(table.cumsum(1), (draws.raw(characters - order) >> np.uint64(32)).astype(np.int64), start)
    before = np.concatenate([[start], states[:-1]])
    ids = np.concatenate([start // symbols ** np.arange(order - 1, -1, -1), states]) % symbols
    with np.errstate(divide="ignore"):  # what cannot be drawn
        costs = -np.log(table / ONE)
    nats = np.concatenate([np.full(order, math.log(symbols)), costs[before, ids[order:]]])
    return corpus_of("markov", lower("symbols", symbols)[ids], nats.astype(np.float32))


def transitions(*, order: int, symbols: int, concentration: float, seed: int) -> NDArray[np.int64]:
    """P · ONE, as whole numbers.

    Args, errors: see `read`.
    Returns:
        (symbols ** order, symbols), each row with the sum ONE. The row of the characters a, b, …, the latest last, is
        number (a · symbols + b) · symbols + …
    """
    lower("symbols", symbols)
    at_least("order", order, 1)
    if not LEAST_CONCENTRATION <= concentration < math.inf:
        least = f"{LEAST_CONCENTRATION:g}"
        raise BadInput(f"data.concentration={concentration:g} must be at least {least} and finite, such as 0.1.")
    if order >= MOST_ENTRIES.bit_length() or symbols ** (order + 1) > MOST_ENTRIES:
        most = int(math.log(MOST_ENTRIES) / math.log(symbols) + 1e-9) - 1
        raise BadInput(
            f"data.order={order} with data.symbols={symbols} is a table of {symbols}^{order + 1} probabilities, more "
            f"than {MOST_ENTRIES:,}: data.order={most} is the most for so many symbols."
        )
    draws, shape = Draws("markov table", seed), (symbols**order, symbols)
    legacy = np.random.RandomState(draws.bits)  # frozen, unlike numpy's newer Generator
    # a gamma variate is one of a higher shape times a power of a uniform one: as logarithms none of them is lost
    gamma, uniform = legacy.standard_gamma(concentration + 1, shape), legacy.random_sample(shape)
    logs = np.log(gamma) + np.log1p(-uniform) / concentration
    shares = np.exp(logs - logs.max(1, keepdims=True))
    edges = np.rint((shares / shares.sum(1, keepdims=True)).cumsum(1) * ONE).astype(np.int64)
    edges[:, -1] = ONE
    table: NDArray[np.int64] = np.diff(edges, axis=1, prepend=0)
    return table


def entropy_rate(*, order: int = 2, symbols: int = 16, concentration: float = 0.1, seed: int = 0) -> float:
    """What the source loses in the long run: -Σ_s π(s) Σ_x P(x | s) ln P(x | s), with π the long-run share of state s.

    By power iteration from the uniform start over the graph of states, each of which has `symbols` successors:
    O(symbols ** (order + 1)) time a round. Steps that are not taken with probability 1/2 leave π as it is, and keep a
    chain that goes in circles from doing so for ever.

    Args: see `read`.
    Returns:
        Nats per character.
    Raises:
        BadInput: as `read`; a chain that has not settled after MOST_ROUNDS rounds.
    """
    table = transitions(order=order, symbols=symbols, concentration=concentration, seed=seed) / ONE
    n_states = len(table)
    share = np.full(n_states, 1 / n_states)
    for _ in range(MOST_ROUNDS):
        joint = (share[:, None] * table).reshape(symbols, n_states // symbols, symbols)
        moved = joint.sum(0).ravel()  # the oldest character is forgotten
        if np.abs(moved - share).sum() < 1e-14 * math.sqrt(n_states):
            surprise = -np.log(table, where=table > 0, out=np.zeros_like(table))
            return float((moved[:, None] * table * surprise).sum())
        share = (share + moved) / 2
    raise BadInput(
        f"data.concentration={concentration:g} gives a chain that does not settle, of no known entropy rate. Raise it, "
        "or choose another data.seed."
    )


def _walk(edges: NDArray[np.int64], draws: NDArray[np.int64], start: int) -> NDArray[np.int64]:
    """The states that a chain comes to, one a draw.

    Args:
        edges: (states, V) cumulative probabilities · ONE.
        draws: (n,) uniform in 0 … ONE - 1.
        start: the state before the first draw.
    Returns:
        (n,) states, each s · V + x modulo the number of states after s.
    """
    n_states, symbols = edges.shape
    rows = edges.tolist()

    def steps() -> Iterator[int]:
        state = start
        for draw in draws.data:  # one step needs the one before it; a list of all would take many times the memory
            state = (state * symbols + bisect_right(rows[state], draw)) % n_states
            yield state

    return np.fromiter(steps(), dtype=np.int64, count=len(draws))

"""What the sources that draw their text share: draws that never change, symbols, and episodes to be filled in."""

import hashlib
import string
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from trilab.corpus import Corpus
from trilab.errors import BadInput

FILLER = "."
MOST_CHARACTERS = 100_000_000  # texts are drawn into memory
MOST_SYMBOLS = 1000

_LOWER = (string.ascii_lowercase, 0x4E00)  # and on with Han characters
_UPPER = (string.ascii_uppercase, 0xAC00)  # and on with Hangul syllables


class Draws:
    """Numbers that depend on (source, seed) alone, on every machine and for all time.

    Args:
        source: its name, so that two sources of one seed have nothing in common.
        seed: any integer.
    """

    def __init__(self, source: str, seed: int) -> None:
        key = int.from_bytes(hashlib.blake2b(f"{source} {seed}".encode(), digest_size=16).digest(), "little")
        self.bits = np.random.Philox(key=key)  # whose raw stream is guaranteed to stay as it is

    def raw(self, *shape: int) -> NDArray[np.uint64]:
        """Uniform among all 64-bit numbers."""
        return self.bits.random_raw(int(np.prod(shape))).reshape(shape)

    def below(self, n: int, *shape: int) -> NDArray[np.int64]:
        """Uniform among 0 … n - 1; the remainder gives none a probability that is off by more than 2**-64."""
        return (self.raw(*shape) % np.uint64(n)).astype(np.int64)


class Episodes:
    """Episodes of one length side by side, for a source to fill in.

    Each begins with a line end, so that the last target of a window, which is the first character after it, is certain.
    What a source leaves as it is are fillers, which are certain too.

    Args:
        source: the name of conf/data/<source>.yaml.
        episode: characters of an episode.
        characters: of the text; as many whole episodes as it holds are drawn.
        seed: of the draws.
    Raises:
        BadInput: not even one episode, or more than MOST_CHARACTERS.
    """

    def __init__(self, source: str, *, episode: int, characters: int, seed: int) -> None:
        at_most("episode", episode, MOST_CHARACTERS)
        at_most("characters", characters, MOST_CHARACTERS)
        if characters < episode:
            raise BadInput(
                f"data.characters={characters} holds no whole episode of {episode} characters: make it a multiple of "
                f"data.episode, for example {min(100, MOST_CHARACTERS // episode) * episode}."
            )
        n = characters // episode
        self.source = source
        self.draws = Draws(source, seed)
        self.text: NDArray[np.str_] = np.full((n, episode), FILLER, dtype="<U1")
        self.text[:, 0] = "\n"
        self.answers = np.zeros((n, episode), dtype=bool)
        self.nats = np.zeros((n, episode), dtype=np.float32)

    def __len__(self) -> int:
        """Episodes."""
        return len(self.text)

    def corpus(self) -> Corpus:
        """The text as it was filled in."""
        made = corpus_of(self.source, self.text, self.nats)
        return replace(made, episode=self.text.shape[1], answers=self.answers.ravel())


def corpus_of(source: str, characters: NDArray[np.str_], nats: NDArray[np.float32]) -> Corpus:
    """A drawn text of no episodes.

    Args:
        source: the name of conf/data/<source>.yaml.
        characters: "<U1", of any shape.
        nats: of that shape, what each character cost the source.
    """
    made = Corpus.of(source, characters.tobytes().decode("utf-32-le"), f"data={source}")
    return replace(made, source_nats=nats.ravel())


def lower(knob: str, n: int) -> NDArray[np.str_]:
    """(n,) a … z, and Han characters after them. See `_symbols`."""
    return _symbols(knob, n, *_LOWER)


def upper(knob: str, n: int) -> NDArray[np.str_]:
    """(n,) A … Z, and Hangul syllables after them. See `_symbols`."""
    return _symbols(knob, n, *_UPPER)


def _symbols(knob: str, n: int, letters: str, beyond: int) -> NDArray[np.str_]:
    """The first n of an endless alphabet.

    Raises:
        BadInput: fewer than 2, of which none could be guessed wrongly, or more than MOST_SYMBOLS.
    """
    if not 2 <= n <= MOST_SYMBOLS:
        raise BadInput(f"data.{knob}={n} must lie between 2 and {MOST_SYMBOLS:,} symbols.")
    return np.array([*letters, *map(chr, range(beyond, beyond + max(n - len(letters), 0)))][:n], dtype="<U1")


def at_least(knob: str, value: int, least: int) -> None:
    """Refuse a knob that is too small.

    Raises:
        BadInput: value < least.
    """
    if value < least:
        raise BadInput(f"data.{knob}={value} must be at least {least}.")


def at_most(knob: str, value: int, most: int) -> None:
    """Refuse a knob that is too large.

    Raises:
        BadInput: value > most.
    """
    if value > most:
        raise BadInput(f"data.{knob}={value} must be at most {most:,}.")

"""A text to train on, as token ids, and what is known of it."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trilab.config import bind
from trilab.errors import BadInput
from trilab.findings import Findings
from trilab.vocabulary import Vocabulary


@dataclass(frozen=True)
class Corpus:
    """One text, as a source in `trilab.corpora` hands it over: LF line ends, no byte order mark, never empty.

    `Corpus.of` makes one of a string. Arrays may be mapped from a file and are never written to.
    """

    name: str
    """Short name for tables: the name of the source or of the file."""
    origin: str
    """Where the text came from, as messages to the user call it: the path that was given."""
    tokens: NDArray[np.integer]
    """(n,) the text as ids of the vocabulary, in its dtype."""
    vocabulary: Vocabulary
    sha256: str
    """Hex digest of the text's UTF-8 bytes; the file on disk may differ in line ends, mark and encoding."""
    episode: int = 1
    """The text is made of stretches of so many characters that have nothing to do with one another. Windows begin where
    a stretch begins, and splits are cut there. 1: anywhere."""
    answers: NDArray[np.bool_] | None = None
    """(n,) bool: the characters that a reader of what stands before them in their episode can know. Their loss is
    reported by itself; None where a source asks nothing."""
    source_nats: NDArray[np.float32] | None = None
    """(n,) float32: -ln of the probability that the process which wrote the text gave each character, where it is
    known."""
    findings: Findings | None = None
    """What was odd about the files that the text was read from, if it was."""

    @classmethod
    def of(cls, name: str, text: str, origin: str) -> "Corpus":
        """A text that is held in memory; see the fields for name and origin."""
        vocabulary = Vocabulary.of(text)
        sha256 = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return cls(name, origin, vocabulary.encode(text), vocabulary, sha256)

    @property
    def text(self) -> str:
        """The whole text again; made anew each time."""
        return self.vocabulary.decode(self.tokens)

    def __len__(self) -> int:
        """n, characters."""
        return len(self.tokens)


def read_corpus(source: Mapping[str, Any]) -> Corpus:
    """The text that conf/data/*.yaml names; read once per process.

    Args:
        source: `_target_`, a function in `trilab.corpora` or your own that returns a Corpus, and its arguments.
    Raises:
        BadInput: no such function, or no readable text.
    """
    return _read(json.dumps(source, sort_keys=True))


@lru_cache(maxsize=2)
def _read(source: str) -> Corpus:
    corpus = bind(json.loads(source), "data")()
    if not isinstance(corpus, Corpus):
        raise BadInput(f"data._target_={json.loads(source)['_target_']} must return a trilab.corpus.Corpus.")
    return corpus

"""A text to train on, checked, and where it came from."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from trilab.config import bind
from trilab.errors import BadInput


@dataclass(frozen=True)
class Corpus:
    """One text, as a source in `trilab.corpora` hands it over: LF line ends, no byte order mark, never empty."""

    name: str
    """Short name for tables: the name of the source or of the file."""
    text: str
    origin: str
    """Where the text came from, as messages to the user call it: the path that was given."""

    @cached_property
    def sha256(self) -> str:
        """Hex digest of the text's UTF-8 bytes; the file on disk may differ in line ends, mark and encoding."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


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

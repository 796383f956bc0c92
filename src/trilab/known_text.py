"""Text from a user → what of it a model knows."""

import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trilab.text_file import lf
from trilab.trained import Trained

NAMED = 20  # characters left out that a message names


@dataclass(frozen=True)
class KnownText:
    """A text as the model's own was read, and the characters of it that are in the vocabulary."""

    text: str
    """All of it."""
    tokens: NDArray[np.integer]
    """(n,) ids of the known characters, in order."""
    places: NDArray[np.int64]
    """(n,) where in the text each of them stands."""
    left_out: Mapping[str, int]
    """Unknown characters and how often each occurs."""

    def __str__(self) -> str:
        """What was left out, in one line."""
        named = [f"{c!r} (U+{ord(c):04X}, {times:,}×)" for c, times in list(self.left_out.items())[:NAMED]]
        more = f" and {len(self.left_out) - NAMED} more" if len(self.left_out) > NAMED else ""
        total = sum(self.left_out.values())
        return (
            f"{total:,} {'character' if total == 1 else 'characters'} left out that the model does not know: "
            f"{', '.join(named)}{more}."
        )


def known_text(text: str, trained: Trained, *, origin: str, skip: bool) -> KnownText:
    """Read a text as the model's own was: CRLF and CR are LF unless it was trained on them; normalised if that was.

    Args:
        text: any characters.
        origin: what a message calls the text: "--prompt".
        skip: leave out what is not in the vocabulary.
    Raises:
        BadInput: not `skip`, and a character that is not in the vocabulary, with its code point and its place.
    """
    vocabulary = trained.vocabulary
    if "\r" not in vocabulary.characters:
        text = lf(text)
    if trained.config.data.source.get("normalise") == "nfc":
        text = unicodedata.normalize("NFC", text)
    if not skip:
        return KnownText(text, vocabulary.encode(text, origin), np.arange(len(text)), {})
    known = set(vocabulary.characters)
    places = np.array([place for place, character in enumerate(text) if character in known], dtype=np.int64)
    kept = "".join(character for character in text if character in known)
    left_out = Counter(character for character in text if character not in known)
    return KnownText(text, vocabulary.encode(kept, origin), places, left_out)

"""Text from a user, as it is or in files → what of it a model knows."""

import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trilab.findings import Findings
from trilab.generation.typed import lf, separator
from trilab.reading.prepared import Text
from trilab.reading.sources import Source
from trilab.trained import Trained

NAMED = 20  # characters left out that a message names


@dataclass(frozen=True)
class KnownText:
    """A text as the model's own was read, and the characters of it that are in the vocabulary."""

    text: str
    """All of it."""
    tokens: NDArray[np.integer]
    """(n,) ids of the known characters, in order, in the vocabulary's dtype."""
    left_out: Mapping[str, int]
    """Unknown characters and how often each occurs, in the order in which they come."""

    def lines(self) -> Iterator[tuple[str, int]]:
        """Each line less its end, and how many of its characters are known, its end counted as one of them."""
        dropped = dict.fromkeys(map(ord, self.left_out))
        begins = 0
        while begins < len(self.text):
            ends = self.text.find("\n", begins) + 1 or len(self.text)
            line = self.text[begins:ends]
            yield line.removesuffix("\n"), len(line.translate(dropped) if dropped else line)
            begins = ends

    def __str__(self) -> str:
        """What was left out, in one line."""
        named = [f"{c!r} (U+{ord(c):04X}, {times:,}×)" for c, times in list(self.left_out.items())[:NAMED]]
        more = f" and {len(self.left_out) - NAMED} more" if len(self.left_out) > NAMED else ""
        total = sum(self.left_out.values())
        return (
            f"{total:,} {'character' if total == 1 else 'characters'} left out that the model does not know: "
            f"{', '.join(named)}{more}."
        )


def text_of(sources: list[Source], trained: Trained, encoding: str | None) -> str:
    """All characters of files, read and joined as the model's own were.

    Args:
        sources: the files.
        encoding: of those without a byte order mark; None: UTF-8.
    Raises:
        BadInput: a file that cannot be read or unpacked, or that is not of its encoding.
    """
    keep, between = _knows_cr(trained), separator(str(trained.config.data.source.get("separator", "\n")))
    text = Text(sources, encoding, keep, _is_normalised(trained), between if keep else lf(between))
    return b"".join(text.chunks(Findings())).decode()


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
    if not _knows_cr(trained):
        text = lf(text)
    if _is_normalised(trained):
        text = unicodedata.normalize("NFC", text)
    unknown = set(text).difference(vocabulary.characters) if skip else set()
    if not unknown:
        return KnownText(text, vocabulary.encode(text, origin), {})
    left_out = Counter(filter(unknown.__contains__, text))
    kept = text.translate(dict.fromkeys(map(ord, unknown)))
    return KnownText(text, vocabulary.encode(kept, origin), left_out)


def _knows_cr(trained: Trained) -> bool:
    return "\r" in trained.vocabulary.characters


def _is_normalised(trained: Trained) -> bool:
    return trained.config.data.source.get("normalise") == "nfc"

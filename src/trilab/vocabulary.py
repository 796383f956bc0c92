"""Characters ↔ token ids."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trilab.errors import BadInput

CODE_POINTS = 0x110000  # Unicode's
CHUNK = 1 << 20  # characters encoded at a time, so that a large text needs little memory beside itself
UNKNOWN = -1
SHOWN = 100  # a message lists the characters of a vocabulary up to this size


@dataclass(frozen=True)
class Vocabulary:
    """The characters a model knows, in order of code point; a character's token id is its place among them.

    Args:
        characters: V distinct characters, sorted; what a checkpoint keeps.
    Raises:
        BadInput: characters not sorted, or one of them twice.
    """

    characters: str

    def __post_init__(self) -> None:
        points = _code_points(self.characters)
        if (points[1:] <= points[:-1]).any():
            raise BadInput(
                f"The vocabulary {self.characters!r} is not made of distinct characters in order of code point."
            )

    @classmethod
    def of(cls, text: str) -> "Vocabulary":
        """The vocabulary of a text: its distinct characters."""
        seen = np.zeros(CODE_POINTS, dtype=bool)
        for chunk in _chunks(text):
            seen[_code_points(chunk)] = True
        return cls(_characters(np.flatnonzero(seen).astype("<u4")))

    def __len__(self) -> int:
        """V, the number of characters."""
        return len(self.characters)

    @property
    def dtype(self) -> np.dtype[np.integer]:
        """The smallest integer type that holds every token id."""
        return id_dtype(len(self))

    @property
    def start(self) -> str:
        """How a text without a prompt begins: with a line end, or the first character where there is none."""
        return "\n" if "\n" in self.characters else self.characters[0]

    def encode(self, text: str, origin: str = "The text") -> NDArray[np.integer]:
        """Token ids of a text, in a few milliseconds a million characters.

        Args:
            text: n characters, 0 ≤ n.
            origin: what a message calls the text, for example "prompt".
        Returns:
            (n,) in `dtype`.
        Raises:
            BadInput: a character that is not in the vocabulary, with its code point and its place (the first is 0).
        """
        ids = np.empty(len(text), dtype=self.dtype)
        for start, chunk in zip(range(0, len(text), CHUNK), _chunks(text), strict=True):
            if chunk.isascii() and (found := chunk.encode("ascii").translate(self._ascii_ids)).isascii():
                ids[start : start + len(chunk)] = np.frombuffer(found, dtype=np.uint8)
                continue
            places = self._ids[_code_points(chunk)]
            if (places == UNKNOWN).any():
                raise BadInput(self._unknown(text, origin))
            ids[start : start + len(chunk)] = places
        return ids

    def decode(self, ids: Sequence[int] | NDArray[np.integer]) -> str:
        """The text that token ids stand for.

        Args:
            ids: (n,) integers.
        Returns:
            n characters.
        Raises:
            ValueError: ids that are not a flat list of integers, or an id outside 0 … V - 1; the message gives it.
        """
        places = np.asarray(ids, dtype=np.int64)
        if places.ndim != 1:
            raise ValueError(f"ids of shape {places.shape} are not one row of token ids, (n,).")
        outside = places[(places < 0) | (places >= len(self))]
        if outside.size:
            raise ValueError(f"Token id {outside[0]} is not in a vocabulary of {len(self)} characters.")
        return _characters(_code_points(self.characters).astype("<u4")[places])

    @cached_property
    def _ids(self) -> NDArray[np.int32]:
        """(code points,) the id of every code point, UNKNOWN where there is none."""
        ids = np.full(CODE_POINTS, UNKNOWN, dtype=np.int32)
        ids[_code_points(self.characters)] = np.arange(len(self), dtype=np.int32)
        return ids

    @cached_property
    def _ascii_ids(self) -> bytes:
        """A table for bytes.translate. ASCII sorts first, so its ids are below 128 and 255 can stand for unknown."""
        return (self._ids[:256] & 0xFF).astype(np.uint8).tobytes()

    def _unknown(self, text: str, origin: str) -> str:
        known = set(self.characters)
        first: dict[str, int] = {}
        for position, character in enumerate(text):
            if character not in known:
                first.setdefault(character, position)
        named = [f"{c!r} (U+{ord(c):04X}, first at position {p:,})" for c, p in list(first.items())[:SHOWN]]
        listed = f": {self.characters!r}" if len(self) <= SHOWN else ""
        return (
            f"{origin} has {'characters that are' if len(first) > 1 else 'a character that is'} not in the vocabulary: "
            f"{', '.join(named)}. The vocabulary has {len(self):,} characters{listed}."
        )


def id_dtype(size: int) -> np.dtype[np.integer]:
    """The smallest integer type that holds the token ids of a vocabulary of this size."""
    if size <= 1 << 8:
        return np.dtype(np.uint8)
    return np.dtype(np.uint16 if size <= 1 << 16 else np.int32)


def _chunks(text: str) -> Iterator[str]:
    return (text[start : start + CHUNK] for start in range(0, len(text), CHUNK))


def _code_points(text: str) -> NDArray[np.unsignedinteger]:
    """(n,) the code point of every character; a lone surrogate is one too."""
    if text.isascii():
        return np.frombuffer(text.encode("ascii"), dtype=np.uint8)
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def _characters(code_points: NDArray[np.uint32]) -> str:
    return code_points.tobytes().decode("utf-32-le", "surrogatepass")

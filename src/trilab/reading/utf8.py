"""Text as bytes of UTF-8: how much of them is valid, and a number for each character.

Both are done in C where that can be compiled, else in Python's and NumPy's own ways: slower, the same results.
"""

import codecs
import ctypes
from functools import cache
from pathlib import Path
from typing import NewType

import numpy as np
from numpy.typing import NDArray

from trilab.errors import BadInput
from trilab.ops import native
from trilab.vocabulary import CODE_POINTS, id_dtype

SOURCE = Path(__file__).with_name("utf8.c")
UNKNOWN = -1
UNKNOWN_BYTE = 0xFF  # the same in a table of bytes

Utf8 = NewType("Utf8", bytes)
"""Whole characters in valid UTF-8."""


@cache
def compiled() -> ctypes.CDLL | None:
    """utf8.c, or None where it cannot be compiled; see `trilab.ops.native.library`."""
    functions = native.library((SOURCE,), "Texts are read by Python's own ways, which are slower")
    if functions is not None:
        at, long, text = ctypes.c_void_p, ctypes.c_long, ctypes.c_char_p
        functions.valid.argtypes, functions.valid.restype = [text, long], long
        functions.numbers.argtypes = [text, long, at, at, ctypes.POINTER(ctypes.c_int32), at, ctypes.c_int]
        functions.numbers.restype = long
    return functions


def encoded(text: str, origin: str, before: int = 0) -> Utf8:
    """A text as bytes.

    Args:
        origin: what a message calls it: "data.path=notes.txt".
        before: how many characters of it came before these.
    Raises:
        BadInput: half of a surrogate pair in it, which some encodings can hold and UTF-8 cannot.
    """
    try:
        return Utf8(text.encode())
    except UnicodeEncodeError as error:
        raise BadInput(
            f"{origin} has half of a surrogate pair, U+{ord(text[error.start]):04X}, at character "
            f"{before + error.start:,}: that is no character, and UTF-8 cannot hold it."
        ) from None


def valid(content: bytes) -> int:
    """How many bytes at the beginning are whole characters of UTF-8: no overlong forms, no surrogates."""
    if functions := compiled():
        return int(functions.valid(content, len(content)))
    try:
        return codecs.utf_8_decode(content)[1]
    except UnicodeDecodeError as error:
        return error.start


class Numbers:
    """A number for each character, the next one for each that has not come before."""

    def __init__(self) -> None:
        self._number = np.full(CODE_POINTS, UNKNOWN, dtype=np.int32)  # of each code point
        self._points = np.empty(CODE_POINTS, dtype=np.int32)  # the code point of each number
        self._known = 0
        self._table = bytes([UNKNOWN_BYTE]) * 256  # of the numbers of ASCII characters, for bytes.translate

    @property
    def points(self) -> NDArray[np.int32]:
        """(V,) the code point of each number; changed by `sort`."""
        return self._points[: self._known]

    def __getitem__(self, character: str) -> int:
        """The number of a character; UNKNOWN if it has not come."""
        return int(self._number[ord(character)])

    def sort(self) -> None:
        """Number those that have come anew, in order of code point."""
        self.points.sort()
        self._number[self.points] = np.arange(self._known)
        self._table = _table(self._number)

    def of(self, text: Utf8) -> NDArray[np.integer]:
        """(n,) the number of each character, in as few bytes as there are numbers then."""
        functions = compiled()
        return self._by_numpy(text) if functions is None else self._by_c(functions, text)

    def _by_c(self, functions: ctypes.CDLL, text: Utf8) -> NDArray[np.integer]:
        while True:
            dtype, known = id_dtype(self._known), ctypes.c_int32(self._known)
            numbers = np.empty(len(text), dtype=dtype)
            places = self._number.ctypes.data, self._points.ctypes.data
            count = functions.numbers(text, len(text), *places, known, numbers.ctypes.data, dtype.itemsize)
            self._known = known.value
            if id_dtype(self._known) == dtype:  # else they have outgrown it on the way
                numbers.resize(count, refcheck=False)
                return numbers

    def _by_numpy(self, text: Utf8) -> NDArray[np.integer]:
        if text.isascii():
            if UNKNOWN_BYTE in (numbers := text.translate(self._table)):
                self._meet(np.frombuffer(text, dtype=np.uint8))
                numbers = text.translate(self._table)
            if UNKNOWN_BYTE not in numbers:
                return np.frombuffer(numbers, dtype=np.uint8)
        characters = text.decode()
        points: NDArray[np.unsignedinteger] = np.frombuffer(characters.encode("utf-16-le"), dtype="<u2")
        if len(points) > len(characters):  # surrogate pairs
            points = np.frombuffer(characters.encode("utf-32-le"), dtype="<u4")
        found = np.take(self._number, points, mode="clip")  # all are within; clip looks at each only once
        if len(found) and found.min() == UNKNOWN:
            self._meet(points[found == UNKNOWN])
            found = np.take(self._number, points, mode="clip")
        return found.astype(id_dtype(self._known), copy=False)

    def _meet(self, points: NDArray[np.unsignedinteger]) -> None:
        """Give the next numbers to the code points that have none, in their order."""
        come = np.flatnonzero(np.bincount(points))
        new = come[self._number[come] == UNKNOWN]
        known = self._known + len(new)
        self._number[new] = np.arange(self._known, known)
        self._points[self._known : known] = new
        self._known = known
        self._table = _table(self._number)


def _table(number: NDArray[np.int32]) -> bytes:
    """For bytes.translate: the numbers of ASCII characters, those that a byte has room for."""
    known = number[:256]
    return np.where((known < UNKNOWN_BYTE) & (known != UNKNOWN), known, UNKNOWN_BYTE).astype(np.uint8).tobytes()

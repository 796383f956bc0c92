"""Chunks of a text → its vocabulary, sha256 and token ids, in memory that does not grow with it."""

import hashlib
import os
import unicodedata
from collections.abc import Callable
from typing import IO

import numpy as np
from numpy.typing import NDArray

from trilab.errors import BadInput
from trilab.vocabulary import Vocabulary, id_dtype

UNKNOWN = -1
UNKNOWN_BYTE = 0xFF  # the same in a table of bytes


class Encoder:
    """Takes a text chunk by chunk, and gives its token ids when it is whole.

    A token id is a character's place in the sorted vocabulary, which only the end of the text completes. Until then
    characters are numbered as they come, in as few bytes as there are numbers so far; `settle` makes ids of the numbers
    where they lie, if they are not the ids already. The numbers are kept in memory, or from `spill` on in a file.
    """

    def __init__(self) -> None:
        self.characters = 0
        """How many have come."""
        self.controls: dict[str, int] = {}
        """How often each control character has come, but tabs and line ends."""
        self._sha256 = hashlib.sha256()
        self._numbers = np.full(256, UNKNOWN, dtype=np.int32)  # of each code point, up to the highest that has come
        self._points: list[int] = []  # the code point of each number
        self._table = bytes([UNKNOWN_BYTE]) * 256  # of the numbers of ASCII characters, for bytes.translate
        self._held: list[NDArray[np.integer]] = []
        self._file: IO[bytes] | None = None
        self._written: list[tuple[int, np.dtype[np.integer]]] = []  # of each chunk: how many numbers, of which type

    @property
    def sha256(self) -> str:
        """Hex digest of the text's UTF-8 bytes."""
        return self._sha256.hexdigest()

    @property
    def vocabulary(self) -> Vocabulary:
        """The distinct characters."""
        return Vocabulary("".join(map(chr, sorted(self._points))))

    def add(self, chunk: str) -> None:
        """Take the next characters.

        Raises:
            BadInput: half of a surrogate pair among them, which some encodings can hold and no UTF-8 text can.
            OSError: the file cannot be written.
        """
        try:
            content = chunk.encode()
        except UnicodeEncodeError as error:
            raise BadInput(
                f"The text has half of a surrogate pair, U+{ord(chunk[error.start]):04X}, at character "
                f"{self.characters + error.start:,}: that is no character, and UTF-8 cannot hold it."
            ) from None
        self._sha256.update(content)
        self.characters += len(chunk)
        numbers = self._numbered(chunk, content)
        for control in self.controls:
            self.controls[control] += int(np.count_nonzero(numbers == self._numbers[ord(control)]))
        self._keep(numbers)

    def spill(self, file: IO[bytes]) -> None:
        """Move what has come to a file, into which all the rest is put too.

        Args:
            file: empty, and opened by the system for reading as well.
        Raises:
            OSError: it cannot be written.
        """
        ids, held = self._ids(), self._held
        self._points.sort()  # now the numbers are ids: if no other character comes, there is nothing to settle
        self._numbers[self._points] = np.arange(len(self._points))
        self._table = _table(self._numbers)
        self._held, self._file = [], file
        for numbers in held:
            self._keep(ids[numbers])

    def ids(self) -> NDArray[np.integer]:
        """(n,) the token ids of a text that is in memory, in the vocabulary's dtype."""
        ids = self._ids()
        result = np.empty(self.characters, dtype=ids.dtype)
        begins = 0
        for numbers in self._held:
            np.take(ids, numbers, out=result[begins : begins + len(numbers)], mode="clip")
            begins += len(numbers)
        return result

    def settle(self, tell: Callable[[int], None] = lambda done: None) -> None:
        """Make token ids, of the vocabulary's dtype, of the numbers in the file.

        Args:
            tell: is called with how many are done.
        Raises:
            OSError: the file cannot be written.
        """
        assert self._file is not None
        self._file.flush()
        ids = self._ids()
        if {dtype for _, dtype in self._written} == {ids.dtype} and np.array_equal(ids, np.arange(len(ids))):
            return
        file = self._file.fileno()
        # from the end to the beginning, since ids may be wider than the numbers before them
        left, read_from = self.characters, sum(count * dtype.itemsize for count, dtype in self._written)
        for count, dtype in reversed(self._written):
            left -= count
            read_from -= count * dtype.itemsize
            numbers = os.pread(file, count * dtype.itemsize, read_from)
            settled = memoryview(
                numbers.translate(ids.tobytes().ljust(256))
                if ids.dtype == np.uint8
                else ids[np.frombuffer(numbers, dtype)].tobytes()
            )
            done = 0
            while done < len(settled):
                done += os.pwrite(file, settled[done:], left * ids.itemsize + done)
            tell(self.characters - left)

    def _ids(self) -> NDArray[np.integer]:
        """(V,) the token id of each number."""
        ids = np.empty(len(self._points), dtype=id_dtype(len(self._points)))
        ids[np.argsort(self._points)] = np.arange(len(ids))
        return ids

    def _keep(self, numbers: NDArray[np.integer]) -> None:
        if self._file is None:
            self._held.append(numbers)
        else:
            self._file.write(numbers.data)
            self._written.append((len(numbers), numbers.dtype))

    def _numbered(self, chunk: str, content: bytes) -> NDArray[np.integer]:
        """The number of each character."""
        if len(content) == len(chunk):  # ASCII
            if UNKNOWN_BYTE in (numbers := content.translate(self._table)):
                self._meet(np.frombuffer(content, dtype=np.uint8))
                numbers = content.translate(self._table)
            if UNKNOWN_BYTE not in numbers:
                ascii_numbers: NDArray[np.integer] = np.frombuffer(numbers, dtype=np.uint8)
                return ascii_numbers
        points = np.frombuffer(chunk.encode("utf-16-le"), dtype="<u2")
        if len(points) > len(chunk):  # surrogate pairs
            points = np.frombuffer(chunk.encode("utf-32-le"), dtype="<u4")
        if (more := int(points.max()) + 1 - len(self._numbers)) > 0:
            self._numbers = np.concatenate([self._numbers, np.full(more, UNKNOWN, dtype=np.int32)])
        found = np.take(self._numbers, points, mode="clip")  # all are within; clip looks at each only once
        if found.min() == UNKNOWN:
            self._meet(points[found == UNKNOWN])
            found = np.take(self._numbers, points, mode="clip")
        return found.astype(id_dtype(len(self._points)), copy=False)

    def _meet(self, points: NDArray[np.unsignedinteger]) -> None:
        """Give the next numbers to the code points that have none, in their order."""
        come = np.flatnonzero(np.bincount(points))
        new = come[self._numbers[come] == UNKNOWN]
        self._numbers[new] = np.arange(len(self._points), len(self._points) + len(new))
        self._points += new.tolist()
        self._table = _table(self._numbers)
        for character in map(chr, new.tolist()):
            if unicodedata.category(character) == "Cc" and character not in "\t\n\r":
                self.controls[character] = 0


def _table(numbers: NDArray[np.int32]) -> bytes:
    """For bytes.translate: the numbers of ASCII characters, those that a byte has room for."""
    known = numbers[:256]
    return np.where((known < UNKNOWN_BYTE) & (known != UNKNOWN), known, UNKNOWN_BYTE).astype(np.uint8).tobytes()

"""Chunks of a text → its vocabulary, sha256 and token ids, in memory that does not grow with it."""

import hashlib
import os
import unicodedata
from collections.abc import Callable
from typing import IO

import numpy as np
from numpy.typing import NDArray

from trilab.reading.utf8 import Numbers, Utf8
from trilab.vocabulary import Vocabulary, id_dtype


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
        self._numbers = Numbers()
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
        return Vocabulary("".join(map(chr, np.sort(self._numbers.points).tolist())))

    def add(self, chunk: Utf8) -> None:
        """Take the next characters.

        Raises:
            OSError: the file cannot be written.
        """
        self._sha256.update(chunk)
        known = len(self._numbers.points)
        numbers = self._numbers.of(chunk)
        self.characters += len(numbers)
        for character in map(chr, self._numbers.points[known:].tolist()):
            if unicodedata.category(character) == "Cc" and character not in "\t\n\r":
                self.controls[character] = 0
        for control in self.controls:
            self.controls[control] += int(np.count_nonzero(numbers == self._numbers[control]))
        self._keep(numbers)

    def spill(self, file: IO[bytes]) -> None:
        """Move what has come to a file, into which all the rest is put too.

        Args:
            file: empty, and opened by the system for reading as well.
        Raises:
            OSError: it cannot be written.
        """
        ids, held = self._ids(), self._held
        self._numbers.sort()  # now they are ids: if no other character comes, there is nothing to settle
        self._held, self._file = [], file
        for numbers in held:
            self._keep(_exchanged(numbers, ids))

    def ids(self) -> NDArray[np.integer]:
        """(n,) the token ids of a text that is in memory, in the vocabulary's dtype."""
        ids = self._ids()
        result = np.empty(self.characters, dtype=ids.dtype)
        begins = 0
        for numbers in self._held:
            result[begins : begins + len(numbers)] = _exchanged(numbers, ids)
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
            numbers = np.frombuffer(os.pread(file, count * dtype.itemsize, read_from), dtype)
            settled = memoryview(_exchanged(numbers, ids).tobytes())
            done = 0
            while done < len(settled):
                done += os.pwrite(file, settled[done:], left * ids.itemsize + done)
            tell(self.characters - left)

    def _ids(self) -> NDArray[np.integer]:
        """(V,) the token id of each number."""
        points = self._numbers.points
        ids = np.empty(len(points), dtype=id_dtype(len(points)))
        ids[np.argsort(points)] = np.arange(len(ids))
        return ids

    def _keep(self, numbers: NDArray[np.integer]) -> None:
        if self._file is None:
            self._held.append(numbers)
        else:
            self._file.write(numbers.data)
            self._written.append((len(numbers), numbers.dtype))


def _exchanged(numbers: NDArray[np.integer], ids: NDArray[np.integer]) -> NDArray[np.integer]:
    """ids[numbers], for bytes by what Python does for them, which is quicker."""
    if ids.dtype == np.uint8:
        return np.frombuffer(numbers.tobytes().translate(ids.tobytes().ljust(256)), dtype=np.uint8)
    return np.take(ids, numbers, mode="clip")  # all are within; clip looks at each only once

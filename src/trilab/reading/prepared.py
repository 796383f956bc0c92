"""Texts → corpora. A long one is prepared once: its token ids lie in a file that every later run maps into memory.

Beside `<name>-<key>.tokens`, the bare ids, stands `<name>-<key>.json`, which says what they are ids of; it is written
last. The key is made of the path and of how it is read, not of what is there: so a text need not be read to be found,
and one that has changed takes the place of what it was.
"""

import glob
import hashlib
import json
import logging
import os
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from trilab.atomic import PARTIAL, replacing
from trilab.corpus import Corpus
from trilab.errors import BadInput
from trilab.findings import Findings
from trilab.reading.decoding import composed, gathered, joined
from trilab.reading.encoder import Encoder
from trilab.reading.sources import Source
from trilab.reading.utf8 import Utf8
from trilab.vocabulary import Vocabulary

IN_MEMORY = 16_000_000  # characters; a text up to this size is read in less than a second, and no file is made
FORMAT = 2  # raised with every change to what is written
SURELY_OLDER = 2_000_000_000  # nanoseconds: the coarsest clock of a file system
WITHOUT_A_WORD = 500_000_000  # nanoseconds that are waited

log = logging.getLogger("trilab")


@dataclass(frozen=True)
class Text:
    """What is to be read, and how; see `trilab.corpora.file.read`."""

    sources: list[Source]
    encoding: str | None
    keep: bool
    nfc: bool
    separator: str

    def chunks(self, found: Findings, tell: Callable[[int], None] = lambda done: None) -> Iterator[Utf8]:
        """The text, as `trilab.reading.decoding.joined` gives them."""
        text = joined(self.sources, found, encoding=self.encoding, keep=self.keep, separator=self.separator, tell=tell)
        return gathered(composed(text) if self.nfc else text)

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return sum(source.size for source in self.sources)

    @property
    def settings(self) -> dict[str, Any]:
        """What else but the sources determines the text."""
        nfc = unicodedata.unidata_version if self.nfc else None  # what is composed grows with Unicode
        return {"encoding": self.encoding, "keep": self.keep, "nfc": nfc, "separator": self.separator}

    def may_have_changed(self, since: int) -> bool:
        """Whether it was last written to so near this time, in nanoseconds since 1970, that a change would not show."""
        return any(abs(since - source.mtime_ns) < SURELY_OLDER for source in self.sources)


class _Reading:
    """A text on its way from the disk into token ids."""

    def __init__(self, text: Text, bar: "_Bar") -> None:
        self.began = time.time_ns()
        self.text, self.found, self.encoder = text, Findings(), Encoder()
        self._chunks = text.chunks(self.found, bar)

    def is_over(self, most: int | None = None) -> bool:
        """Read on, to the end of the text or until so many characters have come; whether that was the end."""
        for chunk in self._chunks:
            self.encoder.add(chunk)
            if most is not None and self.encoder.characters > most:
                return False
        return True


def corpus_of(text: Text, *, name: str, origin: str, folder: Path) -> Corpus:
    """Read a text, or find it prepared. Any number of processes may do so at once: one prepares it, the others wait.

    Memory does not grow with the text: less than 300 MB while it is prepared, and afterwards what the system keeps of
    the file and takes back when it needs room.

    Args:
        text: what is to be read.
        name, origin: see `Corpus`.
        folder: where token files are kept; made for the first text longer than `IN_MEMORY`.
    Raises:
        BadInput: no text in it, or one that cannot be read; the folder cannot be written to.
    """
    kept = _TokenFile(text, name, origin, folder)
    if corpus := kept.load():
        return corpus
    bar = _Bar()
    reading = _Reading(text, bar)
    if reading.is_over(IN_MEMORY):
        _complete(reading, origin)
        encoder = reading.encoder
        return Corpus(name, origin, encoder.ids(), encoder.vocabulary, encoder.sha256, findings=reading.found)
    try:
        with kept.alone():
            if corpus := kept.load():  # another process has prepared it meanwhile
                return corpus
            if text.may_have_changed(reading.began):
                _wait_until_older(text, origin)
                reading = _Reading(text, bar)
            encoder = reading.encoder
            log.info("%s is long (%s bytes): it is prepared once.", origin, f"{text.size:,}")
            with kept.written(reading) as file:
                encoder.spill(file)
                with bar.shown("Reading", text.size):
                    reading.is_over()
                _complete(reading, origin)
                with bar.shown("Numbering", encoder.characters):
                    encoder.settle(bar)
            seconds = (time.time_ns() - reading.began) / 1e9
            log.info("Prepared %s characters in %.1f s: %s.", f"{encoder.characters:,}", seconds, kept.tokens)
            corpus = kept.load(just_written=True)
    except OSError as error:
        raise BadInput(
            f"data.prepared={folder} cannot take the token ids of {origin}: {error.strerror}. Give a folder that "
            "can be written to, on a disk with room for a byte a character or more: data.prepared=/some/folder."
        ) from error
    if corpus is None:
        raise BadInput(f"{kept.tokens} was changed by somebody as soon as it was written. Set another data.prepared.")
    return corpus


def _wait_until_older(text: Text, origin: str) -> None:
    """Let the file system's clock tick, so that a change from now on shows."""
    now = time.time_ns()
    recent = [source.mtime_ns for source in text.sources if abs(now - source.mtime_ns) < SURELY_OLDER]
    wait = max((mtime + SURELY_OLDER - now for mtime in recent), default=0)
    if wait > WITHOUT_A_WORD:
        log.info("%s was written to just now: it is read in %.1f s, to notice later changes.", origin, wait / 1e9)
    time.sleep(wait / 1e9)


def _complete(reading: _Reading, origin: str) -> None:
    """Refuse what is no text, or none that holds still."""
    encoder, found = reading.encoder, reading.found
    if not encoder.characters:
        raise BadInput(f"data.path={origin} is empty. Give a file with text in it.")
    if encoder.vocabulary.characters.isspace():
        raise BadInput(
            f"data.path={origin} holds nothing but white space ({encoder.characters:,} characters). Give a file with "
            "text in it."
        )
    for source in reading.text.sources:
        if source.has_changed():
            raise BadInput(f"{source.shown} was changed while it was read. Try again when it is complete.")
    found.nul = encoder.controls.get("\0", 0)
    found.controls = sum(encoder.controls.values()) - found.nul


class _TokenFile:
    """What is prepared of one text, and what is said of it."""

    def __init__(self, text: Text, name: str, origin: str, folder: Path) -> None:
        self.text, self.name, self.origin = text, name, origin
        self._said: set[str] = set()
        self.sources = [[str(source.path.absolute()), source.size, source.mtime_ns] for source in text.sources]
        made_of = json.dumps([str(Path(origin).absolute()), text.settings])
        safe = "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "_" for c in name)[:60]
        stem = f"{safe}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"
        self.tokens, self.notes, self.lock = (
            folder / f"{stem}.tokens",
            folder / f"{stem}.json",
            folder / f".{stem}.lock",
        )

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from preparing this text, or wait for the one that does."""
        self.tokens.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.lock)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            log.info("Waiting for another process that prepares %s.", self.origin)
            lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def load(self, *, just_written: bool = False) -> Corpus | None:
        """The corpus as it was prepared; None, with a word why, where that cannot be relied on.

        Args:
            just_written: by this process, which knows that it fits the text.
        """
        try:
            sealed = json.loads(self.notes.read_text(encoding="utf-8"))
            if sealed["format"] != FORMAT:
                return None
            notes = sealed["notes"]
            if sealed["sha256"] != _sha256(notes):
                raise ValueError("its notes are not as they were written")
            if not just_written and (why := self._outdated(notes)):
                self._say(logging.INFO, f"{why}: it is read anew.")
                return None
            vocabulary = Vocabulary(notes["vocabulary"])
            return Corpus(
                self.name,
                self.origin,
                self._mapped(notes, vocabulary.dtype),
                vocabulary,
                notes["sha256"],
                findings=Findings(**notes["findings"]),
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:  # what is nested too deep
            self._say(logging.WARNING, f"{self.tokens} is damaged ({error}): the text is read anew.")
            return None

    @contextmanager
    def written(self, reading: _Reading) -> Iterator[IO[bytes]]:
        """The file for the ids; once it is complete it takes its place, and then its notes theirs, or nothing does.

        Args:
            reading: will be at the end of the text.
        Raises:
            OSError: it cannot be done.
        """
        for partial in self.tokens.parent.glob(f".{glob.escape(self.tokens.stem)}.*{PARTIAL}"):
            partial.unlink(missing_ok=True)  # of one that was killed: nobody else prepares this now
        with replacing(self.tokens) as file:
            yield file
        status = self.tokens.stat()
        encoder = reading.encoder
        notes = {
            "settings": self.text.settings,
            "sources": self.sources,
            "began_ns": reading.began,
            "sha256": encoder.sha256,
            "characters": encoder.characters,
            "tokens": [status.st_size, status.st_mtime_ns],
            "findings": asdict(reading.found),
            "vocabulary": encoder.vocabulary.characters,
        }
        with replacing(self.notes) as file:
            file.write(sealed(notes))

    def _say(self, level: int, words: str) -> None:
        if words not in self._said:  # it is looked at again once nobody else prepares it
            log.log(level, "%s", words)
        self._said.add(words)

    def _outdated(self, notes: dict[str, Any]) -> str | None:
        if notes["sources"] != self.sources:
            return f"{self.origin} has changed since it was prepared"
        if self.text.may_have_changed(notes["began_ns"]):
            return f"{self.origin} was written to just when it was prepared"
        return None

    def _mapped(self, notes: dict[str, Any], dtype: np.dtype[np.integer]) -> NDArray[np.integer]:
        with self.tokens.open("rb") as file:
            status = os.fstat(file.fileno())
            if [status.st_size, status.st_mtime_ns] != notes["tokens"]:
                raise ValueError("its size or time is not as noted")
            if status.st_size != notes["characters"] * dtype.itemsize:
                raise ValueError("its size does not fit the vocabulary")
            # private: what asks for an array that may be written to gets one, and the file is safe
            return np.memmap(file, dtype=dtype, mode="c").view(np.ndarray)


def sealed(notes: dict[str, Any]) -> bytes:
    """The content of a file of notes, which tells whether any of it has been changed."""
    return json.dumps({"format": FORMAT, "sha256": _sha256(notes), "notes": notes}).encode()


def _sha256(notes: Any) -> str:
    return hashlib.sha256(json.dumps(notes).encode()).hexdigest()


class _Bar:
    """A progress bar on a terminal's error output; nothing elsewhere. Called with how much is done."""

    def __init__(self) -> None:
        self._update: Callable[[int], None] | None = None

    def __call__(self, done: int) -> None:
        if self._update is not None:
            self._update(done)

    @contextmanager
    def shown(self, what: str, total: int) -> Iterator[None]:
        """Show it meanwhile."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        with ExitStack() as showing:
            if console.is_terminal:
                columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
                bar = showing.enter_context(Progress(*columns, TimeRemainingColumn(), console=console, transient=True))
                task = bar.add_task(what, total=total)
                self._update = lambda done: bar.update(task, completed=done)
            try:
                yield
            finally:
                self._update = None

"""A text on standard input, or in a pipe → a file, which can be read again."""

import fcntl
import hashlib
import os
import secrets
import stat
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from trilab.atomic import PARTIAL
from trilab.errors import BadInput
from trilab.override import override
from trilab.reading.sources import KEY, PIECE, Source, as_given, find, shown, unreadable

STANDARD_INPUT = "-"
NAMED = ("data.path=-", "data.path='-'", 'data.path="-"')
PREPARED = "data.prepared="
KEPT_IN = "data/prepared"  # unless that says otherwise
SIZES = ("WORLD_SIZE", "SLURM_NTASKS")  # how many processes torchrun or srun has started
IN_USE = 60  # seconds: what was made longer ago and is not locked has been left by a process that was killed


def in_its_place(overrides: Sequence[str]) -> list[str]:
    """A command line with the name of a file that holds the standard input, where data.path=- names that.

    Raises:
        BadInput: it cannot be kept, or several processes were started that would each read it.
    """
    words = [given.lstrip("+") for given in overrides]
    if not any(word in NAMED for word in words):
        return list(overrides)
    if any(os.environ.get(size, "1") != "1" for size in SIZES):
        raise BadInput("data.path=- is the standard input, which only one of several processes has. Give a file.")
    folders = [word.removeprefix(PREPARED).strip("'\"") for word in words if word.startswith(PREPARED)]
    path = override("data.path", str(keep(Path(folders[-1] if folders else KEPT_IN))))
    return [path if word in NAMED else given for given, word in zip(overrides, words, strict=True)]


def keep(folder: Path) -> Path:
    """Read the standard input to its end, once, into stdin-<sha256>.txt, which every run, worker and resume can read.

    The same text is the same file.

    Args:
        folder: where it is kept; made if need be.
    Raises:
        BadInput: it is closed or empty, cannot be read, or not be written there.
    """
    place = folder.expanduser()
    partial = place / f".stdin.{secrets.token_hex(8)}{PARTIAL}"
    try:
        place.mkdir(parents=True, exist_ok=True)
        _remove_what_was_left(place)
        sha256, size = hashlib.sha256(), 0
        with partial.open("xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            for piece in _pieces(STANDARD_INPUT, KEY):
                sha256.update(piece)
                size += file.write(piece)
            file.flush()
            if not size:
                raise BadInput(
                    "data.path=- is the standard input, which is empty. Give a file, or text through a pipe."
                )
            name = f"stdin-{sha256.hexdigest()[:16]}.txt"
            if not _holds(place / name, sha256.hexdigest()):  # else it keeps its time, and what is prepared of it
                partial.replace(place / name)
        return folder / name
    except OSError as error:
        raise BadInput(
            f"data.prepared={folder} cannot take the standard input: {error.strerror}. Give a folder that can be "
            "written to: data.prepared=/some/folder."
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink()


@contextmanager
def readable(path: str, key: str) -> Iterator[list[Source]]:
    """The files of a text; what comes on standard input or through a pipe is in one until the text has been read.

    Args:
        path: as `sources.find` takes it; a pipe, or - for the standard input.
        key: the option that names it: "--loss".
    Raises:
        BadInput: as `sources.find`; or the standard input is closed, or what comes cannot be read or kept meanwhile.
    """
    if path != STANDARD_INPUT and not _is_pipe(path):
        yield find(path, leave_out=KEPT_IN, key=key)
        return
    with ExitStack() as meanwhile:
        try:
            file = Path(meanwhile.enter_context(tempfile.TemporaryDirectory(prefix="trilab-")), "text")
            with file.open("wb") as spool:
                spool.writelines(_pieces(path, key))
            status = file.stat()
        except OSError as error:
            raise BadInput(
                f"{as_given(key, shown(path))} cannot be kept while it is read: {error.strerror}. Set TMPDIR to a "
                "folder that can be written to, on a disk with room for it."
            ) from error
        yield [Source(file, status.st_size, status.st_mtime_ns, key, name=shown(path))]


def _pieces(path: str, key: str) -> Iterator[bytes]:
    """What comes on standard input or through a pipe, to its end."""
    if path == STANDARD_INPUT and sys.stdin is None:
        given = as_given(key, STANDARD_INPUT)
        raise BadInput(f"{given} is the standard input, which is closed. Give a file, or text through a pipe.")
    try:
        with ExitStack() as until_its_end:
            stream = sys.stdin.buffer if path == STANDARD_INPUT else until_its_end.enter_context(Path(path).open("rb"))
            yield from iter(lambda: stream.read(PIECE), b"")
    except OSError as error:
        raise unreadable(key, path, error) from error


def _is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)  # noqa: PTH116 - Path knows some errors and raises others
    except (OSError, ValueError):  # whoever looks for the file will say what is wrong
        return False


def _holds(path: Path, sha256: str) -> bool:
    """Whether what was kept is still what its name says."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == sha256
    except FileNotFoundError:
        return False


def _remove_what_was_left(folder: Path) -> None:
    for partial in folder.glob(f".stdin.*{PARTIAL}"):
        with suppress(OSError), partial.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # by one that reads, this is refused
            if time.time() - partial.stat().st_mtime > IN_USE:
                partial.unlink()

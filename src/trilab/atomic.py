"""Files that are whole or not there, whenever the process that writes them is stopped."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

PARTIAL = ".partial"


def opened(path: Path) -> IO[bytes]:
    """A file opened to be read that is sure to be one: a pipe in its place would be waited for without end.

    Raises:
        OSError: there is none, or it is something else.
    """
    if path.exists() and not path.is_file() and not path.is_dir():  # of a folder the system itself says what it is
        raise OSError(errno.EINVAL, "not a file", str(path))
    return path.open("rb")


def read_whole(path: Path) -> bytes:
    """All that is in a file. Errors as in `opened`."""
    with opened(path) as file:
        return file.read()


@contextmanager
def replacing(target: Path, *, previous: Path | None = None) -> Iterator[IO[bytes]]:
    """A file to write to that takes the target's name once it is complete and on the disk, or not at all.

    It is written in the target's own folder: a rename from another file system would be a copy, which can be cut.

    Args:
        target: the file to replace or to make.
        previous: what the target was until then is kept under this name, in the same folder.
    """
    partial: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=PARTIAL)
        partial = Path(name)
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(0o666 & ~_umask())  # mkstemp's own mode would hide it from everybody else
        if previous is not None and target.exists():
            target.replace(previous)
        partial.replace(target)
        _sync(target.parent)
    except BaseException as error:
        if partial is not None:
            partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(target)  # a write knows no name, and the partial's tells nobody anything
        raise


def clear(folder: Path) -> None:
    """Remove what processes that were killed while they wrote have left below a folder that nobody writes to now."""
    for partial in folder.rglob(f".*{PARTIAL}"):
        partial.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Have a rename on the disk, where the system can do that for folders."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

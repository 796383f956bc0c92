"""Files that are whole or not there, whenever the process that writes them is stopped."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replacing(target: Path) -> Iterator[IO[bytes]]:
    """A file to write to that takes the target's name once it is complete and on the disk, or not at all.

    It is written in the target's own folder: a rename from another file system would be a copy, which can be cut.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, partial = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(partial).chmod(0o666 & ~_umask())  # mkstemp's own mode would hide it from everybody else
        Path(partial).replace(target)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

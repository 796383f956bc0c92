"""Only one process trains a run."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trilab.errors import BadInput
from trilab.holder import HOLDER, read_holder, write_holder

LOCK = ".lock"
# Seconds for which processes that have lost the one that started them may go on: to finish a step and save it.
LEFT_BEHIND = 120.0


class Held(BadInput):
    """Another process trains the run at this moment."""


@contextmanager
def held(folder: Path, *, sweep: int | None = None) -> Iterator[int]:
    """Hold a run's folder, which is made if need be.

    Args:
        folder: the run's own.
        sweep: process that launched the sweep this run belongs to, if that one asks its runs to stop.
    Returns:
        The lock's file descriptor. The lock lasts until every process that was given it has closed it: so processes
        that go on without the one that started them keep others out.
    Raises:
        Held: another process holds it.
        BadInput: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _locked(folder)
    except OSError as error:
        raise BadInput(f"{folder} cannot be written to: {error.strerror}.") from error
    try:
        with suppress(OSError):  # a full disk: nobody is told who, but the lock holds
            write_holder(folder, sweep)
        yield lock
    finally:
        (folder / HOLDER).unlink(missing_ok=True)
        (folder / LOCK).unlink(missing_ok=True)  # while it is held; who has opened it meanwhile sees that it is gone
        os.close(lock)


def _locked(folder: Path) -> int:
    waits_until = time.monotonic() + LEFT_BEHIND
    while True:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still_there(folder / LOCK, lock):
                return lock
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                os.close(lock)
                raise
            who = read_holder(folder)
            # one that was killed may leave processes that are about to stop by themselves
            if who is None or not who.is_gone or time.monotonic() > waits_until:
                os.close(lock)
                raise Held(
                    f"{folder} is being trained by {who or 'another process'}. Wait for it, or change the seed or a "
                    "knob."
                ) from None
        os.close(lock)
        time.sleep(0.1)


def _is_still_there(path: Path, lock: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(lock))
    except FileNotFoundError:
        return False

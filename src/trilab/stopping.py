"""Being asked to stop: a signal becomes a wish, which a training grants at the end of a step, once that is saved."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Stopped(BaseException):
    """Work has ended because somebody asked for it; what was done is saved.

    Not an Exception: it is no failure, and whoever handles those must let it pass.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signal = signal.Signals(signum)

    @property
    def exit_code(self) -> int:
        """What shells make of a process that the signal has ended."""
        return 128 + self.signal


_wish: signal.Signals | None = None
_patience = 0
_follows = False
_before: dict[signal.Signals, Any] = {}


def wished() -> signal.Signals | None:
    """The signal that asked for an end, if one has come."""
    return _wish


def wish(signum: int) -> None:
    """Ask for an end as the signal would, for those who hear of it in another way."""
    global _wish
    _wish = _wish or signal.Signals(signum)


def stop_if_wished() -> None:
    """Raise Stopped if somebody has asked for an end."""
    if _wish is not None:
        raise Stopped(_wish)


def signals(environ: Mapping[str, str]) -> tuple[signal.Signals, ...]:
    """Those that ask for an end: under SLURM also the two with which clusters announce one."""
    asking = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return (*asking, signal.SIGUSR1, signal.SIGUSR2) if "SLURM_JOB_ID" in environ else asking


def listen() -> None:
    """Take these signals as wishes from now on, whoever has taken them before; only the main thread can."""
    if threading.current_thread() is not threading.main_thread():
        return
    for signum in signals(os.environ):
        handler = signal.getsignal(signum)
        if handler is not _heard and not (signum == signal.SIGHUP and handler == signal.SIG_IGN):  # nohup stays nohup
            _before.setdefault(signum, handler)
            signal.signal(signum, _heard)


def listen_again() -> None:
    """Take the signals back from whoever has taken them since `listen`; nothing where nobody listens."""
    if _before:
        listen()


def follow(parent: int) -> None:
    """Stop, as for SIGTERM, when the parent process (of this number) has ended: nobody waits for what is done here."""
    global _follows
    if _follows:
        return
    _follows = True

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def unlisten() -> None:
    """Give the signals back to those who had them, and forget the wish."""
    global _wish, _patience
    _patience = 0
    while _before:
        signum, handler = _before.popitem()
        signal.signal(signum, signal.SIG_DFL if handler is None else handler)
    _wish = None


@contextmanager
def patiently() -> Iterator[None]:
    """In here a wish waits until somebody looks at `wished`; elsewhere it raises Stopped where it comes.

    Ctrl-C once more does not wait.
    """
    global _patience
    _patience += 1
    try:
        yield
    finally:
        _patience -= 1


def be_patient() -> None:
    """As `patiently`, until `unlisten`."""
    global _patience
    _patience += 1


def _heard(signum: int, frame: FrameType | None) -> None:
    if signum == signal.SIGINT and _wish is not None:
        raise KeyboardInterrupt
    first = _wish is None  # it may come from several sides, and ends the work once
    wish(signum)
    if first and not _patience:
        stop_if_wished()

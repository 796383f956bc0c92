"""Trainings in processes of their own, which this one starts, watches, asks to stop, and outlives.

Each is a fork of a server process that has imported what trains and done nothing else: so torch is imported once, no
run leaves anything in the memory of the next, and a run that dies takes nobody along.
"""

import contextlib
import faulthandler
import math
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

from trilab import stopping
from trilab.outcome import Outcome, lost, outcome_of

_CONTEXT = multiprocessing.get_context("forkserver")
# Seconds in which the others may end by themselves when one has ended in this way; then they are killed.
LAST_WORDS = {"finished": 600.0, "stopped": 60.0, "refused": 5.0, "failed": 5.0, "interrupted": 5.0}

Train = Callable[[], dict[str, Any]]


def train_in_processes(
    train: Train, *, places: Sequence[Mapping[str, str]], output: Path, shown: bool, lock: int | None
) -> Outcome:
    """Train one run in as many processes as there are places, and wait for all of them.

    A stop that is wished for here is passed on. If one process ends badly, all end.

    Args:
        train: what each does; importable, with arguments that can be sent.
        places: each process's environment variables besides this one's (RANK and the like).
        output: the file that takes what they print.
        shown: the first prints on this terminal instead.
        lock: descriptor of the run's lock, which they hold too.
    Returns:
        The first one's outcome, or where one of them ended badly, the outcome that says most about why.
    """
    _start_server()
    with stopping.patiently(), contextlib.ExitStack() as ending:
        processes: list[_Process] = []
        try:
            for number, place in enumerate(places):
                processes.append(_Process(train, place, output, shown=shown and number == 0, lock=lock))
                ending.callback(processes[-1].kill)
        except (EOFError, OSError) as error:
            return lost("the server that starts the processes of runs has ended", error)
        return _worst(_awaited(processes))


def _start_server() -> None:
    _CONTEXT.set_forkserver_preload(["trilab.preloaded"])
    if multiprocessing.get_start_method(allow_none=True) not in (None, *multiprocessing.get_all_start_methods()):
        multiprocessing.set_start_method("forkserver", force=True)  # joblib's name for its own means nothing there
    ignored: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
                ignored[name] = signal.signal(name, signal.SIG_IGN)  # what comes to a whole job must not end it
        forkserver.ensure_running()
    finally:
        for signum, handler in ignored.items():
            signal.signal(signum, signal.SIG_DFL if handler is None else handler)


class _Process:
    """One of them, as seen from here."""

    def __init__(self, train: Train, place: Mapping[str, str], output: Path, *, shown: bool, lock: int | None) -> None:
        self.outcome: Outcome | None = None
        self.told = False
        self._results, theirs = _CONTEXT.Pipe(duplex=False)
        orders, self._orders = _CONTEXT.Pipe(duplex=False)
        # not a daemon: those may not have children, and W&B works in one; the pipe's end stops it as surely
        self._process: ForkServerProcess = _CONTEXT.Process(
            target=_work,
            args=(
                *(train, dict(os.environ) | dict(place), output, shown, orders, theirs),
                None if lock is None else _Descriptor(lock),
            ),
        )
        self._process.start()
        orders.close()
        theirs.close()

    @property
    def waitable(self) -> Connection:
        return self._results

    def read(self) -> None:
        """Take its outcome, or what its silence means."""
        try:
            self.outcome = self._results.recv()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode or 0
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            self.outcome = lost(f"its process {how}" + (" (out of memory?)" if code == -signal.SIGKILL else ""))

    def stop(self, signum: int) -> None:
        if not self.told:
            self.told = True
            with contextlib.suppress(OSError):
                self._orders.send(int(signum))

    def kill(self) -> None:
        if self.outcome is None and self._process.pid is not None:
            self._process.kill()
        self._process.join()
        self._results.close()
        self._orders.close()


class _Descriptor:
    """A file descriptor that arrives in the other process as one of its own."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Callable[[Any], int], tuple[Any]]:
        return _arrived, (DupFd(self.number),)


def _arrived(descriptor: Any) -> int:
    return int(descriptor.detach())


def _awaited(processes: Sequence[_Process]) -> list[Outcome]:
    """Every process's outcome; those that stay silent after another has ended badly are left out."""
    deadline = math.inf
    while True:
        waiting = [process for process in processes if process.outcome is None]
        if not waiting or time.monotonic() > deadline:
            return [process.outcome for process in processes if process.outcome is not None]
        if signum := stopping.wished():
            for process in waiting:
                process.stop(signum)
        ready = wait([process.waitable for process in waiting], timeout=0.2)
        for process in waiting:
            if process.waitable in ready:
                process.read()
                assert process.outcome is not None
                deadline = min(deadline, time.monotonic() + LAST_WORDS[process.outcome.status])


def _worst(outcomes: Sequence[Outcome]) -> Outcome:
    # where one process fails the others only lose their connection to it: the failure is the reason
    order = ["refused", "failed", "interrupted", "stopped", "finished"]
    if stopping.wished():  # who asks for an end hears that it came, whatever some met on the way
        order.insert(2, order.pop(3))
    worst = min(outcomes, key=lambda outcome: (order.index(outcome.status), outcome.follows))
    if worst.status == "stopped" and not stopping.wished():  # somebody has told the process alone
        return lost(f"its process was told to stop by {signal.Signals(worst.signal).name}")
    return worst


def _work(
    train: Train,
    environment: Mapping[str, str],
    output: Path,
    shown: bool,
    orders: Connection,
    results: Connection,
    _lock: int | None,  # open here: the lock is held as long as this process lives
) -> None:
    """What such a process does."""
    os.setsid()  # signals to the terminal's group reach the one that started us, who tells us
    os.environ.clear()
    os.environ.update(environment)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for stream in (2,) if shown else (1, 2):
        os.dup2(file, stream)
    os.close(file)
    faulthandler.enable()
    stopping.listen()
    threading.Thread(target=_obey, args=(orders,), daemon=True).start()
    outcome = outcome_of(train)
    with stopping.patiently(), contextlib.suppress(OSError):  # nobody is there to hear it
        results.send(outcome)


def _obey(orders: Connection) -> None:
    try:
        signum = orders.recv()
    except (EOFError, OSError):  # who started us is gone
        signum = signal.SIGTERM
    os.kill(os.getpid(), signum)  # to be heard in the main thread

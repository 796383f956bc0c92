"""How a training ended, in words that can be sent between processes and written down."""

import errno
import signal
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from trilab.errors import BadInput, TrainingError
from trilab.stopping import Stopped, wished

# What a machine does to a run, not a run to itself: tried again later, the same step can go well.
FAULTS_OF_THE_MACHINE = frozenset(
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EFBIG", "EIO", "EROFS", "ESTALE", "ETIMEDOUT", "ECONNRESET", "EHOSTUNREACH")
)
# Gloo has no class of its own for a connection that is lost: its source's path, or this.
WORDS_OF_GLOO = ("/gloo/", "Application timeout caused pair closure")
# Nor has PyTorch's allocator on CPUs; the last: more bytes than can be counted.
WORDS_OF_ALLOCATION = ("can't allocate memory", "not enough memory", "Storage size calculation overflowed")

Status = Literal["finished", "refused", "failed", "interrupted", "stopped"]


@dataclass(frozen=True)
class Outcome:
    """What a training came to.

    finished: `measured` says to what. refused: what it was given cannot work. failed: an error of its own; trying again
    would fail again. interrupted: something outside ended it; it can go on from its last checkpoint. stopped: it was
    asked to by `signal`, and is saved.
    """

    status: Status
    measured: dict[str, Any] = field(default_factory=dict)
    error: dict[str, str] | None = None
    """type, message (one line), traceback."""
    said: str = ""
    """The error's own words, all of them."""
    signal: int = signal.SIGTERM
    explained: bool = False
    """It failed for a reason that `said` gives: its traceback says nothing more."""
    follows: bool = False
    """It was interrupted because another process of the run ended."""


def outcome_of(train: Callable[[], dict[str, Any]]) -> Outcome:
    """Run a training and tell how it ended; only Ctrl-C pressed twice comes through.

    What a user's class raises can be anything.
    """
    try:
        return Outcome("finished", measured=train())
    except Stopped as stopped:
        return Outcome("stopped", signal=stopped.signal)
    except BadInput as error:
        return Outcome("refused", error=described(error), said=str(error))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and wished():
            raise
        if _lost_another(error):
            why = f"the connection to another process broke ({_first_line(error)})"
            return replace(lost(why, error), follows=True)
        if fault := _fault_of_the_machine(error):
            return lost(f"{fault.filename or 'a file'}: {fault.strerror}", error)
        if _out_of_memory(error):
            said = (
                f"Out of memory: {_first_line(error).rstrip('.')}. Lower data.batch_size, or deal it to micro-batches "
                "(trainer.accumulate), or make the model smaller (model.n_embd, model.n_layer, data.block_size)."
            )
            return Outcome("failed", error=described(error), said=said, explained=True)
        said, explained = f"{type(error).__name__}: {_words(error)}", isinstance(error, TrainingError)
        return Outcome("failed", error=described(error), said=said, explained=explained)


def described(error: BaseException) -> dict[str, str]:
    """An error as plain text."""
    return {
        "type": type(error).__name__,
        "message": _first_line(error),
        "traceback": "".join(traceback.format_exception(error)),
    }


def lost(why: str, error: BaseException | None = None) -> Outcome:
    """The outcome of a training that something outside of it has ended."""
    found = described(error) if error else {"type": "Lost", "traceback": ""}
    said = f"Interrupted: {why}. The same command goes on from the last checkpoint."
    return Outcome("interrupted", error={**found, "message": why}, said=said)


def _first_line(error: BaseException) -> str:
    return _words(error).strip().partition("\n")[0]


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # its own words cannot be made
        return "(without words)"


def _lost_another(error: BaseException) -> bool:
    return any(
        type(link).__name__ in ("DistBackendError", "DistNetworkError", "DistStoreError")
        or (isinstance(link, RuntimeError) and any(words in str(link) for words in WORDS_OF_GLOO))
        for link in _chain(error)
    )


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)  # which torch.OutOfMemoryError is, too
        and (type(error).__name__ == "OutOfMemoryError" or any(words in str(error) for words in WORDS_OF_ALLOCATION))
    )


def _fault_of_the_machine(error: BaseException) -> OSError | None:
    faults = (link for link in _chain(error) if isinstance(link, OSError) and link.errno in FAULTS_OF_THE_MACHINE)
    return next(faults, None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__

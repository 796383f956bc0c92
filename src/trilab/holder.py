"""Who trains a run at this moment, as .held_by in its folder says, and whether that still holds."""

import json
import os
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path

QUIET_SECONDS = 60.0
"""A process on another host may be silent for so long and is still taken to live."""

HOLDER = ".held_by"

_CLOCK_SLACK = 60.0  # seconds: a shared file system stamps files by its own clock


@dataclass(frozen=True)
class Holder:
    """The process that attends a run."""

    pid: int | None
    """None where the file does not tell."""
    host: str
    sweep: int | None
    """The process that launched the sweep it is part of, on the same host; None for a run by itself."""
    since: float
    """When .held_by was written, seconds since the epoch."""

    @property
    def is_here(self) -> bool:
        """Whether it is a process of this machine."""
        return self.pid is not None and self.host == platform.node()

    @property
    def is_gone(self) -> bool:
        """Whether it is a process of this machine that is not there any more."""
        return self.pid is not None and self.is_here and not lives(self.pid, self.since)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" if self.pid is not None else "another process"

    def holds(self, *, here: str, last_write: float, pace: float | None, now: float) -> bool:
        """Whether the run is being trained.

        On this host the process is looked for. On another host the files have to tell: something was written within
        the last minute, or within five times what usually lies between two rows.

        Args:
            here: this host's name.
            last_write: of the run's metrics, seconds since the epoch.
            pace: usual seconds between two rows; None where not known.
            now: seconds since the epoch.
        """
        if self.pid is not None and self.host == here:
            return lives(self.pid, self.since)
        return now - max(self.since, last_write) <= max(QUIET_SECONDS, 5 * (pace or 0.0))


def read_holder(folder: Path) -> Holder | None:
    """The holder of the run in this folder, or None. Never raises: a file that says nothing has a holder unknown."""
    path = folder / HOLDER
    try:
        since = path.stat().st_mtime
        said = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        return None
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        said = {}
    return Holder(_pid(said.get("pid")), str(said.get("host", "")), _pid(said.get("sweep")), since)


def write_holder(folder: Path, sweep: int | None) -> None:
    """Say that this process trains the run in this folder.

    Args:
        sweep: the process that launched the sweep it is part of, if it is one of this machine.
    """
    said = {"pid": os.getpid(), "host": platform.node(), "sweep": sweep}
    (folder / HOLDER).write_text(json.dumps(said), encoding="utf-8")


def lives(pid: int, since: float) -> bool:
    """Whether the process of this number on this host is alive and is the one that had the number at `since`."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # it lives, and is another user's
    if sys.platform != "linux":
        return True
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        state, ticks = fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return True
    if state == "Z":  # dead; its parent has not looked yet
        return False
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    # numbers are given again: one that began after the file was written is somebody else
    return time.time() - age <= since + _CLOCK_SLACK


def _pid(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

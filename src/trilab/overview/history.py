"""metrics.jsonl as it grows: every look takes up only what was appended since the last."""

import json
import os
import statistics
from collections import deque
from pathlib import Path
from typing import IO

from trilab.atomic import opened
from trilab.report.runs import number

_LONGEST = 1 << 20  # bytes: no row is longer; what is goes past in pieces that are no rows
_TAIL = 64  # bytes before the place that was read up to, to see whether it is the same file still
_SPEEDS = 9  # latest measurements whose median is the speed


class History:
    """What a run's metrics.jsonl has said so far.

    A row that is still being written waits for the next look; lines that are no rows are passed over. A file that was
    cut or replaced, as a resume does, is read anew.

    Args:
        path: the file; need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self.step = 0
        """Optimizer steps of the latest row."""
        self.val_losses: dict[int, float] = {}
        """Step → val loss, nats per character."""
        self.written = 0.0
        """When the file was last written to, seconds since the epoch."""
        self._speeds: deque[float] = deque(maxlen=_SPEEDS)
        self._between = 0  # steps between the latest two rows that have a speed
        self._last_with_speed = 0
        self._offset = 0
        self._tail = b""

    @property
    def chars_per_second(self) -> float | None:
        """Median of the latest measurements; None before the first."""
        return statistics.median(self._speeds) if self._speeds else None

    @property
    def steps_between_rows(self) -> int:
        """Between the latest two rows that have a speed; 0 before the first."""
        return self._between

    def look(self) -> None:
        """Take up what is new. Never raises: a file that cannot be read says nothing new."""
        try:
            with opened(self.path) as file:
                self._take_up(file)
        except FileNotFoundError:
            self._forget()
        except OSError:
            pass

    def _take_up(self, file: IO[bytes]) -> None:
        status = os.fstat(file.fileno())
        if status.st_size == self._offset and status.st_mtime == self.written:
            return
        file.seek(self._offset - len(self._tail))
        if file.read(len(self._tail)) != self._tail:  # another file by now
            self._forget()
            file.seek(0)
        self.written = status.st_mtime
        while (line := file.readline(_LONGEST)) and (line.endswith(b"\n") or len(line) == _LONGEST):
            self._offset += len(line)
            self._tail = (self._tail + line)[-_TAIL:]
            self._row(line)

    def _row(self, line: bytes) -> None:
        try:
            row = json.loads(line.decode("utf-8"))  # of bytes it would guess the encoding
        except (ValueError, RecursionError):
            return
        if not isinstance(row, dict):
            return
        step = row.get("step")
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            return
        self.step = step
        if (loss := number(row.get("val/loss"))) is not None:
            self.val_losses[step] = loss
        if (speed := number(row.get("chars_per_second"))) is not None and speed > 0:
            self._speeds.append(speed)
            self._between, self._last_with_speed = max(0, step - self._last_with_speed), step

"""train.py as users run it, in a process of its own, watched from outside: at what moment was which step done?"""

import collections
import json
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from trilab.errors import BadInput

GRAIN = 0.004  # seconds that a file's time of writing is told to
LOOK = 0.02  # seconds between two looks at the file: more of them would take from what a training on all cores has
TICK = 1 / os.sysconf("SC_CLK_TCK")  # seconds of processor time that the system tells apart
TRAIN = (sys.executable, "-m", "trilab.cli", "train")


class Training:
    """A training that runs. Its lines of metrics.jsonl are read as they are written.

    Args:
        process: the one that trains.
        outputs: its paths.outputs, with no other run in it.
        began: time.perf_counter() just before it was started.
        said: what it printed last.
    """

    def __init__(
        self, process: subprocess.Popen[bytes], outputs: Path, began: float, said: collections.deque[bytes]
    ) -> None:
        self.process = process
        self.outputs = outputs
        self.began = began
        self._said = said
        self._file: IO[str] | None = None
        self._half = ""
        self._unread: collections.deque[tuple[float, dict[str, Any]]] = collections.deque()

    def moment(self, key: str, step: int) -> tuple[float, float]:
        """Wait for the next line that has this key and tells of this step or a later one.

        Returns:
            time.perf_counter() when it was written, to GRAIN or, of several at once, to LOOK; what it says of the key.
        Raises:
            BadInput: the training ended before it wrote one.
        """
        while True:
            ended = self.process.poll() is not None  # asked first: what it wrote before its end is still read
            self._read()
            while self._unread:
                when, line = self._unread.popleft()
                if key in line and line["step"] >= step:
                    return when, line[key]
            if ended:
                printed = b"".join(self._said).decode(errors="replace").strip().splitlines()[-3:]
                raise BadInput(f"train.py ended before step {step}: {' '.join(map(str.strip, printed))}")
            time.sleep(LOOK)

    def processor_seconds(self) -> float | None:
        """That it has used so far; None where the system does not tell."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return None
        user, system = fields.rpartition(")")[2].split()[11:13]  # after the name, which may hold anything
        return (int(user) + int(system)) * TICK

    def close(self) -> None:
        """Read no more."""
        if self._file is not None:
            self._file.close()

    def _read(self) -> None:
        if self._file is None:
            for path in self.outputs.glob("*/*/metrics.jsonl"):
                self._file = path.open(encoding="utf-8")
        if self._file is not None:
            new = self._file.read()
            ago = max(0.0, time.time() - os.fstat(self._file.fileno()).st_mtime)
            *whole, self._half = (self._half + new).split("\n")
            self._unread += [(time.perf_counter() - ago, json.loads(line)) for line in whole]


@contextmanager
def training(keys: Sequence[str], outputs: Path) -> Iterator[Training]:
    """Start train.py with these keys, on a terminal, so that it draws its progress bar; kill it at the end.

    Args:
        outputs: an empty folder for what it writes.
    """
    ours, its = pty.openpty()
    said: collections.deque[bytes] = collections.deque(maxlen=64)
    command = [*TRAIN, *keys, f"paths.outputs={outputs}"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"}
    began = time.perf_counter()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=its, stderr=its, env=environment, start_new_session=True
    )
    os.close(its)
    reader = threading.Thread(target=_read, args=(ours, said), daemon=True)
    reader.start()
    run = Training(process, outputs, began, said)
    try:
        yield run
    finally:
        run.close()
        process.kill()
        process.wait()
        reader.join(timeout=5)
        os.close(ours)


def _read(terminal: int, said: collections.deque[bytes]) -> None:
    with suppress(OSError):  # what Linux answers when nobody is at the other end any more
        while content := os.read(terminal, 65536):
            said.append(content)

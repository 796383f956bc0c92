"""Where metrics go: metrics.jsonl in every run's folder, and whatever else of a run a logger can show."""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lightning.pytorch.loggers import Logger

from trilab.atomic import replacing

if TYPE_CHECKING:
    from PIL import Image


class MetricsFile(Logger):
    """metrics.jsonl: one JSON object a line, {"step": optimizer steps done, name: value, …}; only ever appended to.

    Args:
        path: the file; lines past `step` are cut off first, so that a resumed run repeats none.
        step: optimizer steps done so far.
    """

    def __init__(self, path: Path, step: int) -> None:
        super().__init__()
        if path.exists():
            kept = [line for line in _rows(path) if line["step"] <= step]
            with replacing(path) as file:
                file.write("".join(json.dumps(line) + "\n" for line in kept).encode())
        self._file = path.open("ab", buffering=0)

    @property
    def name(self) -> str:
        """Of the logger."""
        return "metrics.jsonl"

    @property
    def version(self) -> str:
        """None of its own: the folder is the run."""
        return ""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append one line, which others can read at once."""
        line = memoryview(json.dumps({"step": step, **metrics}).encode() + b"\n")
        with _naming(self._file.name):
            while line:  # a disk that becomes full takes a part first
                line = line[self._file.write(line) :]

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """They are in config.yaml."""

    def save(self) -> None:
        """Have every line on the disk."""
        with _naming(self._file.name):
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """No more lines."""
        self._file.close()


@contextmanager
def _naming(path: str | Path) -> Iterator[None]:
    """What the system says of an open file does not say which."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def _rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break  # a killed process may leave half a line, always the last
    return rows


@dataclass(frozen=True)
class Line:
    """A curve over something else than steps, such as the loss by position.

    Args:
        x, y: what the axes are, with units.
        points: (x, y) from left to right.
    """

    x: str
    y: str
    points: Sequence[tuple[float, float]]


class Shows(ABC):
    """A logger that can show more than numbers by step."""

    @abstractmethod
    def show_texts(self, name: str, texts: Sequence[tuple[int, str]], step: int) -> None:
        """All (step, text) so far, the newest last."""

    @abstractmethod
    def show_picture(self, name: str, picture: "Image.Image", step: int) -> None:
        """One picture of those that the steps make a film of."""

    @abstractmethod
    def show_line(self, name: str, line: Line, step: int) -> None:
        """A curve, drawn once."""

    @abstractmethod
    def log_summary(self, summary: Mapping[str, Any]) -> None:
        """What the run came to: one value a name, which may be nested."""


def log_texts(loggers: Iterable[Logger], name: str, texts: Sequence[tuple[int, str]], step: int) -> None:
    """Texts such as samples, all (step, text) so far, to the loggers that can show them."""
    for logger in loggers:
        if isinstance(logger, Shows):
            logger.show_texts(name, texts, step)


def log_picture(loggers: Iterable[Logger], name: str, picture: "Image.Image", step: int) -> None:
    """A picture, such as a layer's table of weights, to the loggers that can show one."""
    for logger in loggers:
        if isinstance(logger, Shows):
            logger.show_picture(name, picture, step)


def log_line(loggers: Iterable[Logger], name: str, line: Line, step: int) -> None:
    """A curve over something else than steps to the loggers that can draw one."""
    for logger in loggers:
        if isinstance(logger, Shows):
            logger.show_line(name, line, step)


def log_summary(loggers: Iterable[Logger], summary: Mapping[str, Any]) -> None:
    """What a run came to, to the loggers that keep one value a run."""
    for logger in loggers:
        if isinstance(logger, Shows):
            logger.log_summary(summary)

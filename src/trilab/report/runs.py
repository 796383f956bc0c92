"""The folders of an experiment → its runs, whatever state they were left in."""

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import yaml

from trilab.atomic import opened, read_whole
from trilab.errors import BadInput

Status = Literal["finished", "failed", "unfinished", "unreadable"]
STATUSES: tuple[Status, ...] = ("finished", "failed", "unfinished", "unreadable")

_YamlLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_HALF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
_SEED_AND_HASH = re.compile(r"-seed-?\d+-[0-9a-f]{8}$")  # what a folder's name has after the row's, see identity.py
_TAIL = 65536  # bytes: many lines of metrics.jsonl, so that the last whole one is among them


@dataclass(frozen=True)
class Run:
    """One run's folder as read. Only a finished run has results: a seed and a finite final val loss."""

    folder: Path
    config: Mapping[str, Any]
    """config.yaml; empty where unreadable."""
    summary: Mapping[str, Any]
    """summary.json; empty where there is none yet, or unreadable."""
    status: Status
    reason: str = ""
    """One line: why it is not finished."""

    @property
    def label(self) -> str:
        """The row it belongs to: the config's label, or else the strategy's name; of a run without, its folder's."""
        named = self.summary.get("label") or self.summary.get("agg") or self.config.get("label")
        return one_line(str(named or _SEED_AND_HASH.sub("", self.folder.name)))

    @property
    def seed(self) -> int:
        """The seed, of a finished run."""
        return int(self.config["seed"])

    @property
    def val_loss(self) -> float:
        """Final val loss of a finished run, nats per character."""
        return float(self.summary["val_loss"])

    @property
    def command(self) -> str | None:
        """What trains it again, in one line; None where that was not recorded."""
        recorded = self.summary.get("command")
        return one_line(recorded) if isinstance(recorded, str) else None

    @cached_property
    def curve(self) -> dict[int, float]:
        """Step → val loss, as far as metrics.jsonl tells; read when it is first asked for."""
        return _curve(self.folder / "metrics.jsonl")

    @cached_property
    def sample(self) -> str | None:
        """What the trained model wrote, control characters and all; None where there is none."""
        try:
            return read_whole(self.folder / "sample.txt").decode("utf-8", "replace")
        except OSError:
            return None


def read_runs(folder: Path) -> list[Run]:
    """Every run of an experiment, in the order of the folders' names; what is no run is among them, as unreadable.

    Args:
        folder: outputs/<experiment_name>.
    Raises:
        BadInput: the folder does not exist, cannot be listed, or holds no run; the message names those that do.
    """
    runs = [read_run(path) for path in subfolders(folder)]
    if not any(holds_a_run(run.folder) for run in runs):
        raise no_runs(folder)
    return runs


def subfolders(folder: Path) -> list[Path]:
    """What can be runs of an experiment, in the order of their names.

    Raises:
        BadInput: the folder does not exist or cannot be listed; the message names those that do.
    """
    try:
        # Dot-folders belong to launchers and editors.
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except FileNotFoundError:
        raise BadInput(f"The folder {folder} does not exist. {_experiments_beside(folder)}") from None
    except OSError as error:
        raise BadInput(
            f"The folder {folder} cannot be listed: {error.strerror}. {_experiments_beside(folder)}"
        ) from error


def no_runs(folder: Path) -> BadInput:
    """What to say of a folder that is no experiment, since it holds no run."""
    if holds_a_run(folder):
        return BadInput(f"{folder} is a single run. Name its whole experiment: {folder.parent}.")
    inside = _experiments_in(folder)
    if inside:
        return BadInput(f"{folder} holds experiments, not runs: {inside}. Name one of them.")
    return BadInput(f"The folder {folder} has no runs (folders with a config.yaml). {_experiments_beside(folder)}")


def read_run(folder: Path) -> Run:
    """One run from its config.yaml, summary.json and, while there is no summary, metrics.jsonl. Never raises."""
    if not holds_a_run(folder):
        return Run(folder, {}, {}, "unreadable", "not a run: it has none of a run's files")
    try:
        summary = _read_mapping(folder / "summary.json")
        config = _read_mapping(folder / "config.yaml")
    except ValueError as error:
        return Run(folder, {}, {}, "unreadable", one_line(str(error)))
    if summary is None:
        return Run(folder, config or {}, {}, "unfinished", _progress(folder / "metrics.jsonl", config or {}))
    if summary.get("status") == "interrupted":  # lost to the outside: it goes on from its checkpoint
        lost = summary.get("error")
        reason = _error_line(lost) if lost else _progress(folder / "metrics.jsonl", config or {})
        return Run(folder, config or {}, summary, "unfinished", reason)
    if summary.get("status") == "failed":
        return Run(folder, config or {}, summary, "failed", _error_line(summary.get("error")))
    if config is None:
        return Run(folder, {}, summary, "unreadable", "it has no config.yaml")
    fault = _fault(config, summary)
    return Run(folder, config, summary, "unreadable" if fault else "finished", fault)


def number(value: object) -> float | None:
    """A finite number as a float; None for anything else that a file may hold in its place."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer beyond the range of floats
        return None


def one_line(text: str) -> str:
    """Text from a file, fit for one line of a terminal or a picture: no line ends, no control characters."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split()))


def holds_a_run(folder: Path) -> bool:
    """Whether a run has left anything in this folder."""
    try:
        return any((folder / name).is_file() for name in ("config.yaml", "summary.json", "metrics.jsonl", "log"))
    except PermissionError:
        return True  # reading it then says so


def _experiments_beside(folder: Path) -> str:
    beside = _experiments_in(folder.parent)
    if not beside:
        return f"There is no experiment in {folder.parent} yet: train one first."
    return f"Experiments in {folder.parent}: {beside}."


def _experiments_in(outputs: Path) -> str:
    try:
        found = sorted(
            path.name
            for path in outputs.iterdir()
            if path.is_dir() and any(holds_a_run(run) for run in path.iterdir() if run.is_dir())
        )
    except OSError:
        return ""
    return one_line(", ".join(found))


def _read_mapping(path: Path) -> dict[str, Any] | None:
    """A JSON or YAML file as plain JSON values; None if there is none; ValueError, with its name, if it is broken."""
    try:
        text = read_whole(path).decode("utf-8")
        value = json.loads(text) if path.suffix == ".json" else yaml.load(text, _loader_of(text))
        _refuse_multiplied(value, 20 * len(text) + 10_000)
        # YAML can hold what JSON cannot: dates, keys that are no strings, a mapping inside itself. A file's name may be
        # bytes that are no UTF-8, which no page can hold.
        value = json.loads(json.dumps(value, default=str, ensure_ascii=False).encode("utf-8", "replace"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"{path.name} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise ValueError(f"{path.name} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path.name} holds no keys")
    return value


def _loader_of(text: str) -> Any:
    """The one in C, unless bytes of a file's name stand there as halves of surrogate pairs, which it does not read."""
    return yaml.SafeLoader if _HALF_A_PAIR.search(text) else _YamlLoader


def _refuse_multiplied(value: object, most: int) -> None:
    """YAML may name one list many times, and so lists of lists: a few lines that would be a billion when written out.

    Raises:
        ValueError: more than `most` values.
    """
    seen, left = 0, [value]
    while left:
        seen += 1
        if seen > most:
            raise ValueError(f"its aliases make more than {most:,} values of it")
        match left.pop():
            case dict() as mapping:
                left.extend(mapping.values())
            case list() as values:
                left.extend(values)


def _fault(config: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    """Why a run that is not marked as failed cannot be compared; empty if it can."""
    if summary.get("status") != "finished":
        return one_line(f"summary.json has status {summary.get('status')!r}, neither finished nor failed")
    if number(summary.get("val_loss")) is None:
        return one_line(f"summary.json has val_loss {summary.get('val_loss')!r}, not a finite number")
    seed = config.get("seed")
    if not isinstance(seed, int) or isinstance(seed, bool):
        return one_line(f"config.yaml has seed {seed!r}, not a whole number")
    return ""


def _error_line(error: object) -> str:
    if not isinstance(error, dict) or not (error.get("type") or error.get("message")):
        return "no error was recorded"
    return one_line(": ".join(str(error[key]) for key in ("type", "message") if error.get(key)))


def _progress(metrics: Path, config: Mapping[str, Any]) -> str:
    step = _last_step(metrics)
    if step is None:
        return "no step logged yet"
    trainer = config.get("trainer")
    max_steps = trainer.get("max_steps") if isinstance(trainer, dict) else None
    return f"at step {step:,}" + (f" of {max_steps:,}" if isinstance(max_steps, int) else "")


def _curve(metrics: Path) -> dict[int, float]:
    try:
        lines = read_whole(metrics).splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        if b'"val/loss"' not in line:  # most lines are of training: not worth reading
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and isinstance(step := row.get("step"), int):
            loss = number(row.get("val/loss"))
            if loss is not None:
                found[step] = loss
    return dict(sorted(found.items()))


def _last_step(metrics: Path) -> int | None:
    """The step of the last whole line; a line that is being written, or was cut by a crash, does not count."""
    try:
        with opened(metrics) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and isinstance(row.get("step"), int):
            return int(row["step"])
    return None

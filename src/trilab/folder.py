"""One run's life in its folder: who trains it, what is written down, is it finished."""

import hashlib
import importlib.metadata
import importlib.util
import io
import json
import logging
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from trilab import __version__, stopping
from trilab.atomic import clear, replacing
from trilab.cluster import Place, place
from trilab.config import Config, save
from trilab.errors import BadInput
from trilab.imports import importing_lightning
from trilab.lock import held
from trilab.outcome import Outcome, lost, outcome_of
from trilab.processes import train_in_processes
from trilab.stopping import Stopped

log = logging.getLogger("trilab")
record = logging.getLogger("trilab.record")  # what goes into the run's log and to nobody else
record.propagate = False

AGAIN = ("force", "retry")  # keys that ask for what has been done already


def speak(stream: TextIO | None = None) -> None:
    """What we say of a run goes to the terminal as it is, with nothing before it.

    Args:
        stream: where it is written; None: standard output.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a character that it cannot show must not end a training
    handler = logging.StreamHandler(stream or sys.stdout)
    handler.setFormatter(logging.Formatter("%(message)s"))
    log.handlers = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False


class RunFailed(RuntimeError):
    """A training that ended with an error; the error itself stands in summary.json and in the log."""


def summary_of(folder: Path) -> dict[str, Any] | None:
    """What the run in this folder came to, or None while it has not ended."""
    try:
        content = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def is_finished(folder: Path) -> bool:
    """Whether the run in this folder has trained to its end."""
    summary = summary_of(folder)
    return summary is not None and summary.get("status") == "finished"


def is_given_up(folder: Path, config: Config) -> bool:
    """Whether the run has failed and would fail again: nothing has changed since, and nobody asks for another try."""
    before = summary_of(folder)
    return (
        before is not None
        and before.get("status") == "failed"
        and before.get("attempt") == _attempt(config, _code(config))
        and not (config.retry or config.force)
    )


def attend(
    config: Config,
    folder: Path,
    *,
    console: Console | None,
    alone: bool,
    sweep: int | None = None,
    command: str | None = None,
) -> dict[str, Any]:
    """See one run through: pass over it when it is finished, else train it and write down what came of it.

    Args:
        folder: the run's own.
        console: where progress is shown; None shows nothing.
        alone: not part of a sweep: bad input then leaves no trace, since there is no table to be a row of.
        sweep: the process that asks this one to stop if the sweep is to stop.
        command: what trains this run again, for whoever reads its summary.
    Returns:
        The content of summary.json.
    Raises:
        BadInput: what cannot be trained on, or another process trains it at this moment.
        RunFailed: the training failed, now or before; its traceback is written down.
        Stopped: somebody asked for an end; what was done is saved.
    """
    stopping.stop_if_wished()
    if config.force and config.ckpt:
        raise BadInput(f"force=true trains anew and ckpt={config.ckpt} goes on from there: give one of them.")
    here = place(config.trainer.num_nodes, config.trainer.devices, os.environ)
    if not here.leads:  # another process holds the folder, writes, and tells
        log.setLevel(logging.ERROR)
        done = _passed_over(config, folder)
        return done or _result(_trained(config, folder, here, console=None, alone=alone, lock=None), alone=alone)
    if done := _passed_over(config, folder):  # also where nothing can be written
        return done
    with held(folder, sweep=sweep) as lock:
        if done := _passed_over(config, folder):  # while this waited for the lock
            return done
        for name in ("summary.json", *(("checkpoints", "metrics.jsonl", "log", "console.log") if config.force else ())):
            _remove(folder / name)
        clear(folder)
        known = _named(config) | {"command": command}
        began = time.time()
        outcome = _trained(config, folder, here, console=console, alone=alone, lock=lock)
        with stopping.patiently():
            if outcome.status == "stopped" or (outcome.status == "refused" and alone):
                return _result(outcome, alone=alone)
            return _result(
                _written_down(outcome, {**known, "seconds": time.time() - began}, config, folder, alone=alone),
                alone=alone,
            )


def _passed_over(config: Config, folder: Path) -> dict[str, Any] | None:
    """The summary of a run that is finished and is to stay so.

    Raises:
        RunFailed: the run has failed before, and would again.
    """
    before = summary_of(folder)
    if before is None or config.force:
        return None
    if is_given_up(folder, config):
        error = before["error"]
        raise RunFailed(
            f"{folder.name} has failed before: {error['type']}: {error['message']} (see {folder / 'log'}). "
            "retry=true tries again; so does the same command when the code or another key has changed."
        )
    if before.get("status") != "finished":
        return None
    _not_trained_blindly(config, before)
    log.info("Finished already, nothing to do (force=true trains it anew).")
    if before.get("code") != _code(config):
        log.warning("It was trained by other code, or another version of it, than there is now.")
    return before


def _not_trained_blindly(config: Config, before: dict[str, Any]) -> None:
    """A run that was trained under a laxer check.causality is no result of a stricter one.

    Raises:
        BadInput: it sees the future.
    """
    check = before.get("check") or {}
    if config.check.causality == "error" and check.get("leak"):
        raise BadInput(
            f"{check['leak']} It was trained with check.causality={check.get('causality')} and is no result under "
            "check.causality=error."
        )
    if config.check.causality != "off" and check.get("causality") == "off":
        log.warning("It was trained with check.causality=off: whether it sees the future is not known.")


def _trained(
    config: Config, folder: Path, here: Place, *, console: Console | None, alone: bool, lock: int | None
) -> Outcome:
    """Train: in this process what is one process and alone, or what a launcher made one of several; else in others.

    A sweep's runs have a process each, so that one that is killed is one that has not finished, and no more.
    """
    devices, nodes = config.trainer.devices, config.trainer.num_nodes
    if here.rank is not None or (alone and devices * nodes == 1):
        if here.rank is not None:
            os.environ.update(here.variables(nodes, devices))
        return outcome_of(partial(_train, config, folder, console=console, alone=alone))
    output = folder / "console.log"
    outcome = train_in_processes(
        partial(_train_apart, config, folder, shown=console is not None, alone=alone),
        places=[here.variables(nodes, devices, number) for number in range(devices)],
        output=output,
        shown=console is not None,
        lock=lock,
    )
    with suppress(OSError):
        if not output.stat().st_size:
            output.unlink()
    return outcome


def _train_apart(config: Config, folder: Path, *, shown: bool, alone: bool) -> dict[str, Any]:
    """Train in a process that was started for it."""
    first = os.environ.get("RANK", "0") == "0"
    if alone and first:
        speak()
    return _train(config, folder, console=Console() if shown and first else None, alone=alone)


def _train(config: Config, folder: Path, *, console: Console | None, alone: bool) -> dict[str, Any]:
    with importing_lightning():  # only where something is trained
        from trilab.run import run

    with _logged_to(folder / "log" if os.environ.get("RANK", "0") == "0" else None):
        return run(config, folder, console=console, alone=alone)


def _result(outcome: Outcome, *, alone: bool) -> dict[str, Any]:
    """What a finished run was measured to be; what else became of it is raised."""
    if outcome.status == "finished":
        return outcome.measured
    if outcome.status == "stopped":
        raise Stopped(outcome.signal)
    if outcome.status == "refused" and alone:
        raise BadInput(outcome.said)
    raise RunFailed(outcome.said)


def _written_down(outcome: Outcome, known: dict[str, Any], config: Config, folder: Path, *, alone: bool) -> Outcome:
    """Write summary.json.

    Returns:
        The outcome, with all that was written as what was measured; another one if it could not be written.
    """
    status = "failed" if outcome.status == "refused" else outcome.status
    summary = {**known, "status": status, "error": outcome.error, **outcome.measured, **_provenance()}
    with _logged_to(folder / "log"):
        if outcome.error:
            # only where a run itself is at fault does the place in its code say more than the words
            words = outcome.error["traceback"] if outcome.status == "failed" else outcome.said
            shown = alone and status == "failed" and not outcome.explained
            (log if shown else record).error("%s %s:\n%s", folder, status, words)
        try:
            if not (folder / "config.yaml").exists():  # it ended before it could write down what it trains
                save(config, folder / "config.yaml")
            with replacing(folder / "summary.json") as file:
                file.write(json.dumps(summary, indent=2).encode())
        except OSError as error:
            unwritten = lost(f"{folder / 'summary.json'}: {error.strerror}", error)
            record.error("%s", unwritten.said)
            return outcome if outcome.error else unwritten
    return replace(outcome, measured=summary)


def _named(config: Config) -> dict[str, Any]:
    """What is known before the training; the code above all, which may be edited while it trains."""
    code = _code(config)
    return {
        "agg": config.strategy,
        "label": config.name,
        "seed": config.seed,
        "code": code,
        "package": _digest(_sources()),
        "attempt": _attempt(config, code),
    }


def _attempt(config: Config, code: str) -> str:
    """Hex digest of all that may decide whether a run fails, also of keys that cannot change a result."""
    given = {key: value for key, value in config.tree.items() if key not in ("experiment_name", "paths", *AGAIN)}
    return hashlib.sha256(f"{code} {json.dumps(given, sort_keys=True)}".encode()).hexdigest()


def _code(config: Config) -> str:
    """Hex digest of the sources that train: ours, and the files of strategies from elsewhere."""
    files = _sources()
    for section in config.agg:
        spec = importlib.util.find_spec(str(section["_target_"]).rpartition(".")[0])
        if spec and spec.origin and Path(spec.origin).is_file() and Path(spec.origin) not in files:
            files.append(Path(spec.origin))
    return _digest(files)


def _sources() -> list[Path]:
    return sorted(path for path in Path(__file__).parent.rglob("*.*") if path.suffix in (".py", ".c", ".h"))


def _digest(files: list[Path]) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class _Quiet(logging.FileHandler):
    """A file that is done without where it cannot be written: whoever else writes to that disk says so."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or none where the file cannot even be made."""
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Say nothing."""


@contextmanager
def _logged_to(path: Path | None) -> Iterator[None]:
    """What we and Lightning say, and every Python warning, also goes to the run's log."""
    if path is None:
        yield
        return
    handler = _Quiet(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    loggers = [log, record, logging.getLogger("lightning.pytorch"), logging.getLogger("py.warnings")]
    logging.captureWarnings(True)
    log.setLevel(logging.INFO)
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for logger in loggers:
            logger.removeHandler(handler)
        handler.close()


def _provenance() -> dict[str, Any]:
    """Versions, git revision and hardware: what else could explain a difference."""
    packages = ("torch", "lightning", "hydra-core", "wandb", "torchmetrics", "numpy")
    found = {name: importlib.metadata.version(name) for name in packages}
    git = [
        "git",
        "--no-optional-locks",
        "-C",
        str(Path(__file__).parent),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=40",
        "--exclude=*",
    ]
    try:
        revision = subprocess.run(git, capture_output=True, text=True, timeout=10).stdout.strip() or None
    except (OSError, subprocess.TimeoutExpired):
        revision = None  # installed from a wheel, or no git here
    return {
        "versions": {"python": platform.python_version(), "trilab": __version__, **found},
        "git": revision,
        "hardware": {
            "machine": platform.machine(),
            "system": platform.system(),
            "processor": processor(),
            "cpus": os.cpu_count(),
        },
    }


def processor() -> str:
    """The name that its maker gave it, where the system tells it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor()

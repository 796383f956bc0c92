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
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from rich.console import Console

from trilab import __version__
from trilab.atomic import replacing
from trilab.config import Config, save
from trilab.errors import BadInput

log = logging.getLogger("trilab")


def speak() -> None:
    """What we say of a run goes to the terminal as it is, with nothing before it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a character that it cannot show must not end a training
    handler = logging.StreamHandler(sys.stdout)
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


def attend(config: Config, folder: Path, *, console: Console | None, alone: bool) -> dict[str, Any]:
    """See one run through: pass over it when it is finished, else train it and write down what came of it.

    Args:
        folder: the run's own.
        console: where progress is shown; None shows nothing.
        alone: not part of a sweep: bad input then leaves no trace, since there is no table to be a row of.
    Returns:
        The content of summary.json.
    Raises:
        BadInput: what cannot be trained on, or another process trains it at this moment.
        RunFailed: the training failed; its traceback is written down.
    """
    if config.force and config.ckpt:
        raise BadInput(f"force=true trains anew and ckpt={config.ckpt} goes on from there: give one of them.")
    with _held(folder):
        before = summary_of(folder)
        if before and before.get("status") == "finished" and not config.force:
            _not_trained_blindly(config, before)
            log.info("Finished already, nothing to do (force=true trains it anew).")
            if before.get("code") != _code(config):
                log.warning("It was trained by other code, or another version of it, than there is now.")
            return before
        for name in ("summary.json", *(("checkpoints", "metrics.jsonl", "log") if config.force else ())):
            _remove(folder / name)
        several = config.trainer.devices * config.trainer.num_nodes > 1 and "RANK" not in os.environ
        see = _train_in_processes if several else train_and_record
        return see(config, folder, console=console, alone=alone)


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


def train_and_record(config: Config, folder: Path, *, console: Console | None, alone: bool) -> dict[str, Any]:
    """Train in this process and write config.yaml, log and summary.json. See `attend`."""
    first = int(os.environ.get("RANK", "0")) == 0
    summary = _named(config)
    began = time.time()
    with _logged_to(folder / "log" if first else None):
        try:
            from trilab.run import run  # torch and Lightning are imported only where something is trained

            summary |= {"status": "finished", "error": None, **run(config, folder, console=console, alone=alone)}
        except (Exception, SystemExit) as error:
            if alone and isinstance(error, BadInput):
                raise
            # what the user gave and cannot work says all there is to say; of anything else the place matters
            log.error("%s failed:\n%s", folder, error if isinstance(error, BadInput) else traceback.format_exc())
            text = "".join(traceback.format_exception(error))
            described = {"type": type(error).__name__, "message": str(error).partition("\n")[0], "traceback": text}
            summary |= {"status": "failed", "error": described}
            raise RunFailed(f"{type(error).__name__}: {error}") from error
        finally:
            if first and "status" in summary:
                _write_down(summary, config, folder, began)
    return summary


def _named(config: Config) -> dict[str, Any]:
    """What is known before the training; the code above all, which may be edited while it trains."""
    return {"agg": config.strategy, "label": config.name, "seed": config.seed, "code": _code(config)}


def _write_down(summary: dict[str, Any], config: Config, folder: Path, began: float) -> None:
    summary |= {"seconds": time.time() - began, **_provenance()}
    if not (folder / "config.yaml").exists():  # failed before `run` could write down what it trains
        save(config, folder / "config.yaml")
    with replacing(folder / "summary.json") as file:
        file.write(json.dumps(summary, indent=2).encode())


def _code(config: Config) -> str:
    """Hex digest of the sources that train: ours, and the files of strategies from elsewhere."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    for section in config.agg:
        spec = importlib.util.find_spec(str(section["_target_"]).rpartition(".")[0])
        if spec and spec.origin and Path(spec.origin).is_file():
            files.append(Path(spec.origin))
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def _train_in_processes(config: Config, folder: Path, *, console: Console | None, alone: bool) -> dict[str, Any]:
    """Train on several processes of this machine through torchrun; a crash of one ends all."""
    if config.trainer.num_nodes > 1:
        raise BadInput(
            f"trainer.num_nodes={config.trainer.num_nodes} is started on every machine by torchrun or SLURM, "
            "which set RANK; it is not set here."
        )
    if alone:
        from trilab.run import prepare

        prepare(config, folder)  # refuse bad input here, in one voice
    save(config, folder / "config.yaml")
    # Lightning's own launcher would run this whole command again in every process, sweep and all
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(config.trainer.devices), "-m", "trilab.worker", str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": str(config.threads), "TRILAB_ALONE": str(int(alone))}
    began = time.time()
    with (folder / "console.log").open("w", encoding="utf-8") as output:
        code = subprocess.run(command, env=environment, stdout=None if console else output, stderr=output).returncode
    summary = summary_of(folder)
    if summary is None:  # killed before it could write down why
        error = {"type": "RunFailed", "message": f"a process was killed (exit code {code})", "traceback": ""}
        summary = {**_named(config), "status": "failed", "error": error}
        _write_down(summary, config, folder, began)
    if summary["status"] != "finished":
        raise RunFailed(f"{summary['error']['message']}; see {folder / 'console.log'}")
    return summary


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Only one process trains a run."""
    holder = folder / ".held_by"
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        who = holder.read_text(encoding="utf-8") if holder.exists() else "another process"
        raise BadInput(f"{folder} is being trained by {who}. Wait for it, or change the seed or a knob.") from None
    except OSError as error:
        raise BadInput(f"{folder} cannot be written to: {error.strerror}.") from error
    try:
        holder.write_text(f"process {os.getpid()} on {platform.node()}", encoding="utf-8")
        yield
    finally:
        holder.unlink(missing_ok=True)
        (folder / ".lock").unlink(missing_ok=True)  # while it is held: after, it could be another's already
        lock.release()


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _logged_to(path: Path | None) -> Iterator[None]:
    """What we and Lightning say, and every Python warning, also goes to the run's log."""
    if path is None:
        yield
        return
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    loggers = [log, logging.getLogger("lightning.pytorch"), logging.getLogger("py.warnings")]
    logging.captureWarnings(True)
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
        "hardware": {"machine": platform.machine(), "system": platform.system(), "cpus": os.cpu_count()},
    }

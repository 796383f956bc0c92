"""Where metrics go: metrics.jsonl in every run's folder, and W&B. The only file that knows W&B."""

import http.client
import json
import logging
import netrc
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal
from urllib.parse import urlsplit

import wandb
from lightning.pytorch.loggers import Logger, WandbLogger
from PIL import Image

from trilab.atomic import replacing

log = logging.getLogger("trilab")

# W&B's reports about itself would wait for a server that does not answer, when the process ends
os.environ["WANDB_ERROR_REPORTING"] = "false"

# Seconds that reaching W&B may cost a run, at its start and at its end.
CONNECT_TIMEOUT = 3
INIT_TIMEOUT = 10
FINISH_TIMEOUT = 15


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
        self._file: IO[str] = path.open("a", encoding="utf-8", buffering=1)

    @property
    def name(self) -> str:
        """Of the logger."""
        return "metrics.jsonl"

    @property
    def version(self) -> str:
        """None of its own: the folder is the run."""
        return ""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append one line."""
        self._file.write(json.dumps({"step": step, **metrics}) + "\n")

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """They are in config.yaml."""

    def finalize(self, status: str) -> None:
        """Flush; more may come after the training."""
        self._file.flush()

    def close(self) -> None:
        """No more lines."""
        self._file.close()


def _rows(path: Path) -> list[dict[str, Any]]:
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break  # a killed process may leave half a line, always the last
    return rows


class Wandb(WandbLogger):
    """Lightning's logger of a W&B run, which stops logging, with one warning, where W&B itself fails.

    W&B works in a process of its own. When that dies, a call raises whatever the broken connection raises.
    """

    broken = False

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log one step; every other kind of logging comes through here too."""
        self._try(lambda: super(Wandb, self).log_metrics(dict(metrics), step))

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Say again what is trained: budgets may have changed it since the run began."""
        self._try(lambda: self.experiment.config.update(dict(config), allow_val_change=True))

    def log_summary(self, summary: Mapping[str, Any]) -> None:
        """Keep one value a run."""
        self._try(lambda: self.experiment.summary.update(dict(summary)))

    def _try(self, call: Callable[[], Any]) -> None:
        if self.broken:
            return
        try:
            call()
        except Exception as error:
            self.broken = True
            log.warning("W&B stopped (%s: %s); metrics.jsonl goes on.", type(error).__name__, error)


@contextmanager
def wandb_run(
    folder: Path,
    *,
    project: str,
    entity: str | None,
    mode: str,
    name: str,
    group: str,
    job_type: str,
    tags: list[str],
    config: Mapping[str, Any],
) -> Iterator[Wandb]:
    """One W&B run for one job: always finished, and marked failed where an exception leaves the block.

    Online where a key is configured and the server answers, else offline on disk. Nothing here may stop or hold up a
    training for more than seconds: whatever fails ends in an offline run and one line that says so.

    Args:
        folder: the one W&B folder that all runs share (W&B adds `wandb/` to it).
        project, entity: where an online run appears.
        mode: "auto", "online" or "offline".
        name, group, job_type, tags: what the run is found by.
        config: resolved, plain, nested values.
    """
    folder.mkdir(parents=True, exist_ok=True)
    way, reason = _reachable(mode)

    def start(mode: Literal["online", "offline", "disabled"]) -> "wandb.Run":
        return wandb.init(
            dir=folder,
            project=project,
            entity=entity,
            name=name,
            group=group,
            job_type=job_type,
            tags=tags,
            config=dict(config),
            mode=mode,
            reinit="finish_previous",
            settings=wandb.Settings(
                silent=True,
                console="off",
                init_timeout=INIT_TIMEOUT,
                finish_timeout=FINISH_TIMEOUT,
                finish_timeout_raises=False,
                disable_git=True,
                x_disable_stats=True,
            ),
        )

    try:
        run = start(way)
    except (wandb.errors.CommError, wandb.errors.UsageError) as error:
        way, reason = "offline", str(error).splitlines()[0]
        run = start(way)
    if way == "online":
        log.info("W&B run: %s", run.url)
    elif way == "disabled":
        log.info("W&B is off (%s).", reason)
    else:
        log.info("W&B offline (%s). To upload later: wandb sync %s", reason, Path(run.dir).parent)
    run.define_metric("trainer/global_step")
    run.define_metric("*", step_metric="trainer/global_step", step_sync=True)
    run.define_metric("val/loss", step_metric="trainer/global_step", summary="min")
    try:
        yield Wandb(experiment=run, log_model=False)
    except BaseException:
        _finish(run, 1)
        raise
    _finish(run, 0)


def _finish(run: "wandb.Run", exit_code: int) -> None:
    try:
        run.finish(exit_code=exit_code)
    except Exception as error:  # its process may have died meanwhile, in whatever way
        kind = type(error).__name__
        log.warning("W&B did not finish its run (%s: %s); the results are in the run's folder.", kind, error)


def log_text(loggers: Iterable[Logger], name: str, text: str, step: int) -> None:
    """A text, such as a sample, to the loggers that can show one."""
    for logger in loggers:
        if isinstance(logger, Wandb):
            logger.log_text(name, columns=["step", "text"], data=[[str(step), text]], step=step)


def log_summary(loggers: Iterable[Logger], summary: Mapping[str, Any]) -> None:
    """What a run came to, to the loggers that keep one value a run."""
    for logger in loggers:
        if isinstance(logger, Wandb):
            logger.log_summary(summary)


def log_config(loggers: Iterable[Logger], config: Mapping[str, Any]) -> None:
    """What is trained, as resolved plain values, to the loggers that keep it."""
    for logger in loggers:
        if isinstance(logger, Wandb):
            logger.log_config(config)


def log_picture(loggers: Iterable[Logger], name: str, picture: Image.Image, step: int) -> None:
    """A picture, such as a layer's table of weights, to the loggers that can show one."""
    for logger in loggers:
        if isinstance(logger, Wandb):
            logger.log_image(name, images=[picture], step=step)


def _reachable(mode: str) -> tuple[Literal["online", "offline", "disabled"], str]:
    """("online", "") or another mode of W&B's and why. Asks the environment first, then the server."""
    asked = os.environ.get("WANDB_MODE", "")
    if asked in ("offline", "dryrun", "disabled"):
        return ("disabled" if asked == "disabled" else "offline"), f"WANDB_MODE={asked}"
    if mode == "offline":
        return "offline", "logger.mode=offline"
    url = wandb.setup().settings.base_url  # the environment's, or the one that `wandb login --host` stored
    if not (os.environ.get("WANDB_API_KEY") or _netrc_key(urlsplit(url).netloc)):
        return "offline", "no key is configured: `wandb login`, or WANDB_API_KEY"
    try:
        urllib.request.urlopen(url, timeout=CONNECT_TIMEOUT).close()  # minds proxies, as W&B does
    except urllib.error.HTTPError:
        pass  # it answers
    except (OSError, http.client.HTTPException) as error:
        return "offline", f"{url} cannot be reached: {error}"
    return "online", ""


def _netrc_key(host: str) -> bool:
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False

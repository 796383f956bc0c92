"""Where metrics go on W&B. The only file that knows it, imported where it is wanted: it takes most of a second."""

import http.client
import json
import logging
import netrc
import os
import queue
import secrets
import shutil
import subprocess
import threading
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast
from urllib.parse import urlsplit

import wandb
from lightning.pytorch.loggers import WandbLogger
from wandb.sdk import wandb_setup

from trilab.atomic import replacing
from trilab.loggers import Line, Shows

if TYPE_CHECKING:
    from PIL import Image

log = logging.getLogger("trilab")

# W&B's reports about itself would wait for a server that does not answer, when the process ends
os.environ["WANDB_ERROR_REPORTING"] = "false"

# Seconds that reaching W&B may cost a run, at its start and at its end.
CONNECT_TIMEOUT = 3
INIT_TIMEOUT = 10
FINISH_TIMEOUT = 15
START_TIMEOUT = 40  # with all that W&B does around reaching its server
CALL_TIMEOUT = 5  # any other call, which only talks to W&B's own process
LARGEST_PAGE = 2**20  # bytes of a report that W&B is given

SPARE_DISK = 2**16  # bytes free, under which W&B may have lost what it could not write: it does not say so
AXIS = "trainer/global_step"
BEST = {"val/loss": "min", "val/bits_per_char": "min", "val/perplexity": "min", "val/accuracy": "max"}
T = TypeVar("T")
Way = Literal["online", "offline", "disabled"]


class Wandb(WandbLogger, Shows):
    """Lightning's logger of a W&B run, which stops logging, with one warning, where W&B itself fails.

    W&B works in a process of its own. When that dies, a call raises whatever the broken connection raises; when it
    hangs, a call would wait for ever.

    Args:
        run: None where none could be begun; nothing is logged then.
        after: optimizer steps that the server has already; rows up to there are not sent again.
    """

    def __init__(self, run: "wandb.Run | None", after: int) -> None:
        super().__init__(experiment=run, log_model=False)
        self.broken = run is None
        self._after = after

    @property
    def experiment(self) -> Any:
        """The W&B run or None; Lightning's own would begin another where there is none."""
        return self._experiment

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log one step; every other kind of logging comes through here too."""
        if step is None or step > self._after:
            self._try(lambda: super(Wandb, self).log_metrics(dict(metrics), step))

    def log_table(self, *args: Any, **kwargs: Any) -> None:
        """Log a table, which W&B writes to a temporary file first."""
        self._try(lambda: super(Wandb, self).log_table(*args, **kwargs))

    def log_image(self, *args: Any, **kwargs: Any) -> None:
        """Log pictures, which W&B writes to temporary files first."""
        self._try(lambda: super(Wandb, self).log_image(*args, **kwargs))

    def log_page(self, name: str, page: Path) -> None:
        """Log a page of HTML that stands alone."""
        self._try(lambda: self.experiment.log({name: wandb.Html(page, inject=False)}))

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """They are in the config that the run began with."""

    def show_texts(self, name: str, texts: Sequence[tuple[int, str]], step: int) -> None:
        """Log one table with all of them: the latest has the whole history."""
        self.log_table(name, columns=["step", "text"], data=[[at, text] for at, text in texts], step=step)

    def show_picture(self, name: str, picture: "Image.Image", step: int) -> None:
        """Log it under one name for all steps, which W&B shows with a slider."""
        self.log_image(name, images=[picture], step=step)

    def show_line(self, name: str, line: Line, step: int) -> None:
        """Log W&B's own chart of a table; those of several runs are drawn into one."""

        def draw() -> None:
            table = wandb.Table(columns=[line.x, line.y], data=[list(point) for point in line.points])
            chart: Any = wandb.plot.line(table, line.x, line.y, title=name)
            super(Wandb, self).log_metrics({name: chart}, step)

        if step > self._after:
            self._try(draw)

    def log_summary(self, summary: Mapping[str, Any]) -> None:
        """Keep one value a run; lists of numbers would be columns that nobody can read."""
        self._try(lambda: self.experiment.summary.update(_without_series(summary)))

    def finish(self, error: BaseException | None) -> None:
        """Close the run, in bounded time: what no exception has left is finished, all else failed.

        Args:
            error: what ended the training. An Exception leaves its traceback in the summary; whatever else there is,
                such as a signal, means that the training may go on later: preempted.
        """
        if isinstance(error, Exception):
            self.log_summary({"error": "".join(traceback.format_exception(error))})
        elif error is not None:
            self._try(lambda: self.experiment.mark_preempting())
        if self.experiment:
            folder = Path(self.experiment.dir).parent
            patience = CALL_TIMEOUT if self.broken else FINISH_TIMEOUT + CALL_TIMEOUT
            try:
                _within(patience, lambda: self.experiment.finish(exit_code=int(error is not None)))
                _end_service(patience)
            except Exception as failure:
                self._break(failure)
                _end_service(0)
            if folder.is_dir() and shutil.disk_usage(folder).free < SPARE_DISK:
                self._break(OSError(f"the disk of {folder} is full"))

    def _try(self, call: Callable[[], Any]) -> None:
        if self.broken:
            return
        try:
            _within(CALL_TIMEOUT, call)
        except Exception as error:
            self._break(error)

    def _break(self, error: Exception) -> None:
        if not self.broken:
            log.warning("W&B stopped (%s: %s); metrics.jsonl goes on.", type(error).__name__, error)
        self.broken = True


@dataclass(frozen=True)
class Part:
    """One W&B run that holds a stretch of a training.

    Args:
        id: W&B's.
        mode: "online" or "offline".
        from_step: optimizer steps done when it began.
    """

    id: str
    mode: str
    from_step: int


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
    memory: Path,
    step: int,
) -> Iterator[Wandb]:
    """One W&B run for one job: always finished, and marked failed where an exception leaves the block.

    Online where a key is configured and the server answers, else offline on disk. Nothing here may stop or hold up a
    training for more than seconds: whatever fails ends in an offline run, or in a logger that logs nothing, and one
    line that says so.

    A training that goes on continues its online run; where that cannot be, it gets a run of its own, a further part
    whose config says which one it `continues` and `from_step`: W&B would overwrite an offline run that is begun twice.

    Args:
        folder: the one W&B folder that all runs share (W&B adds `wandb/` to it).
        project, entity: where an online run appears; an agent's wins.
        mode: "auto", "online" or "offline".
        name, group, job_type, tags: what the run is found by.
        config: resolved, plain, nested values.
        memory: the file that keeps the parts of this training for the next time.
        step: optimizer steps done so far; 0 is a new training, which forgets the parts.
    """
    told = {"project": project, "entity": entity, "group": group, "job_type": job_type, "tags": tags}
    run, after = None, -1
    try:
        folder.mkdir(parents=True, exist_ok=True)
        parts = _parts(memory) if step else []
        if not step:
            memory.unlink(missing_ok=True)
        asked = _asked_id(folder, memory)
        way, reason = _within(START_TIMEOUT, partial(_reachable, mode))
        begin = partial(_begin, folder, told, name, config, parts, asked, step)
        try:
            run, after, parts = begin(way)
        except Exception as error:
            _end_service(0)
            if way != "online":
                raise
            way, reason = "offline", _first_line(error)
            run, after, parts = begin(way)
        if way != "disabled":
            _keep(parts, memory)
        _tell(run, way, reason, parts, step)
    except Exception as error:
        log.warning("W&B cannot be used (%s: %s); metrics.jsonl goes on.", type(error).__name__, _first_line(error))
        if run is None:
            _end_service(0)
    logger = Wandb(run, after)
    try:
        yield logger
    except BaseException as error:
        logger.finish(error)
        raise
    logger.finish(None)


def _begin(
    folder: Path,
    told: Mapping[str, Any],
    name: str,
    config: Mapping[str, Any],
    parts: list[Part],
    asked: str | None,
    step: int,
    way: Way,
) -> tuple["wandb.Run", int, list[Part]]:
    """A run, the steps up to which its server has the rows already, and the parts with it."""
    again = way == "online" and bool(parts) and parts[-1].mode == "online" and asked in (None, parts[-1].id)
    free = asked if asked not in [part.id for part in parts] else None
    part = parts[-1] if again else Part(free or secrets.token_hex(4), way, step)
    if parts and not again:
        name = f"{name} part {len(parts) + 1}"
        config = {**config, "continues": parts[-1].id, "from_step": step}

    def start() -> tuple["wandb.Run", int]:
        run = wandb.init(
            **told,
            dir=folder,
            id=part.id,
            resume="allow" if again else None,
            name=name,
            config=dict(config),
            mode=way,
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
        logging.getLogger("wandb").setLevel(logging.CRITICAL)  # it would print a traceback a line on a full disk
        summary: Any = run.summary
        seen = max(step, int(summary.get(AXIS) or 0)) if again else -1
        run.define_metric(AXIS, hidden=True)  # an axis, of which no chart is drawn
        run.define_metric("*", step_metric=AXIS, step_sync=True)
        for metric, best in BEST.items():
            run.define_metric(metric, step_metric=AXIS, summary=best)
        return run, seen

    with _environment(agent=part.id == asked):
        run, after = _within(START_TIMEOUT, start)
    return run, after, parts if again else [*parts, part]


def _first_line(error: Exception) -> str:
    """Further ones of W&B's repeat what they were given: an address with its password, if there is one."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _tell(run: "wandb.Run", way: Way, reason: str, parts: list[Part], step: int) -> None:
    further = len(parts) > 1 and parts[-1].from_step == step
    more = f" Part {len(parts)}: it continues {parts[-2].id} from step {step:,}." if further else ""
    if way == "online":
        log.info("W&B run: %s%s", run.url, more)
    elif way == "disabled":
        log.info("W&B is off (%s).", reason)
    else:
        log.info("W&B offline (%s).%s To upload later: wandb sync %s", reason, more, Path(run.dir).parent)


def _parts(memory: Path) -> list[Part]:
    """What was kept; nothing, with a warning, where the file cannot be understood."""
    if not memory.exists():
        return []
    try:
        content: list[dict[str, Any]] = json.loads(memory.read_text(encoding="utf-8"))["parts"]
        for part in content:
            if [type(part[name]) for name in ("id", "mode", "from_step")] != [str, str, int]:
                raise TypeError(f"no part of a training: {part}")
        parts = [Part(**part) for part in content]
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s cannot be read (%s); W&B begins a run that continues none.", memory, error)
        return []
    return parts


def _keep(parts: list[Part], memory: Path) -> None:
    try:
        with replacing(memory) as file:
            file.write(json.dumps({"parts": [asdict(part) for part in parts]}).encode())
    except OSError as error:
        log.warning("%s cannot be written (%s); W&B will not know what a later part continues.", memory, error)


def _asked_id(folder: Path, memory: Path) -> str | None:
    """The id in WANDB_RUN_ID, as `wandb agent` sets it, for the first training that comes for it.

    One id is one W&B run: the other runs of the same command get ids of their own.
    """
    asked = os.environ.get("WANDB_RUN_ID")
    if not asked:
        return None
    claim = folder / "wandb" / f"{Path(asked).name}.claim"
    claim.parent.mkdir(exist_ok=True)
    try:
        with claim.open("x", encoding="utf-8") as file:
            file.write(str(memory.resolve()))
    except FileExistsError:
        if claim.read_text(encoding="utf-8") != str(memory.resolve()):
            return None
    return asked


@contextmanager
def _environment(*, agent: bool) -> Iterator[None]:
    """The environment as it is, or for a run that is not the agent's without what would make it that one."""
    names = () if agent else ("WANDB_RUN_ID", "WANDB_SWEEP_ID", "WANDB_SWEEP_PARAM_PATH")
    saved = {name: os.environ.pop(name) for name in names if name in os.environ}
    if saved:  # W&B reads the environment once
        _end_service(CALL_TIMEOUT)
    try:
        yield
    finally:
        os.environ.update(saved)


def _within(seconds: float, call: Callable[[], T]) -> T:
    """What the call returns or raises, if it does within these seconds.

    Raises:
        TimeoutError: it does not; it is left to itself, in a thread that nothing waits for.
    """
    answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            answers.put((call(), None))
        except BaseException as error:
            answers.put((None, error))

    threading.Thread(target=work, daemon=True, name="trilab W&B").start()
    try:
        answer, error = answers.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer in {seconds:g} seconds") from None
    if isinstance(error, Exception):
        raise error
    if error is not None:  # W&B exits the process where its own did not end well
        raise RuntimeError(f"W&B's process: {error!r}")
    return cast(T, answer)


def _end_service(patience: float) -> None:
    """End W&B's process, so that all is on disk, nothing is left behind, and another run reads the environment anew.

    W&B itself would wait for it for ever, and does nothing of it in a process that multiprocessing has started.

    Args:
        patience: seconds until it is killed.
    """
    connection: Any = wandb_setup.singleton()._connection
    service = connection and connection._proc  # None where a parent of this process owns it
    if service and not patience:
        service._process.kill()
    try:
        _within(patience or CALL_TIMEOUT, wandb.teardown)
    except Exception:
        if service:
            service._process.kill()
            with suppress(subprocess.TimeoutExpired):
                service._process.wait(CALL_TIMEOUT)  # else it stays a zombie
        os.environ.pop("WANDB_SERVICE", None)  # of no use to another run
        if patience:
            raise


def _without_series(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same nested values, less the lists of numbers."""
    return {
        name: _without_series(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if not _is_series(value)
    }


def _is_series(value: Any) -> bool:
    """Whether it is a list of numbers, or holds nothing but such."""
    if isinstance(value, Mapping):
        return all(_is_series(each) for each in value.values())
    return isinstance(value, list | tuple) and all(isinstance(each, int | float) for each in value)


def log_report(
    outputs: Path,
    *,
    project: str,
    entity: str | None,
    mode: str,
    experiment: str,
    rows: Sequence[Mapping[str, Any]],
    page: Path,
) -> None:
    """A run of its own in the experiment's group: the table "verdicts", and the page "report" where it is small.

    Takes seconds at most where W&B cannot be reached, and never raises for W&B's sake, like `wandb_run`.

    Args:
        outputs: the one W&B folder that all runs share.
        project, entity, mode: as in `wandb_run`.
        experiment: its name; the report is kept track of in its folder in outputs.
        rows: one a variant, all with the same names; what is no number, text, truth value or None is written out.
        page: report.html; left out where it is not there or above LARGEST_PAGE.
    """
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with wandb_run(
        outputs,
        project=project,
        entity=entity,
        mode=mode,
        name=f"{experiment} report",
        group=experiment,
        job_type="report",
        tags=["report", experiment],
        config={"experiment_name": experiment},
        memory=outputs / experiment / "wandb.json",
        step=0,
    ) as logger:
        data = [[_cell(row.get(name)) for name in columns] for row in rows]
        logger.log_table("verdicts", columns=columns, data=data, step=0)
        if page.is_file() and page.stat().st_size <= LARGEST_PAGE:
            logger.log_page("report", page)


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value, default=str)


def _reachable(mode: str) -> tuple[Way, str]:
    """("online", "") or another mode of W&B's and why. Asks the environment first, then the server."""
    asked = os.environ.get("WANDB_MODE", "")
    if asked in ("offline", "dryrun", "disabled"):
        return ("disabled" if asked == "disabled" else "offline"), f"WANDB_MODE={asked}"
    if mode == "offline":
        return "offline", "logger.mode=offline"
    url = wandb.setup(
        wandb.Settings(silent=True)
    ).settings.base_url  # the environment's, or the one that `wandb login --host` stored
    address = urlsplit(url)
    host = address.netloc.rpartition("@")[2]  # before it an address may carry a password, which no log may
    if not (os.environ.get("WANDB_API_KEY") or _netrc_key(host)):
        return "offline", "no key is configured: `wandb login`, or WANDB_API_KEY"
    try:
        urllib.request.urlopen(url, timeout=CONNECT_TIMEOUT).close()  # minds proxies, as W&B does
    except urllib.error.HTTPError:
        pass  # it answers
    except (OSError, http.client.HTTPException) as error:
        why = error if isinstance(error, OSError) else type(error).__name__  # of an address that is none it says a part
        return "offline", f"{address.scheme}://{host} cannot be reached: {why}"
    return "online", ""


def _netrc_key(host: str) -> bool:
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False

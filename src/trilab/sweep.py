"""Many runs: each checked before the first begins, watched while they train, compared at the end."""

import json
import logging
import os
import platform
import signal
import sys
import threading
import time
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import hydra
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from trilab import stopping
from trilab.compose import conf_dir, plain
from trilab.config import Config, bind, check_logger, read, strategies
from trilab.corpus import read_corpus
from trilab.errors import BadInput
from trilab.folder import is_finished, is_given_up, summary_of
from trilab.holder import Holder, read_holder
from trilab.identity import flat, run_name
from trilab.looks import has_looks
from trilab.until_decided import Job, UntilDecided

log = logging.getLogger("trilab")


def _run_id(config: Config) -> str:
    return run_name(config.name, config.seed, config.tree, read_corpus(config.data.source).sha256)


# ${run_id:} in conf/hydra/run.yaml: every launcher, in whatever process, names a run's folder the same way
OmegaConf.register_new_resolver("run_id", lambda *, _root_: _run_id(read(plain(_root_))), replace=True)


def check(config: Config) -> None:
    """Refuse a config that no run can come of, before anything is written.

    Raises:
        BadInput: a class that cannot be imported, a knob that it does not have, a text that cannot be read or cut.
    """
    check_logger(config)
    strategies(config)
    bind(config.model, "model", given=("vocab_size", "block_size", "make_agg", "seed"))
    bind(config.optim, "optim")()
    read_corpus(config.data.source)


def make_room(config: Config) -> None:
    """Make the experiment's folder.

    Raises:
        BadInput: it cannot be made.
    """
    folder = Path(config.paths.outputs) / config.experiment_name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"{folder} cannot be made: {error.strerror}. Set paths.outputs (now {config.paths.outputs}) to a folder "
            "that can be written to."
        ) from error


class Sweep:
    """The runs of one sweep as the process that launched them sees them: by what they leave in their folders.

    It looks at files only, so it does not matter where a launcher starts the runs.

    Args:
        folders: of the runs, in the order in which they are launched.
        passed: those among them that are passed over, since they are finished.
        given_up: those that are passed over, since they have failed.
        ours: the runs are processes of this machine that end with this one; otherwise a cluster's.
        console: gets a line for each run that ends.
        experiments: each experiment's folder → the config of one of its runs, which says how it is reported.
        searching: the runs are not known beforehand: those count that end in the experiments' folders.
        looking: one for each experiment to which seeds are added until all is decided.
        at_once: runs that train at a time; None where that is not known.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        *,
        passed: Collection[Path],
        given_up: Collection[Path],
        ours: bool,
        console: Console,
        experiments: Mapping[Path, Config],
        searching: bool = False,
        looking: Sequence[UntilDecided] = (),
        at_once: int | None = 1,
    ) -> None:
        self.folders = list(dict.fromkeys(folders))
        self.console = console
        self.ours = ours
        self.began = time.time()
        self.experiments = experiments
        self.searching = searching
        self.looking = looking
        self.at_once = at_once
        self._ended: set[Path] = set()
        self._passed = set(passed)
        self._given_up = set(given_up)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Say what is ahead and begin to look."""
        begun = [f for f in self.folders if (f / "checkpoints").exists() and f not in self._passed | self._given_up]
        ahead = ["a search"] if self.searching else [_runs(len(self.folders))]
        ahead += [f"{len(self._passed)} of them finished already"] * bool(self._passed)
        ahead += [f"{len(self._given_up)} failed before (retry=true tries again)"] * bool(self._given_up)
        ahead += [f"{len(begun)} begun before"] * bool(begun)
        self._print(", ".join(ahead))
        self._thread.start()

    def add(self, folders: Collection[Path], *, passed: Collection[Path], given_up: Collection[Path]) -> None:
        """Watch these runs too; arguments as above."""
        self._passed |= set(passed)
        self._given_up |= set(given_up)
        self.folders = list(dict.fromkeys([*self.folders, *folders]))

    def further(self) -> list[Job]:
        """What the sweep is to launch when all that it has launched has ended; empty once it is done."""
        if not self.looking:
            return []
        if self.ours:
            self._wait_for_others()
        self._look()
        while not stopping.wished():
            jobs = [job for looking in self.looking for job in looking.further(self._print)]
            if not jobs:
                break
            for job in jobs:
                check(job.config)
            _plan(jobs)
            passed = [job.folder for job in jobs if _is_passed_over(job)]
            self.add([job.folder for job in jobs], passed=passed, given_up=_given_up(jobs))
            if left := [job for job in jobs if job.folder not in passed]:
                return left
        return []

    def _print(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _watch(self) -> None:
        told = False
        while not self._stop.wait(0.5):
            self._look()
            if (signum := stopping.wished()) and self.ours:
                if not told:
                    self._print(f"{signum.name}: the runs that train now save and stop. Ctrl-C again does not wait.")
                told = True
                self._pass_on(signum)

    def _look(self) -> None:
        if self.searching:
            found = (path for experiment in self.experiments for path in experiment.glob("*/summary.json"))
            self.add([path.parent for path in found if self._is_new(path)], passed=(), given_up=())
        for folder in self.folders:
            if folder in self._ended or folder in self._passed or folder in self._given_up:
                continue
            summary = summary_of(folder)
            if summary is None or not self._is_new(folder / "summary.json"):
                continue
            self._ended.add(folder)
            done, ahead = len(self._ended), len(self.folders) - len(self._passed | self._given_up) - len(self._ended)
            left = (time.time() - self.began) / done * ahead
            came_to = (
                f"val/loss {summary['val_loss']:.4f}  {summary['chars_per_second']:>9,.0f} chars/s"
                if summary["status"] == "finished"
                else f"{summary['status'].upper()}: {summary['error']['type']}: {summary['error']['message']}"
            )
            name = f"{summary['label']} seed={summary['seed']}"
            count, time_left = (
                f"{done + len(self._passed | self._given_up)}/{len(self.folders)}",
                f"about {left:.0f} s left",
            )
            if self.searching:
                count, time_left = str(done), ""
            self._print(f"{count:>7}  {name:<24} {came_to}  {time_left}".rstrip())

    def _is_new(self, path: Path) -> bool:
        return path.stat().st_mtime >= self.began - 1

    def _pass_on(self, signum: int) -> None:
        """Have the workers of this sweep stop, whichever have a run by now: a launcher may have told them nothing."""
        for folder in self.folders:
            who = read_holder(folder)
            if who and who.pid and who.is_here and who.sweep == os.getpid() != who.pid:
                with suppress(OSError):
                    os.kill(who.pid, signal.SIGTERM if signum == signal.SIGINT else signum)

    def _elsewhere(self) -> dict[Path, Holder]:
        """Runs of this sweep that another sweep trains."""
        now, here = time.time(), platform.node()
        found: dict[Path, Holder] = {}
        for folder in self.folders:
            who = None if is_finished(folder) else read_holder(folder)
            if who and who.sweep not in (None, os.getpid()):
                metrics = folder / "metrics.jsonl"
                last_write = metrics.stat().st_mtime if metrics.exists() else 0.0
                if who.holds(here=here, last_write=last_write, pace=None, now=now):
                    found[folder] = who
        return found

    def _wait_for_others(self) -> None:
        told: set[Path] = set()
        while (others := self._elsewhere()) and not stopping.wished():
            for folder, who in others.items():
                if folder not in told:
                    self._print(f"Waiting for {folder.name}, which another sweep trains ({who}); Ctrl-C: no longer")
            told |= others.keys()
            time.sleep(0.5)

    def end(self) -> int:
        """Stop looking, report every experiment that took part.

        Returns:
            The exit code: 0, or 1 if a run did not finish; of a search, if none did.
        """
        if self.ours:
            self._wait_for_others()
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._look()
        for experiment, config in self.experiments.items():
            self._report(experiment, config)
        for outputs in dict.fromkeys(experiment.parent for experiment in self.experiments):
            offline = [p for p in outputs.glob("wandb/offline-run-*") if p.stat().st_mtime >= self.began]
            if offline:
                self._print(
                    f"W&B: {_runs(len(offline), 'offline ')}. To upload later: wandb sync {outputs}/wandb/offline-run-*"
                )
        missing = [folder for folder in self.folders if not is_finished(folder)]
        if missing:
            names = ", ".join(folder.name for folder in missing)
            self._print(f"{len(missing)} of {len(self.folders)} runs did not finish: {names}")
        if self.searching:
            return 1 if len(missing) == len(self.folders) else 0
        return 1 if missing else 0

    def _report(self, experiment: Path, config: Config) -> None:
        """On the terms of this sweep; to W&B too, if a run has ended that goes there."""
        from trilab.report import report  # only where there is something to report
        from trilab.report.terms import Terms

        own, logger = config.report, config.logger
        # where looks were settled, on the terms of those
        terms = None if has_looks(experiment) else Terms(own.baseline, own.measure, own.margin, own.choose)
        try:
            made = report(experiment, terms=terms, console=self.console)
        except BadInput as error:  # nothing to compare: the sweep ended before a run left anything
            self._print(str(error))
            return
        if logger.name != "wandb" or not any(folder.parent == experiment for folder in self._ended):
            return
        from trilab.report.record import verdicts
        from trilab.tracking import log_report

        log_report(
            experiment.parent,
            project=logger.project,
            entity=logger.entity,
            mode=logger.mode,
            experiment=experiment.name,
            rows=verdicts(made),
            page=experiment / "report.html",
        )


LAUNCHED_BY = "TRILAB_SWEEP"


def launched_by() -> int | None:
    """The process that launched the sweep which this one works for, unless a cluster stands between them."""
    pid = os.environ.get(LAUNCHED_BY, "")
    return int(pid) if pid.isdecimal() and "SUBMITIT_EXECUTOR" not in os.environ else None


def _plan(jobs: Sequence[Job]) -> None:
    """Add a line for each run to its experiment's planned.jsonl, so that others can tell what is left."""
    for job in jobs:
        config = job.config
        line = {
            "run": job.folder.name,
            "label": config.name,
            "seed": config.seed,
            "max_steps": config.trainer.max_steps,
        }
        # one write a line: others add too; on a full disk the runs themselves say so
        with suppress(OSError), (job.folder.parent / "planned.jsonl").open("ab", buffering=0) as file:
            file.write(json.dumps(line).encode() + b"\n")


def _is_passed_over(job: Job) -> bool:
    return is_finished(job.folder) and not job.config.force


def _given_up(jobs: Sequence[Job]) -> list[Path]:
    return [job.folder for job in jobs if is_given_up(job.folder, job.config)]


def further_runs() -> list[list[str]]:
    """The overrides of each run that this process's sweep is to launch next; empty once it is done."""
    return [list(job.overrides) for job in current.further()] if current is not None else []


# The sweep that this process launched, if any. Hydra sends its callbacks to the workers, so they cannot hold it.
current: Sweep | None = None


class SweepCallback(Callback):
    """What happens around Hydra's runs: every config is checked before the first run, a sweep is watched."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Refuse what cannot work before a folder is made."""
        with _refusing():
            checked = read(plain(config))
            check(checked)
            make_room(checked)
        if checked.sweep.until_decided:  # no error: it may repeat one run of such a sweep
            log.warning("sweep.until_decided=true adds seeds to a sweep, which needs -m: this is one run.")

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check all runs, then watch them."""
        global current
        with _refusing():
            if "RANK" in os.environ:
                raise BadInput(
                    f"RANK={os.environ['RANK']} says that torchrun started this, but a sweep (-m) starts the processes "
                    "of its runs itself, also those of trainer.devices=N: leave torchrun out."
                )
            try:
                jobs = [_job(config, overrides) for overrides in _given(config)]
            except HydraException:
                return  # Hydra composes the same again before it launches anything, and then says so once
            for job in jobs:
                check(job.config)
            _check_choice(jobs)
            looking = _looking(config, jobs)
            experiments = {job.folder.parent: job.config for job in reversed(jobs)}
            searching = not _is_grid(config)
            if searching:
                _check_storage(config.hydra.sweeper.get("storage"))
                usual = read(plain(config))
                experiments = {Path(usual.paths.outputs) / usual.experiment_name: usual}
            for one in experiments.values():
                make_room(one)
            for each in looking:
                each.settle()
        _plan(jobs)
        launcher = config.hydra.launcher
        ours = "submitit" not in launcher._target_
        current = Sweep(
            [job.folder for job in jobs],
            passed=[job.folder for job in jobs if _is_passed_over(job)],
            given_up=_given_up(jobs),
            ours=ours,
            console=Console(),
            experiments=experiments,
            searching=searching,
            looking=looking,
            at_once=_at_once(launcher),
        )
        os.environ[LAUNCHED_BY] = str(os.getpid())
        if ours:
            stopping.be_patient()  # workers must not be killed while their runs save
        current.start()


def _runs(number: int, kind: str = "") -> str:
    return f"{number} {kind}run{'s' if number != 1 else ''}"


def _check_choice(jobs: Sequence[Job]) -> None:
    """Raises BadInput where report.choose is a key that no run of the sweep has."""
    chosen = {job.config.report.choose for job in jobs} - {None}
    for key in chosen:
        if not any(key in flat(job.config.tree) for job in jobs):
            raise BadInput(f"report.choose={key} is no key of these runs' configs, such as optim.lr.")


def _check_storage(storage: object) -> None:
    """Raises BadInput where a search is to keep its trials in a database that its Optuna cannot write to."""
    if not isinstance(storage, str) or storage.startswith("redis"):
        return
    optuna, database = (version(name) for name in ("optuna", "SQLAlchemy"))
    if int(optuna.partition(".")[0]) < 3 and int(database.partition(".")[0]) >= 2:
        raise BadInput(
            f"hydra.sweeper.storage={storage}: Optuna {optuna} cannot write through SQLAlchemy {database}, which is "
            "newer than it knows. Leave it out: with hydra/sweeper=optuna_tpe the same command again goes on with a "
            "search, over the runs that are finished."
        )


def _is_grid(config: DictConfig) -> bool:
    """Whether every combination is launched: by our own sweeper or by Hydra's. Others search."""
    return config.hydra.sweeper._target_ in (
        "hydra_plugins.trilab_sweeper.GridSweeper",
        f"{BasicSweeper.__module__}.{BasicSweeper.__name__}",
    )


def _given(config: DictConfig) -> list[list[str]]:
    """The overrides of every run that a grid will launch first; none for a sweeper that searches."""
    if not _is_grid(config):
        return []
    params = [f"{key}={value}" for key, value in (config.hydra.sweeper.params or {}).items()]
    return combinations(params + list(config.hydra.overrides.task))


def _job(config: DictConfig, overrides: Sequence[str]) -> Job:
    """One run of the sweep that has this config."""
    loader = GlobalHydra.instance().config_loader()
    run = read(plain(loader.load_sweep_config(config, list(overrides))))
    return Job(tuple(overrides), run, Path(run.paths.outputs) / run.experiment_name / _run_id(run))


def _looking(config: DictConfig, jobs: Sequence[Job]) -> list[UntilDecided]:
    """One for each experiment that is to go on until all is decided.

    Raises:
        BadInput: as `UntilDecided`; a sweeper that adds no seeds.
    """
    if not read(plain(config)).sweep.until_decided:
        return []
    target = config.hydra.sweeper._target_
    if not target.startswith("hydra_plugins.trilab_sweeper."):
        raise BadInput(f"sweep.until_decided=true needs hydra/sweeper=grid, which adds seeds, not {target}.")
    compose = partial(_job, config)
    experiments = dict.fromkeys(job.folder.parent for job in jobs)
    return [UntilDecided([job for job in jobs if job.folder.parent == one], compose) for one in experiments]


def _at_once(launcher: DictConfig) -> int | None:
    """How many runs train at a time; None where a cluster, or whoever is not known here, decides that."""
    kind = launcher._target_.rpartition(".")[2]
    if kind == "BasicLauncher":
        return 1
    if kind != "JoblibLauncher":
        return None
    n: int = launcher.n_jobs or 1
    return n if n > 0 else max(1, (os.cpu_count() or 1) + 1 + n)


def combinations(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of each run that Hydra's own sweeper makes of these: one list if none has several values."""
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    batches = BasicSweeper.split_arguments(parser.parse_overrides(list(overrides)), None)
    return [list(run) for batch in batches for run in batch]


def number_of_runs(overrides: Sequence[str]) -> int:
    """How many runs a command line with these overrides would train, not counting what an experiment sweeps."""
    with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return len(combinations(overrides))


@contextmanager
def _refusing() -> Iterator[None]:
    """Hydra turns an exception in a callback into a warning and goes on; SystemExit it lets through."""
    try:
        yield
    except BadInput as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from error
    except Exception as error:
        traceback.print_exc()
        raise SystemExit(1) from error

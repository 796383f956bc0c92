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
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from trilab import stopping
from trilab.compose import plain
from trilab.config import Config, bind, read, strategies
from trilab.corpus import read_corpus
from trilab.errors import BadInput
from trilab.folder import is_finished, is_given_up, summary_of
from trilab.holder import Holder, read_holder
from trilab.identity import run_name
from trilab.report import report

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
    """

    def __init__(
        self,
        folders: Sequence[Path],
        *,
        passed: Collection[Path],
        given_up: Collection[Path],
        ours: bool,
        console: Console,
    ) -> None:
        self.folders = list(dict.fromkeys(folders))
        self.console = console
        self.ours = ours
        self.began = time.time()
        self._ended: set[Path] = set()
        self._passed = set(passed)
        self._given_up = set(given_up)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Say what is ahead and begin to look."""
        begun = [f for f in self.folders if (f / "checkpoints").exists() and f not in self._passed | self._given_up]
        ahead = [f"{len(self.folders)} runs"]
        ahead += [f"{len(self._passed)} of them finished already"] * bool(self._passed)
        ahead += [f"{len(self._given_up)} failed before (retry=true tries again)"] * bool(self._given_up)
        ahead += [f"{len(begun)} begun before"] * bool(begun)
        self._print(", ".join(ahead))
        self._thread.start()

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
        for folder in self.folders:
            if folder in self._ended or folder in self._passed or folder in self._given_up:
                continue
            summary = summary_of(folder)
            if summary is None or (folder / "summary.json").stat().st_mtime < self.began - 1:
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
            count = f"{done + len(self._passed | self._given_up)}/{len(self.folders)}"
            self._print(f"{count:>7}  {name:<24} {came_to}  about {left:.0f} s left")

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
        """Stop looking, print the table of every experiment that took part.

        Returns:
            The exit code: 0, or 1 if a run did not finish.
        """
        if self.ours:
            self._wait_for_others()
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self._look()
        for experiment in dict.fromkeys(folder.parent for folder in self.folders):
            try:
                report(experiment, console=self.console)
            except BadInput as error:  # nothing to compare: the sweep ended before a run left anything
                self._print(str(error))
        for outputs in dict.fromkeys(folder.parent.parent for folder in self.folders):
            offline = [p for p in outputs.glob("wandb/offline-run-*") if p.stat().st_mtime >= self.began]
            if offline:
                self._print(
                    f"W&B: {len(offline)} offline runs. To upload later: wandb sync {outputs}/wandb/offline-run-*"
                )
        missing = [folder for folder in self.folders if not is_finished(folder)]
        if missing:
            names = ", ".join(folder.name for folder in missing)
            self._print(f"{len(missing)} of {len(self.folders)} runs did not finish: {names}")
        return 1 if missing else 0


LAUNCHED_BY = "TRILAB_SWEEP"


def launched_by() -> int | None:
    """The process that launched the sweep which this one works for, unless a cluster stands between them."""
    pid = os.environ.get(LAUNCHED_BY, "")
    return int(pid) if pid.isdecimal() and "SUBMITIT_EXECUTOR" not in os.environ else None


def _plan(runs: Mapping[Path, Config]) -> None:
    """Add a line for each run to its experiment's planned.jsonl, so that others can tell what is left."""
    for folder, config in runs.items():
        line = {"run": folder.name, "label": config.name, "seed": config.seed, "max_steps": config.trainer.max_steps}
        # one write a line: others add too; on a full disk the runs themselves say so
        with suppress(OSError), (folder.parent / "planned.jsonl").open("ab", buffering=0) as file:
            file.write(json.dumps(line).encode() + b"\n")


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
                configs = [read(plain(job)) for job in _jobs(config)]
            except HydraException:
                return  # Hydra composes the same again before it launches anything, and then says so once
            for job in configs:
                check(job)
            for job in configs:
                make_room(job)
            folders = [Path(job.paths.outputs) / job.experiment_name / _run_id(job) for job in configs]
        runs = dict(zip(folders, configs, strict=True))
        _plan(runs)
        ours = "submitit" not in config.hydra.launcher._target_
        current = Sweep(
            folders,
            passed=[folder for folder, job in runs.items() if is_finished(folder) and not job.force],
            given_up=[folder for folder, job in runs.items() if is_given_up(folder, job)],
            ours=ours,
            console=Console(),
        )
        os.environ[LAUNCHED_BY] = str(os.getpid())
        if ours:
            stopping.be_patient()  # workers must not be killed while their runs save
        current.start()


def _jobs(config: DictConfig) -> list[DictConfig]:
    """The composed config of every run that Hydra's own sweeper will launch; none for one that searches."""
    sweeper = config.hydra.sweeper
    if sweeper._target_ != f"{BasicSweeper.__module__}.{BasicSweeper.__name__}":
        return []
    loader = GlobalHydra.instance().config_loader()
    params = [f"{key}={value}" for key, value in (sweeper.params or {}).items()]
    given = params + list(config.hydra.overrides.task)
    return [loader.load_sweep_config(config, overrides) for overrides in combinations(given)]


def combinations(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of each run that Hydra's own sweeper makes of these: one list if none has several values."""
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    batches = BasicSweeper.split_arguments(parser.parse_overrides(list(overrides)), None)
    return [list(run) for batch in batches for run in batch]


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

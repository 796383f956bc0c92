"""An experiment's folder → how each of its runs stands."""

import heapq
import platform
import statistics
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trilab.holder import Holder, lives, read_holder
from trilab.overview.history import History
from trilab.report.plans import Plan, read_plans, steps, whole
from trilab.report.runs import Run, holds_a_run, no_runs, number, one_line, read_run, subfolders
from trilab.report.variants import settings

State = Literal["finished", "running", "failed", "stopped", "left", "unreadable"]
STATES: tuple[State, ...] = ("finished", "running", "failed", "stopped", "left", "unreadable")
"""stopped: begun, and nobody trains it now. left: planned by a sweep, and not begun."""


@dataclass(frozen=True)
class Standing:
    """How one run stands."""

    folder: Path
    label: str
    seed: int | None
    """None where no file tells it."""
    state: State
    step: int
    """Optimizer steps in metrics.jsonl."""
    max_steps: int | None
    val_losses: Mapping[int, float]
    """Step → val loss, nats per character."""
    steps_per_second: float | None
    settings: Mapping[str, str] | None
    """All that determines the result but seed and text; None where there is no config.yaml."""
    reason: str = ""
    """One line: why it failed, stopped or cannot be read."""

    @property
    def log(self) -> Path | None:
        """Where to read more, if the run left anything to read."""
        return next((path for name in ("log", "console.log") if (path := self.folder / name).is_file()), None)

    @property
    def name(self) -> str:
        """The folder's name, fit for one line."""
        return one_line(self.folder.name)

    @property
    def steps_left(self) -> int | None:
        """Optimizer steps until its end; None where that is not known."""
        return None if self.max_steps is None else max(0, self.max_steps - self.step)


@dataclass(frozen=True)
class Overview:
    """How an experiment stands at one moment."""

    folder: Path
    standings: tuple[Standing, ...]
    """In the order of the folders' names."""
    over: bool
    """Nothing is running, and nothing more will begin by itself."""

    @property
    def counts(self) -> Counter[State]:
        """Runs in each state."""
        return Counter(standing.state for standing in self.standings)

    @property
    def seconds_left(self) -> float | None:
        """About how long until what is running and left has finished, if as many go on running at once.

        A run that has no speed yet is taken to be as fast as the others of its label, or else as all. None where
        nothing is running, or nothing has a speed.
        """
        running = [self._seconds_left(standing) for standing in self.standings if standing.state == "running"]
        left = [self._seconds_left(standing) for standing in self.standings if standing.state == "left"]
        known = [seconds for seconds in running + left if seconds is not None]
        if not running or not known:
            return None
        usual = statistics.fmean(known)  # what a run of which nothing is known is taken to need
        ends = [usual if seconds is None else seconds for seconds in running]
        heapq.heapify(ends)
        for seconds in left:  # each begins where the first one ends
            heapq.heapreplace(ends, ends[0] + (usual if seconds is None else seconds))
        return max(ends)

    def _seconds_left(self, standing: Standing) -> float | None:
        steps = standing.steps_left
        pace = 1 / standing.steps_per_second if standing.steps_per_second else self._pace(standing.label)
        return None if steps is None or pace is None else steps * pace

    def _pace(self, label: str) -> float | None:
        """Mean seconds per step of the runs of this label, or else of all."""
        known = [(s.label, 1 / s.steps_per_second) for s in self.standings if s.steps_per_second]
        paces = [pace for of, pace in known if of == label] or [pace for _, pace in known]
        return statistics.fmean(paces) if paces else None


class Experiment:
    """An experiment that is looked at again and again, by its files alone; each look reads only what has changed.

    Args:
        folder: outputs/<experiment_name>.
        host: the name of this machine, where processes can be looked for.
    """

    def __init__(self, folder: Path, *, host: str | None = None) -> None:
        self.folder = folder
        self._host = platform.node() if host is None else host
        self._runs: dict[Path, _RunFolder] = {}
        self._plans: dict[str, Plan] = {}
        self._plans_signature: _Signature = None
        self._sweeps: dict[int, float] = {}  # on this host: process → when a run said that it belongs to it

    def look(self, now: float) -> Overview:
        """How it stands.

        Args:
            now: seconds since the epoch.
        Raises:
            BadInput: the folder does not exist, cannot be listed, or holds neither a run nor the plan of one.
        """
        folders = {path.name: path for path in subfolders(self.folder)}
        self._read_plans()
        standings = []
        for name in sorted({*folders, *self._plans}):
            plan = self._plans.get(name)
            if name in folders:
                standing = self._stands(folders[name], plan, now)
            else:
                self._runs.pop(self.folder / name, None)
                standing = None
            if standing is None and plan is not None:
                standing = _left(self.folder / name, plan)
            if standing is not None:
                standings.append(standing)
        if not standings:
            raise no_runs(self.folder)
        return Overview(self.folder, tuple(standings), over=self._is_over(standings))

    def _stands(self, folder: Path, plan: Plan | None, now: float) -> Standing | None:
        holder = read_holder(folder)  # before the rest: what ends meanwhile has then written its summary
        if holder and holder.sweep is not None and holder.host == self._host:
            self._sweeps[holder.sweep] = max(holder.since, self._sweeps.get(holder.sweep, 0.0))
        return self._runs.setdefault(folder, _RunFolder(folder)).stands(plan, holder, here=self._host, now=now)

    def _is_over(self, standings: list[Standing]) -> bool:
        states = {standing.state for standing in standings}
        if "running" in states or any(lives(pid, since) for pid, since in self._sweeps.items()):
            return False
        planned = self._plans_signature[2] / 1e9 if self._plans_signature else 0.0
        # a plan that is newer than all that we know of the sweeps is of a sweep that has not begun a run yet
        return "left" not in states or any(since >= planned for since in self._sweeps.values())

    def _read_plans(self) -> None:
        path = self.folder / "planned.jsonl"
        signature = _signature(path)
        if signature == self._plans_signature:
            return
        self._plans_signature, self._plans = signature, read_plans(self.folder)


class _RunFolder:
    """One run's folder; remembers what it has read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.history = History(folder / "metrics.jsonl")
        self._read: tuple[_Signature, _Signature] | None = None
        self._run = Run(folder, {}, {}, "unreadable")
        self._settings: dict[str, str] | None = None

    def stands(self, plan: Plan | None, holder: Holder | None, *, here: str, now: float) -> Standing | None:
        """How the run stands; None where the folder holds nothing of a run yet."""
        self.history.look()
        read = _signature(self.folder / "config.yaml"), _signature(self.folder / "summary.json")
        if read != self._read or read == (None, None):
            self._read, self._run = read, read_run(self.folder)
            self._settings = settings(self._run) if self._run.config else None
            if self._settings:
                self._settings.pop("data.sha256", None)  # only a finished run knows it
        run, history = self._run, self.history
        per_second = self._steps_per_second()
        pace = history.steps_between_rows / per_second if per_second else None
        held = bool(holder and holder.holds(here=here, last_write=history.written, pace=pace, now=now))
        if not held and not holds_a_run(self.folder):
            return None
        state, reason = self._state(held)
        max_steps = steps(_section(run.config, "trainer").get("max_steps"))
        seed = whole(run.config.get("seed"))
        val_losses, step = dict(history.val_losses), history.step
        if state == "finished":
            step = max(step, steps(run.summary.get("steps")) or max_steps or 0)
            val_losses[step] = run.val_loss
        return Standing(
            folder=self.folder,
            label=plan.label if plan and not run.summary else run.label,
            seed=plan.seed if plan and seed is None else seed,
            state=state,
            step=step,
            max_steps=plan.max_steps if plan and max_steps is None else max_steps,
            val_losses=val_losses,
            steps_per_second=per_second,
            settings=self._settings,
            reason=reason,
        )

    def _state(self, held: bool) -> tuple[State, str]:
        run = self._run
        if run.status == "finished":
            return "finished", ""
        if held:
            return "running", ""
        if run.status == "unfinished":
            interrupted = run.summary.get("error")
            step = f"at step {self.history.step:,}" if self.history.step else "before its first row"
            return "stopped", f"{step}: {run.reason}" if interrupted else step
        return run.status, run.reason

    def _steps_per_second(self) -> float | None:
        data = _section(self._run.config, "data")
        batch, window, speed = (
            number(data.get("batch_size")),
            number(data.get("block_size")),
            self.history.chars_per_second,
        )
        return speed / (batch * window) if speed and batch and window and batch * window > 0 else None


_Signature = tuple[int, int, int] | None


def _signature(path: Path) -> _Signature:
    """Changes when the file does; None where there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _left(folder: Path, plan: Plan) -> Standing:
    return Standing(folder, plan.label, plan.seed, "left", 0, plan.max_steps, {}, None, None)


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name)
    return section if isinstance(section, dict) else {}

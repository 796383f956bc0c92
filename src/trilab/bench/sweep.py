"""What an ablation on all cores takes, against the processor time that its runs take one by one."""

import itertools
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from trilab.bench.child import TRAIN
from trilab.bench.machine import cores, machine
from trilab.bench.measured import Measured, Series
from trilab.bench.telling import Tell
from trilab.bench.turns import take_turns
from trilab.errors import BadInput

SWEEP, SHARE = "the sweep, wall time", "its runs one by one, processor time / cores"
MEASURE = "seconds"
NOTES = ("One by one each run is a train.py of its own, start-up included; in the sweep imports are paid once.",)


@dataclass(frozen=True)
class Ablation:
    """Runs of one sweep: each of these strategies with each of these seeds.

    Args:
        keys: of every run besides.
    """

    strategies: tuple[str, ...]
    seeds: tuple[int, ...]
    keys: tuple[str, ...]
    rounds: int

    @property
    def runs(self) -> list[tuple[str, int]]:
        """Strategy and seed of each."""
        return list(itertools.product(self.strategies, self.seeds))


SHORT = Ablation(("none", "ema"), (0, 1), ("trainer.max_steps=300",), rounds=1)
LONG = Ablation(("none", "ema", "attention"), (0, 1), ("trainer.max_steps=2000",), rounds=3)


def measure(*, quick: bool, threads: int, tell: Tell, ablation: Ablation | None = None) -> Measured:
    """Run the sweep, and its runs one by one.

    Args:
        ablation: None: as `quick` says.
    Raises:
        BadInput: a run that does not finish.
    """
    ablation = ablation or (SHORT if quick else LONG)
    jobs = max(1, min(cores() // threads, len(ablation.runs)))
    ways = {
        SWEEP: partial(_sweep, ablation, threads, jobs),
        SHARE: partial(_one_by_one, ablation, threads, jobs * threads),
    }

    def told(name: str, way: Callable[[], float]) -> float:
        seconds = way()
        tell(f"sweep: {name}: {seconds:.1f} s")
        return seconds

    tell(f"sweep: {len(ablation.runs)} runs, {jobs} at a time")
    found = take_turns({name: partial(told, name, way) for name, way in ways.items()}, ablation.rounds)
    case = f"{len(ablation.runs)} runs on {jobs * threads} cores"
    series = tuple(Series(case, MEASURE, name, "s", tuple(values)) for name, values in found.items())
    return Measured("sweep", "cpu", quick, machine(threads), SHARE, series, NOTES)


def _sweep(ablation: Ablation, threads: int, jobs: int) -> float:
    seeds = ",".join(map(str, ablation.seeds))
    keys = [f"agg={','.join(ablation.strategies)}", f"seed={seeds}", "hydra/launcher=joblib"]
    began = time.perf_counter()
    _train(["-m", *keys, f"hydra.launcher.n_jobs={jobs}", f"threads={threads}", *ablation.keys])
    return time.perf_counter() - began


def _one_by_one(ablation: Ablation, threads: int, share: int) -> float:
    before = _processor_seconds()
    for strategy, seed in ablation.runs:
        _train([f"agg={strategy}", f"seed={seed}", f"threads={threads}", *ablation.keys])
    return (_processor_seconds() - before) / share


def _processor_seconds() -> float:
    """Of all processes that this one has waited for, and those that they have waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _train(keys: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [*TRAIN, *keys, "logger=none", f"paths.outputs={folder}"]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr + done.stdout).strip()[-300:]
        raise BadInput(f"train.py {' '.join(keys)} ended with exit code {done.returncode}: {said}")

"""How long it takes until train.py trains, and until help is there, against bare imports."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from trilab.bench.child import TRAIN, training
from trilab.bench.machine import machine
from trilab.bench.measured import Measured, Series
from trilab.bench.telling import Tell
from trilab.bench.turns import Turn, take_turns
from trilab.errors import BadInput

IMPORTS = "import torch, lightning, hydra, wandb"
READY = "; print('ready', flush=True)"
FIRST_STEP, WITH_WANDB = "train.py to the end of its first step", "the same with W&B, offline"
TRAIN_HELP, TRILAB_HELP = "train.py --help", "trilab --help"
CASE, MEASURE = "start-up", "seconds"
NOTES = (
    (
        "From the start of the process: of bare imports, until the last is done; of a training, until its first step "
        "stands in metrics.jsonl, the check of the strategy's causality before it included; of help, to its end."
    ),
)


def measure(*, quick: bool, threads: int, tell: Tell, rounds: int | None = None, keys: Sequence[str] = ()) -> Measured:
    """Start each in turn.

    Args:
        rounds: None: as `quick` says.
        keys: of the training besides its defaults.
    Raises:
        BadInput: a command that does not end well.
    """
    own = [f"threads={threads}", *keys]
    ways: dict[str, Turn] = {
        IMPORTS: _imported,
        FIRST_STEP: partial(_first_step, [*own, "logger=none"]),
        WITH_WANDB: partial(_first_step, [*own, "logger=wandb", "logger.mode=offline"]),
        TRAIN_HELP: partial(_run, [*TRAIN, "--help"]),
        TRILAB_HELP: partial(_run, [sys.executable, "-m", "trilab.cli", "--help"]),
    }

    def told(name: str) -> float:
        seconds = ways[name]()
        tell(f"startup: {name}: {seconds:.2f} s")
        return seconds

    tell("startup: once what loads most, so that files are in memory")
    ways[WITH_WANDB]()
    found = take_turns({name: partial(told, name) for name in ways}, rounds or (1 if quick else 7))
    series = tuple(Series(CASE, MEASURE, name, "s", tuple(values)) for name, values in found.items())
    return Measured("startup", "cpu", quick, machine(threads), IMPORTS, series, NOTES)


def _imported() -> float:
    """Without the end of the process, which takes seconds too."""
    began = time.perf_counter()
    with subprocess.Popen([sys.executable, "-c", IMPORTS + READY], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        seconds = time.perf_counter() - began
    if not said:
        raise BadInput(f"{IMPORTS} ended with exit code {process.returncode}.")
    return seconds


def _run(command: Sequence[str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise BadInput(f"{' '.join(command)} ended with exit code {done.returncode}: {done.stderr.strip()[-300:]}")
    return seconds


def _first_step(keys: Sequence[str]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        lengths = ("trainer.max_steps=1", "trainer.log_every=1", "callbacks.sample_chars=0")
        with training([*keys, *lengths], Path(folder)) as run:
            seconds = run.moment("train/loss", 1)[0] - run.began
            run.process.wait()  # W&B's service has to hear of the end
        return seconds

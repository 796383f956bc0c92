"""How quickly train.py trains, against plain PyTorch loops of the same model on as many threads."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path

import torch

from trilab.bench.child import GRAIN, TICK, training
from trilab.bench.machine import cores, machine
from trilab.bench.measured import Measured, Series
from trilab.bench.plain_loops import (
    PlainLoop,
    as_in_gpt_py,
    as_in_gpt_py_throughout,
    vectorised,
    with_nanogpt_settings,
)
from trilab.bench.telling import Tell
from trilab.bench.turns import take_turns
from trilab.build import build_model
from trilab.compose import composed
from trilab.corpus import read_corpus
from trilab.trainer import multiplies_bfloat16

TRAIN_PY, GPT_PY, VECTORISED = "train.py", "gpt.py's loop", "vectorised loop, fused AdamW"
THROUGHOUT, NANOGPT = "gpt.py's loop and modules", "nanoGPT's settings"
LOOPS = {
    "cpu": {GPT_PY: as_in_gpt_py, VECTORISED: vectorised},
    "cuda": {GPT_PY: as_in_gpt_py, VECTORISED: vectorised, NANOGPT: with_nanogpt_settings},
}
COMPILED, HALF = "trainer.compile=default", "trainer.precision=bf16-mixed"
COMPILED_IN_HALF = f"{COMPILED} {HALF}"
AS_GRAPHS_IN_HALF = f"trainer.compile=reduce-overhead {HALF}"
OF_BLOCKS = {THROUGHOUT: as_in_gpt_py_throughout}  # of whole transformers only
SPEED, ON_PROCESSOR, VALIDATION = "training", "training, by processor time", "validation"
LOSS = "val/loss after a turn's steps"
UNIT, LOSS_UNIT = "characters/s", "nats/character"
NOTES = (
    "train.py is a process of its own, on a terminal, with progress bar, metrics.jsonl and checkpoints (logger=none).",
    "Its speed is counted from outside, between two lines of metrics.jsonl: so without its start-up.",
    "By processor time other work on the machine hardly counts, and neither does what train.py waits for.",
    "Each round has a seed of its own, the same for all ways: so their losses compare in pairs.",
    "The plain loops train the same model object, without logging, checkpoints or clipping.",
    "On all cores each way has as many threads as the machine has cores.",
    f"{THROUGHOUT}: with the transformer written as the lecture writes it, of as many parameters.",
)
NO_HALF = (
    "This processor does not multiply bfloat16: trainer.precision=bf16-mixed, ten times as slow there, is left out."
)


@dataclass(frozen=True)
class Size:
    """A model and its batches.

    Args:
        name: in tables.
        keys: as for train.py.
        also: further ways to run train.py; in bfloat16 where the processor multiplies that.
        large: enough for all cores, on which it is then measured too: there a plain loop runs if nobody says otherwise.
    """

    name: str
    keys: tuple[str, ...]
    also: tuple[str, ...] = ()
    large: bool = False

    @property
    def on_all_cores(self) -> str:
        """Its name there."""
        return f"{self.name}, all cores"


TINY = Size(
    "tiny: B 32, T 8, C 32, one head",
    (
        "agg=attention",
        *("model=gpt", "model.n_layer=1", "model.n_head=1", "model.n_embd=32", "model.norm=false"),
        *("model.residual=false", "model.mlp=false", "model.mlp_width=0", "model.output=false"),
        *("optim=constant", "optim.lr=0.001", "data.batch_size=32", "data.block_size=8"),
    ),
)
NANO = Size(
    "nanoGPT's CPU recipe: B 12, T 64, C 128, 4 layers, 4 heads",
    (
        "agg=attention",
        *("model=gpt", "model.n_layer=4", "model.n_head=4", "model.n_embd=128", "model.dropout=0"),
        *("data.batch_size=12", "data.block_size=64"),
    ),
    also=(COMPILED, HALF, COMPILED_IN_HALF),
    large=True,
)
FULL = Size(
    "gpt.py's full size: B 64, T 256, C 384, 6 layers, 6 heads",
    (
        "agg=attention",
        *("model=gpt", "model.n_layer=6", "model.n_head=6", "model.n_embd=384", "model.dropout=0.2"),
        *("data.batch_size=64", "data.block_size=256", "data.val_chars=65536", "trainer=gpu"),
    ),
    also=(COMPILED, HALF, COMPILED_IN_HALF, AS_GRAPHS_IN_HALF),
)


@dataclass(frozen=True)
class Length:
    """How much is trained.

    Args:
        seconds: of training in one turn, about.
        rounds: how often each way has its turn.
        log_every: steps between two training lines; fewer where these would take longer than a turn.
        val_share: of the text; None: as configured.
    """

    seconds: float
    rounds: int
    log_every: int = 50
    val_share: float | None = None


def measure(
    *,
    quick: bool,
    threads: int,
    device: str,
    tell: Tell,
    also: Sequence[str] = (),
    sizes: Sequence[Size] | None = None,
    length: Length | None = None,
) -> Measured:
    """Let train.py and the plain loops take turns.

    Args:
        quick: leaves out what sizes have beside train.py as it is, on so many threads.
        also: further ways to run train.py, each some keys in one string: "trainer.precision=bf16-mixed".
        sizes: of models; None: those of the bars for this device.
        length: of the turns; None: as `quick` says.
    Raises:
        BadInput: a key that train.py refuses, a text that cannot be had.
    """
    length = length or (Length(0.6, rounds=2, val_share=0.02) if quick else Length(2.0, rounds=11))
    sizes = sizes or ((TINY, NANO) if device == "cpu" else (FULL,))
    in_half = device == "cuda" or multiplies_bfloat16()
    found: list[Series] = []
    for size in sizes:
        own = () if quick else (way for way in size.also if in_half or HALF not in way)
        ways = tuple(dict.fromkeys((*own, *also)))
        found += _of_size(size.name, size.keys, threads, device, ways, length, tell)
        if size.large and device == "cpu" and threads < cores() and not quick:
            found += _of_size(size.on_all_cores, size.keys, cores(), device, ways, length, tell)
    notes = NOTES if in_half else (*NOTES, NO_HALF)
    return Measured("train", device, quick, machine(threads), GPT_PY, tuple(found), notes)


@dataclass(frozen=True)
class _Turn:
    """What one turn came to: characters a second, and nats a character."""

    speed: float
    on_processor: float | None
    validation: float | None = None
    loss: float | None = None


def _of_size(
    case: str, keys: Sequence[str], threads: int, device: str, also: Sequence[str], length: Length, tell: Tell
) -> list[Series]:
    tell(f"train: {case}")
    torch.set_num_threads(threads)
    share = () if length.val_share is None else (f"data.val_share={length.val_share}",)
    keys = (*keys, f"threads={threads}", "logger=none", *share)
    config = composed(keys)
    corpus = read_corpus(config.data.source)
    val_chars = round(len(corpus.tokens) * config.data.val_share)
    tokens = torch.from_numpy(corpus.tokens[: len(corpus.tokens) - val_chars]).long().to(device)
    loops = {
        name: make(build_model(config, len(corpus.vocabulary)).to(device).train(), tokens, config.data.batch_size)
        for name, make in (LOOPS[device] | (OF_BLOCKS if config.model.get("mlp") else {})).items()
    }
    seconds = {name: _seconds_of_a_step(loop, device) for name, loop in loops.items()}  # warms them up too
    steps, log_every = _steps(seconds[VECTORISED], length)
    chars = steps * config.data.batch_size * config.data.block_size
    ours = {TRAIN_PY: keys} | {f"{TRAIN_PY} {given}": (*keys, *given.split()) for given in also}
    ways: dict[str, Callable[[int], _Turn]] = {
        name: partial(_plain, loop, steps, chars, device) for name, loop in loops.items()
    }
    for name, own in ours.items():
        ways[name] = partial(_train_py, own, steps, log_every, chars, val_chars)
    turns: dict[str, list[_Turn]] = {name: [] for name in ways}

    def turn(name: str) -> float:
        done = ways[name](len(turns[name]))
        turns[name].append(done)
        tell(f"train: {case}: {name}: {done.speed:,.0f} {UNIT}")
        return done.speed

    take_turns({name: partial(turn, name) for name in ways}, length.rounds)
    found = []
    for measure_, unit, of in (
        (SPEED, UNIT, attrgetter("speed")),
        (ON_PROCESSOR, UNIT, attrgetter("on_processor")),
        (VALIDATION, UNIT, attrgetter("validation")),
        (LOSS, LOSS_UNIT, attrgetter("loss")),
    ):
        for name, done in turns.items():
            values = [of(one) for one in done]
            if None not in values:
                found.append(Series(case, measure_, name, unit, tuple(values)))
    return found


def _plain(loop: PlainLoop, steps: int, chars: int, device: str, seed: int) -> _Turn:
    torch.manual_seed(seed)
    busy, began = time.process_time(), time.perf_counter()
    loop.steps(steps)
    _wait(device)
    seconds, processor = time.perf_counter() - began, time.process_time() - busy
    return _Turn(chars / seconds, chars / processor)


def _train_py(keys: Sequence[str], steps: int, log_every: int, chars: int, val_chars: int, seed: int) -> _Turn:
    """Count from the first training line on, then the validation that follows.

    It is not the last validation, which also looks at where the loss arose.
    """
    warm = log_every
    last = warm + steps
    lengths = (f"trainer.max_steps={2 * last}", f"trainer.val_every={last}", f"trainer.log_every={log_every}")
    own = (*keys, *lengths, f"seed={seed}")
    with tempfile.TemporaryDirectory() as folder, training(own, Path(folder)) as run:
        (began, _), busy = run.moment("train/loss", warm), run.processor_seconds()
        (ended, _), busy_then = run.moment("train/loss", last), run.processor_seconds()
        validated, loss = run.moment("val/loss", last)
    # no turn is shorter than the clocks' grain
    on_processor = None if busy is None or busy_then is None else chars / max(busy_then - busy, TICK)
    return _Turn(chars / max(ended - began, GRAIN), on_processor, val_chars / max(validated - ended, GRAIN), loss)


def _steps(seconds: float, length: Length) -> tuple[int, int]:
    """Of one turn, and between two training lines, for a step that takes so long."""
    log_every = min(length.log_every, max(1, round(length.seconds / seconds)))
    return max(1, round(length.seconds / seconds / log_every)) * log_every, log_every


def _seconds_of_a_step(loop: PlainLoop, device: str) -> float:
    loop.steps(5)
    _wait(device)
    began, number = time.perf_counter(), 0
    while time.perf_counter() - began < 0.3:
        loop.steps(5)
        _wait(device)
        number += 5
    return (time.perf_counter() - began) / number


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()

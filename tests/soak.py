"""Kill trainings at random moments, run the same command again, and compare with one that was never killed.

    python -m tests.soak                                            fifty kills, and a sweep killed five times
    python -m tests.soak --kills 5 --only "one process"             a short one
    python -m tests.soak --page docs/reliability.md                 also writes the table into the page

Every run must end with the same bits: all of best.ckpt and last.ckpt, metrics.jsonl, summary.json, the sample,
but for what a clock wrote. No checkpoint may be damaged at any moment, no line of metrics.jsonl lost or doubled, and
nothing may be left behind: no process, no half-written file, no lock. Linux only.
"""

import argparse
import csv
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from trilab import checkpoint
from trilab.atomic import PARTIAL
from trilab.errors import BadInput
from trilab.holder import HOLDER
from trilab.lock import LOCK

from .conftest import ROOT, untimed

VAL_EVERY = 50
# All that a resume has to get right at once: dropout, a rate that moves, accumulation, clipping, and saves, validations
# and lines of metrics that fall on different steps. Small batches make a validation last.
DEMANDING = (
    *("model=gpt", "agg=attention", "model.dropout=0.2", "model.n_embd=16", "model.n_layer=2", "optim=cosine"),
    *("trainer.accumulate=2", "trainer.checkpoint_every=7", f"trainer.val_every={VAL_EVERY}", "trainer.log_every=10"),
    *("data.val_chars=64", "callbacks.sample_chars=20", "logger=none", "threads=1"),
)
KINDS: Mapping[str, Sequence[str]] = {
    "one process": ("trainer.max_steps=400",),
    "two processes": ("trainer.max_steps=150", "trainer=ddp"),
    "16-bit with a loss scaler": ("trainer.max_steps=200", "trainer.precision=16-mixed"),
}
TEXT = "".join(chr(97 + (i * i + i // 7) % 23) for i in range(20_000))
# Seconds in which what has lost the command that started it must have ended.
ENDS_WITHIN = 60.0


@dataclass
class Tally:
    """What the kills of one kind of run came to."""

    kills: Counter[str] = field(default_factory=Counter)
    """By way."""
    moments: Counter[str] = field(default_factory=Counter)
    """The same kills by what they were aimed at."""
    runs: int = 0
    equal: int = 0
    damaged: int = 0
    rows_lost: int = 0
    rows_doubled: int = 0
    left_behind: int = 0
    """Processes that live on, locks and half-written files."""

    @property
    def holds(self) -> bool:
        """Whether nothing was lost."""
        lost = self.damaged + self.rows_lost + self.rows_doubled + self.left_behind
        return self.equal == self.runs > 0 == lost

    def compare(self, run: Path, expected: "Ended") -> None:
        """Count a run that has finished after all, against one that was never killed."""
        found = ended(run)
        different = found.differences(expected)
        for line in different:
            print(f"{run}: {line}", file=sys.stderr)
        steps, there = ([(row["step"], *sorted(row)) for row in it.metrics] for it in (expected, found))
        self.runs += 1
        self.equal += not different
        self.rows_lost += len(set(steps) - set(there))
        self.rows_doubled += len(there) - len(set(there))


@dataclass(frozen=True)
class Ended:
    """All that two equal runs have in common."""

    kept: Mapping[str, Any]
    """Every value in its checkpoints and files, by name."""
    metrics: list[dict[str, Any]]

    def differences(self, other: "Ended") -> list[str]:
        """What is not the same to the last bit."""
        names = sorted({*self.kept, *other.kept})
        found = [name for name in names if not _same(self.kept.get(name), other.kept.get(name))]
        found += [f"{one} != {two}" for one, two in zip(self.metrics, other.metrics, strict=False) if one != two]
        return found + [f"{len(self.metrics)} != {len(other.metrics)} lines"] * (
            len(self.metrics) != len(other.metrics)
        )


def soak(kind: str, *knobs: str, kills: int, seed: int, text: Path, folder: Path) -> Tally:
    """Kill runs of one kind so many times, at moments and in ways drawn from a seed.

    Args:
        kind: a key of KINDS.
        knobs: what differs from that kind.
        kills: those that hit a living command; what has ended before it is hit does not count.
        text: the file to learn from.
        folder: where the runs may write.
    """
    draw = random.Random(f"{seed} {kind}")
    command = (*DEMANDING, f"data.path={text}", "data=file", *KINDS[kind], *knobs)
    began = time.monotonic()
    reference = _start(folder / "reference", *command)
    _until(reference, lambda: bool(rows(folder / "reference")))
    starts_in = time.monotonic() - began
    _finish(reference)
    lasts = time.monotonic() - began
    expected = ended(run_in(folder / "reference"))
    tally = Tally()
    while sum(tally.kills.values()) < kills:
        outputs = folder / f"victim-{tally.runs}"
        killed = True
        while killed:
            process = _start(outputs, *command)
            killed = False
            if sum(tally.kills.values()) < kills:
                moment = draw.choice(sorted(MOMENTS))
                how = draw.choice(sorted(WAYS))
                MOMENTS[moment](Victim(process, outputs, starts_in, lasts, len(expected.metrics)), draw)
                killed = process.poll() is None
                if killed:
                    WAYS[how](process, draw)
                    tally.kills[how] += 1
                    tally.moments[moment] += 1
            _finish(process, may_fail=killed)
            tally.damaged += damaged(outputs)
        tally.left_behind += left_behind(outputs)
        tally.compare(run_in(outputs), expected)
    return tally


def soak_sweep(*, kills: int, seed: int, text: Path, folder: Path, jobs: int = 12) -> Tally:
    """Kill a joblib sweep so many times; its runs and its report must be those of a sweep never killed."""
    draw = random.Random(f"{seed} sweep")
    seeds = ",".join(map(str, range(jobs // 4)))
    command = (
        *("-m", "agg=none,softmax,table,attention", f"seed={seeds}", "data=file", f"data.path={text}"),
        *("hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "trainer.max_steps=300", "trainer.checkpoint_every=20"),
        *("trainer.val_every=100", "logger=none", "callbacks.sample_chars=0", "model.dropout=0.1"),
    )
    reference, victim = folder / "reference", folder / "victim"
    _finish(_start(reference, *command))
    tally = Tally()
    for number in range(kills):
        process = _start(victim, *command)
        # spread over the whole sweep, so that each kill finds it with runs behind and ahead of it
        _until(process, partial(_has_ended, victim, number * jobs // (kills + 1)))
        time.sleep(draw.uniform(0, 8) if number == 0 else draw.uniform(0, 2))
        how = draw.choice(sorted(WAYS))
        if process.poll() is None:
            WAYS[how](process, draw)
            tally.kills[how] += 1
        _finish(process, may_fail=True)
        tally.damaged += damaged(victim)
    _finish(_start(victim, *command))
    tally.left_behind = left_behind(victim)
    for config in sorted(reference.glob("*/*/config.yaml")):
        tally.compare(victim / config.parent.relative_to(reference), ended(config.parent))
    if report_of(victim) != report_of(reference):
        print(f"{victim}: report.csv", file=sys.stderr)
        tally.equal = 0
    return tally


def _has_ended(outputs: Path, runs: int) -> bool:
    return len(list(outputs.glob("*/*/summary.json"))) >= runs


def report_of(outputs: Path) -> list[dict[str, str]]:
    """report.csv but for what a clock wrote."""
    [path] = outputs.glob("*/report.csv")
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {key: value for key, value in row.items() if key not in ("chars_per_second", "seconds")}
            for row in csv.DictReader(file)
        ]


def ended(run: Path) -> Ended:
    """What a finished run has left."""
    kept: dict[str, Any] = {}
    for name in ("best.ckpt", "last.ckpt"):
        kept |= _leaves(untimed(checkpoint.load(run / "checkpoints" / name)), name)
    kept["config.yaml"] = (run / "config.yaml").read_text(encoding="utf-8")
    for sample in run.glob("sample.txt"):
        kept["sample.txt"] = sample.read_text(encoding="utf-8")
    summary = untimed(json.loads((run / "summary.json").read_text(encoding="utf-8")))
    del summary["git"]  # of the project, where somebody may commit meanwhile
    kept |= _leaves(summary, "summary.json")
    outputs = str(run.parents[1])
    alike = {
        name: value.replace(outputs, "") if isinstance(value, str) else value
        for name, value in kept.items()
        if "/TrainingProgress/" not in name  # what it remembers is the speed
    }
    return Ended(alike, untimed(rows(run)))


def rows(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of the only metrics.jsonl in or below a folder; none where there is none yet."""
    text = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("metrics.jsonl"))
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def run_in(outputs: Path) -> Path:
    """The folder of the only run."""
    [config] = outputs.glob("*/*/config.yaml")
    return config.parent


def _leaves(tree: Any, name: str) -> dict[str, Any]:
    if isinstance(tree, dict):
        return {path: leaf for key, value in tree.items() for path, leaf in _leaves(value, f"{name}/{key}").items()}
    if isinstance(tree, list | tuple):
        return {path: leaf for at, value in enumerate(tree) for path, leaf in _leaves(value, f"{name}/{at}").items()}
    return {name: tree}


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and bool(one == other)


def _start(outputs: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    outputs.mkdir(parents=True, exist_ok=True)
    with (outputs / "said.txt").open("ab") as said:
        return subprocess.Popen(
            [sys.executable, str(ROOT / "train.py"), *arguments, f"paths.outputs={outputs}"],
            cwd=outputs,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


def _until(process: "subprocess.Popen[bytes]", true: Callable[[], bool], *, every: float = 0.05) -> None:
    """Wait for what is looked for, or for the command's end."""
    while process.poll() is None and not true():
        time.sleep(every)


def _finish(process: "subprocess.Popen[bytes]", *, may_fail: bool = False) -> None:
    try:
        code = process.wait(timeout=600)
    except subprocess.TimeoutExpired:
        _kill([process.pid, *descendants(process.pid)])
        raise
    if code and not may_fail:
        raise RuntimeError(f"{process.args!r} ended with exit code {code}")


def damaged(outputs: Path) -> int:
    """How many checkpoints are there and cannot be read."""
    found = 0
    for path in outputs.glob("*/*/checkpoints/*.ckpt"):
        try:
            checkpoint.load(path)
        except BadInput:
            # one that a process left behind renames at this moment is whole under its other name
            found += path.exists()
    return found


def left_behind(outputs: Path) -> int:
    """How many processes do not end by themselves, and how many files tell of work that nobody does any more."""
    waits_until = time.monotonic() + ENDS_WITHIN
    while (living := processes_in(outputs)) and time.monotonic() < waits_until:
        time.sleep(0.1)
    traces = [path for path in outputs.rglob("*") if path.name in (LOCK, HOLDER) or path.name.endswith(PARTIAL)]
    for trace in (*living, *traces):
        print(f"left behind: {trace}", file=sys.stderr)
    return len(living) + len(traces)


def processes_in(folder: Path) -> list[int]:
    """Every process whose working folder is this one: a command started there, and whoever it started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        with suppress(OSError):
            if path.readlink() == folder:
                found.append(int(path.parent.name))
    return found


def descendants(pid: int) -> list[int]:
    """Every process below this one, the nearest first."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found = parents.get(pid, [])
    for child in found:
        found = found + parents.pop(child, [])
    return found + [pid for child in found for pid in descendants(child) if pid not in found]


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _all_at_once(process: "subprocess.Popen[bytes]", draw: random.Random) -> None:
    _kill([process.pid, *descendants(process.pid)])


def _the_command_alone(process: "subprocess.Popen[bytes]", draw: random.Random) -> None:
    process.kill()


def _any_one_of_them(process: "subprocess.Popen[bytes]", draw: random.Random) -> None:
    _kill([draw.choice([process.pid, *descendants(process.pid)])])


def _terminate(process: "subprocess.Popen[bytes]", draw: random.Random) -> None:
    process.terminate()


def _terminate_the_group(process: "subprocess.Popen[bytes]", draw: random.Random) -> None:
    os.killpg(process.pid, signal.SIGTERM)


def _ctrl_c(process: "subprocess.Popen[bytes]", draw: random.Random) -> None:
    os.killpg(process.pid, signal.SIGINT)


WAYS: Mapping[str, Callable[["subprocess.Popen[bytes]", random.Random], None]] = {
    "SIGKILL to all processes": _all_at_once,
    "SIGKILL to the command": _the_command_alone,
    "SIGKILL to one process": _any_one_of_them,
    "SIGTERM to the command": _terminate,
    "SIGTERM to the group": _terminate_the_group,
    "SIGINT to the group": _ctrl_c,
}


@dataclass(frozen=True)
class Victim:
    """A command that is about to be killed.

    `starts_in` and `lasts` are the seconds that one never killed takes to its first line of metrics and to its end,
    `lines` how many it writes.
    """

    process: "subprocess.Popen[bytes]"
    outputs: Path
    starts_in: float
    lasts: float
    lines: int


def _while_it_starts(victim: Victim, draw: random.Random) -> None:
    time.sleep(draw.uniform(0, victim.starts_in))


def _at_any_time(victim: Victim, draw: random.Random) -> None:
    time.sleep(draw.uniform(0, victim.lasts))


def _while_it_steps(victim: Victim, draw: random.Random) -> None:
    there = len(rows(victim.outputs))
    wanted = draw.randint(there, victim.lines)
    _until(victim.process, lambda: len(rows(victim.outputs)) > wanted)


def _while_it_saves(victim: Victim, draw: random.Random) -> None:
    there = len(rows(victim.outputs))
    wanted = draw.randint(there, victim.lines)
    _until(victim.process, lambda: len(rows(victim.outputs)) > wanted)
    _until(victim.process, lambda: any(victim.outputs.glob(f"*/*/checkpoints/.*{PARTIAL}")), every=0)


def _while_it_validates(victim: Victim, draw: random.Random) -> None:
    before = rows(victim.outputs)
    _until(victim.process, lambda: rows(victim.outputs) != before and _is_validating(rows(victim.outputs)), every=0)


def _after_its_last_line(victim: Victim, draw: random.Random) -> None:
    _until(victim.process, lambda: len(rows(victim.outputs)) >= victim.lines, every=0)
    time.sleep(draw.uniform(0, 0.5))


def _is_validating(lines: list[dict[str, Any]]) -> bool:
    return bool(lines) and "val/loss" not in lines[-1] and lines[-1]["step"] % VAL_EVERY == 0


MOMENTS: Mapping[str, Callable[[Victim, random.Random], None]] = {
    "at any time": _at_any_time,
    "while it starts": _while_it_starts,
    "while it steps": _while_it_steps,
    "while it saves": _while_it_saves,
    "while it validates": _while_it_validates,
    "after its last line": _after_its_last_line,
}


def table(tallies: Mapping[str, Tally]) -> str:
    """Markdown."""
    head = "| what was killed | kills | runs | same bits | damaged checkpoints | lines lost | doubled | left behind |"
    lines = [head, re.sub(r"[^|]+", " --- ", head)]
    for kind, tally in tallies.items():
        same = f"{tally.equal} of {tally.runs}"
        bad = (tally.damaged, tally.rows_lost, tally.rows_doubled, tally.left_behind)
        cells = (kind, sum(tally.kills.values()), tally.runs, same, *bad)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    ways: Counter[str] = Counter()
    moments: Counter[str] = Counter()
    for tally in tallies.values():
        ways.update(tally.kills)
        moments.update(tally.moments)
    lines += ["", "| how | times |", "| --- | --- |", *(f"| {way} | {ways[way]} |" for way in WAYS)]
    lines += ["", "| when (single runs) | times |", "| --- | --- |", *(f"| {it} | {moments[it]} |" for it in MOMENTS)]
    return "\n".join(lines)


def main() -> None:
    """Soak, print the table; exit code 1 if something was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50, help="over all kinds of run (default: 50)")
    parser.add_argument("--seed", type=int, default=0, help="of moments and ways (default: 0)")
    parser.add_argument("--only", choices=[*KINDS, "sweep"], help="this kind alone")
    parser.add_argument("--page", type=Path, help="a page with the two marks between which the table stands")
    given = parser.parse_args()
    kinds = [kind for kind in KINDS if given.only in (kind, None)]
    tallies = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = folder / "text.txt"
        text.write_text(TEXT)
        for number, kind in enumerate(kinds):
            kills = given.kills // len(kinds) + (number < given.kills % len(kinds))
            tallies[kind] = soak(kind, kills=kills, seed=given.seed, text=text, folder=folder / kind)
            print(f"{kind}: {tallies[kind]}", flush=True)
        if given.only in ("sweep", None):
            sweep = soak_sweep(kills=5, seed=given.seed, text=text, folder=folder / "sweep")
            tallies["a sweep of 12 runs"] = sweep
            print(f"sweep: {sweep}", flush=True)
    print(table(tallies))
    if given.page:
        before, mark, rest = given.page.read_text(encoding="utf-8").partition("<!-- soak -->\n")
        after = rest.partition("<!-- /soak -->")[2]
        written = f"{before}{mark}{table(tallies)}\n<!-- /soak -->{after}"
        given.page.write_text(written, encoding="utf-8")
    sys.exit(not all(tally.holds for tally in tallies.values()))


if __name__ == "__main__":
    main()

"""Kill trainings at random moments, run the same command again, and compare with one that was never killed.

    python -m tests.soak                                            fifty kills, and a sweep killed five times
    python -m tests.soak --kills 5 --only "one process"             a short one
    python -m tests.soak --page docs/reliability.md                 also writes the table into the page

Every run must end with the same bits: weights, optimizer, metrics.jsonl and summary.json but for what a clock wrote. No
checkpoint may be damaged at any moment, no line of metrics.jsonl lost or doubled.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from trilab import checkpoint

from .conftest import ROOT, untimed

# All that a resume has to get right at once: dropout, a rate that moves, accumulation, clipping, and saves, validations
# and lines of metrics that fall on different steps.
DEMANDING = (
    *("model=gpt", "agg=attention", "model.dropout=0.2", "model.n_embd=16", "model.n_layer=2", "optim=cosine"),
    *("trainer.max_steps=400", "trainer.accumulate=2", "trainer.checkpoint_every=7", "trainer.val_every=50"),
    *("trainer.log_every=10", "callbacks.sample_chars=20", "logger=none", "threads=1"),
)
KINDS: Mapping[str, Sequence[str]] = {
    "one process": (),
    "two processes": ("trainer=ddp", "trainer.max_steps=150"),
    "16-bit with a loss scaler": ("trainer.precision=16-mixed", "trainer.max_steps=200"),
}


@dataclass
class Tally:
    """What the kills of one kind of run came to."""

    kills: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    equal: int = 0
    damaged: int = 0
    rows_lost: int = 0
    rows_doubled: int = 0

    @property
    def holds(self) -> bool:
        """Whether nothing was lost."""
        return self.equal == self.runs > 0 and not (self.damaged or self.rows_lost or self.rows_doubled)


@dataclass(frozen=True)
class Ended:
    """All that two equal runs have in common."""

    tensors: Mapping[str, torch.Tensor]
    metrics: list[dict[str, Any]]
    summary: dict[str, Any]

    def differences(self, other: "Ended") -> list[str]:
        """What is not the same to the last bit."""
        names = sorted({*self.tensors, *other.tensors})
        found = [
            name
            for name in names
            if not (name in self.tensors and name in other.tensors)
            or not torch.equal(self.tensors[name], other.tensors[name])
        ]
        found += [f"{one} != {two}" for one, two in zip(self.metrics, other.metrics, strict=False) if one != two]
        found += [f"{len(self.metrics)} != {len(other.metrics)} lines"] * (len(self.metrics) != len(other.metrics))
        keys = sorted({*self.summary, *other.summary})
        return found + [f"summary: {key}" for key in keys if self.summary.get(key) != other.summary.get(key)]


def soak(kind: str, *, kills: int, seed: int, text: Path, folder: Path) -> Tally:
    """Kill runs of one kind so many times, at moments and in ways drawn from a seed.

    Args:
        kind: a key of KINDS.
        kills: those that hit a living command; what has ended before it is hit does not count.
        text: the file to learn from.
        folder: where the runs may write.
    """
    draw = random.Random(f"{seed} {kind}")
    command = (*DEMANDING, f"data.path={text}", "data=file", *KINDS[kind])
    began = time.monotonic()
    reference = _start(folder / "reference", *command)
    _until(folder / "reference", reference, rows=1)
    first_row = time.monotonic() - began
    _finish(reference)
    whole = time.monotonic() - began
    expected = ended(run_in(folder / "reference"))
    tally = Tally()
    while sum(tally.kills.values()) < kills:
        outputs = folder / f"victim-{tally.runs}"
        while True:
            process = _start(outputs, *command)
            if sum(tally.kills.values()) < kills:
                # most of them while it trains, some while it begins
                time.sleep(draw.uniform(0.3 * first_row, whole))
                how = draw.choice(sorted(WAYS))
                if process.poll() is None:
                    WAYS[how](process, draw)
                    tally.kills[how] += 1
            _finish(process, may_fail=True)
            tally.damaged += _damaged(outputs)
            if list(outputs.glob("*/*/summary.json")) and process.returncode == 0:
                break
        found = ended(run_in(outputs))
        tally.runs += 1
        different = found.differences(expected)
        tally.equal += not different
        for line in different:
            print(f"{outputs.name}: {line}", file=sys.stderr)
        steps, there = ([(row["step"], *sorted(row)) for row in it.metrics] for it in (expected, found))
        tally.rows_lost += len(set(steps) - set(there))
        tally.rows_doubled += len(there) - len(set(there))
    return tally


def soak_sweep(*, kills: int, seed: int, text: Path, folder: Path, jobs: int = 12) -> Tally:
    """Kill a joblib sweep so many times; its report must be the one of a sweep never killed."""
    draw = random.Random(f"{seed} sweep")
    seeds = ",".join(map(str, range(jobs // 4)))
    command = (
        *("-m", "agg=none,softmax,table,attention", f"seed={seeds}", "data=file", f"data.path={text}"),
        *("hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "trainer.max_steps=300", "trainer.checkpoint_every=20"),
        *("trainer.val_every=100", "logger=none", "callbacks.sample_chars=0", "model.dropout=0.1"),
    )
    began = time.monotonic()
    _finish(_start(folder / "reference", *command))
    whole = time.monotonic() - began
    tally = Tally(runs=1)
    for _ in range(kills):
        process = _start(folder / "victim", *command)
        time.sleep(draw.uniform(0.2, 0.6) * whole)
        how = draw.choice(sorted(WAYS))
        if process.poll() is None:
            WAYS[how](process, draw)
            tally.kills[how] += 1
        _finish(process, may_fail=True)
        tally.damaged += _damaged(folder / "victim")
    _finish(_start(folder / "victim", *command))
    tally.equal = int(report_of(folder / "victim") == report_of(folder / "reference"))
    return tally


def report_of(outputs: Path) -> list[dict[str, str]]:
    """report.csv but for the speed."""
    [path] = outputs.glob("*/report.csv")
    with path.open(encoding="utf-8", newline="") as file:
        return [{key: value for key, value in row.items() if key != "chars_per_second"} for row in csv.DictReader(file)]


def ended(run: Path) -> Ended:
    """What a finished run has left."""
    content = checkpoint.load(run / "checkpoints" / "last.ckpt")
    tensors = dict(_tensors({"weights": content["state_dict"], "optimizer": content["optimizer_states"]}))
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((run / "summary.json").read_text())
    return Ended(tensors, untimed(metrics), untimed(summary))


def run_in(outputs: Path) -> Path:
    """The folder of the only run."""
    [config] = outputs.glob("*/*/config.yaml")
    return config.parent


def _tensors(tree: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(tree, torch.Tensor):
        yield name, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from _tensors(value, f"{name}/{key}")
    elif isinstance(tree, list):
        for place, value in enumerate(tree):
            yield from _tensors(value, f"{name}/{place}")


def _start(outputs: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    outputs.mkdir(parents=True, exist_ok=True)
    with (outputs / "said.txt").open("ab") as said:
        return subprocess.Popen(
            [sys.executable, ROOT / "train.py", *arguments, f"paths.outputs={outputs}"],
            cwd=outputs,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )


def _until(outputs: Path, process: "subprocess.Popen[bytes]", *, rows: int) -> None:
    """Wait for so many lines of metrics."""
    while process.poll() is None:
        if any(len(path.read_text().splitlines()) >= rows for path in outputs.glob("*/*/metrics.jsonl")):
            return
        time.sleep(0.05)


def _finish(process: "subprocess.Popen[bytes]", *, may_fail: bool = False) -> None:
    code = process.wait(timeout=600)
    if code and not may_fail:
        raise RuntimeError(f"{process.args} ended with exit code {code}")


def _damaged(outputs: Path) -> int:
    found = 0
    for path in outputs.glob("*/*/checkpoints/*.ckpt"):
        try:
            checkpoint.load(path)
        except (ValueError, FileNotFoundError) as error:
            # one that a process left behind renames at this moment is whole under its other name
            found += path.exists() and "no such file" not in str(error)
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


WAYS = {
    "SIGKILL to all processes": _all_at_once,
    "SIGKILL to the command": _the_command_alone,
    "SIGKILL to one process": _any_one_of_them,
    "SIGTERM to the command": _terminate,
    "SIGTERM to the group": _terminate_the_group,
    "SIGINT to the group": _ctrl_c,
}


def table(tallies: Mapping[str, Tally]) -> str:
    """Markdown."""
    head = "| what was killed | kills | runs | ended with the same bits | damaged checkpoints | lines lost | doubled |"
    lines = [head, re.sub(r"[^|]+", " --- ", head)]
    for kind, tally in tallies.items():
        same = f"{tally.equal} of {tally.runs}"
        lines.append(
            f"| {kind} | {sum(tally.kills.values())} | {tally.runs} | {same} | {tally.damaged} | {tally.rows_lost} | "
            f"{tally.rows_doubled} |"
        )
    ways: Counter[str] = Counter()
    for tally in tallies.values():
        ways.update(tally.kills)
    lines += ["", "| how | times |", "| --- | --- |", *(f"| {way} | {ways[way]} |" for way in WAYS)]
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
        text.write_text("".join(chr(97 + (i * i + i // 7) % 23) for i in range(20_000)))
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

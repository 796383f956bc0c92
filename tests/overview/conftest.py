"""Run folders as plain files, in whatever state."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

NOW = 1_800_000_000.0
"""Seconds since the epoch at which tests look."""


@pytest.fixture
def add_run(experiment: Path) -> Callable[..., Path]:
    """Adds a run that was begun: add_run("sum", 1, losses={500: 2.9}, ended="finished", held={"pid": …}).

    `losses` become rows of metrics.jsonl: a step every 50 with the speed, val/loss where it is given. One step reads
    256 characters, so 25,600 characters a second are 100 steps a second.
    """

    def add(
        agg: str,
        seed: int = 0,
        *,
        losses: dict[int, float] | None = None,
        ended: str | None = None,
        error: dict[str, Any] | None = None,
        held: dict[str, Any] | str | None = None,
        speed: float = 25_600.0,
        max_steps: int = 1000,
        label: str | None = None,
        knobs: dict[str, Any] | None = None,
        folder: str | None = None,
    ) -> Path:
        run = experiment / (folder or f"{label or agg}-seed{seed}-{'0' * 8}")
        run.mkdir(exist_ok=True)
        config = {
            "seed": seed,
            "label": label,
            "agg": {"_target_": f"trilab.agg.{agg}.{agg.title()}", **(knobs or {})},
            "data": {"block_size": 8, "batch_size": 32},
            "trainer": {"max_steps": max_steps},
        }
        (run / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        (run / "log").write_text("", encoding="utf-8")
        if losses:
            with (run / "metrics.jsonl").open("w", encoding="utf-8") as file:
                for step in range(50, max(losses) + 1, 50):
                    file.write(json.dumps({"step": step, "train/loss": 2.5, "chars_per_second": speed}) + "\n")
                    if step in losses:
                        file.write(json.dumps({"step": step, "val/loss": losses[step]}) + "\n")
        if ended:
            summary = {"agg": agg, "label": label or agg, "seed": seed, "status": ended, "error": error}
            if ended == "finished":
                assert losses
                summary |= {"val_loss": losses[max(losses)], "steps": max(losses), "data": {"sha256": "0" * 64}}
            (run / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
        if held is not None:
            text = held if isinstance(held, str) else json.dumps(held)
            (run / ".held_by").write_text(text, encoding="utf-8")
        return run

    return add


@pytest.fixture
def plan(experiment: Path) -> Callable[..., None]:
    """Appends a run to the experiment's plan: plan("sum", 1)."""

    def append(label: str, seed: int = 0, *, max_steps: int = 1000) -> None:
        line = {"run": f"{label}-seed{seed}-{'0' * 8}", "label": label, "seed": seed, "max_steps": max_steps}
        with (experiment / "planned.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    return append


@pytest.fixture
def living() -> Iterator[int]:
    """The number of a process that lives until the test is over."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process.pid
        process.communicate(b"\n")


@pytest.fixture
def dead() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pass
    return process.pid


def touched(path: Path, when: float) -> None:
    """Have a file last written to at that time."""
    os.utime(path, (when, when))

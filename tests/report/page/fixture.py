"""A whole experiment as files: everything that a run can leave, with numbers that follow from a seed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LINES = {
    "uniform": 4.174,
    "unigram": 3.347,
    "windowed": {"2": 2.494, "3": 2.201, "4": 2.036, "5": 2.004, "6": 2.001},
    "full": {"2": 2.494, "3": 2.198, "4": 2.03, "5": 1.997, "6": 1.993},
    "source": None,
}


def leave_all(
    add_run: Callable[..., Path], name: str, level: float, *, seed: int, T: int = 8, H: int = 1, layers: int = 1
) -> Path:
    """One finished run with curves, loss by position, tables, a sample and a command.

    Args:
        add_run: the fixture.
        name: of the strategy.
        level: its loss, nats per character; seeds move it.
        seed: of the run.
        T, H, layers: positions, heads and layers of its tables.
    """
    random = np.random.default_rng([seed, *name.encode()])
    shared = np.random.default_rng(seed).normal(0, 0.01)  # what the seed does to all rows
    loss = float(level + shared + random.normal(0, 0.002))
    by_position = [float(loss + 0.12 * (level - 2.3) * np.exp(-t / 2)) for t in range(T)]
    run = add_run(
        name,
        seed=seed,
        val_loss=loss,
        config={"data": {"block_size": T, "batch_size": 32}, "model": {"n_head": H}},
        summary={
            "best_val_loss": loss - 0.003,
            "test_loss": loss + 0.05,
            "n_params": 4000 + 97 * len(name),
            "flops_per_char": 26_000.0 * len(name),
            "seconds": 9.5 + len(name),
            "steps": 3000,
            "command": f"python train.py experiment=part03 agg={name} seed={seed}",
            "loss_by_position": by_position,
            "references": LINES,
            "git": "2f88229c7a5a64b6a8fb79187ee92013c9805895",
            "versions": {"python": "3.11.7", "torch": "2.13.0"},
            "hardware": {"machine": "x86_64", "cpus": 2},
        },
    )
    steps = range(250, 3001, 250)
    curve = ({"step": s, "val/loss": loss + 1.5 * float(np.exp(-s / 300)) + random.normal(0, 0.004)} for s in steps)
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in curve))
    (run / "sample.txt").write_text("ROMEO:\nAnd thou the wit baim\n" * 6)
    causal = np.tril(np.ones((T, T)))
    tables: dict[str, Any] = {}
    for layer in range(layers):
        for when, size in (("before", 0.3), ("after", 1.5)):
            scores = np.exp(random.normal(0, size, (H, T, T))) * causal
            tables[f"{when}/layer_{layer}"] = (scores / scores.sum(-1, keepdims=True)).astype(np.float32)
    np.savez(run / "tables.npz", **tables)
    return run

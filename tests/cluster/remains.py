"""What a run leaves, without what depends on the hour and the machine: two runs that are the same leave the same."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch

# `covered`: the examination before a training tries as much as fits into some seconds
TIMINGS = ("command", "seconds", "chars_per_second", "covered")


def of(folder: Path) -> dict[str, Any]:
    """A finished run: every tensor of last.ckpt as the hash of its bits, metrics.jsonl and summary.json."""
    content = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    moments = content["optimizer_states"][0]["state"]
    return {
        "weights": {name: _bits(tensor) for name, tensor in content["state_dict"].items()},
        "moments": {
            f"{number}.{name}": _bits(tensor) for number, each in moments.items() for name, tensor in each.items()
        },
        "rows": rows(folder),
        "summary": summary(folder),
    }


def rows(folder: Path) -> list[dict[str, Any]]:
    """metrics.jsonl; a last line that is not whole yet is left out."""
    path = folder / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    return [_timeless(json.loads(line)) for line in lines if line.endswith("\n")]


def step(folder: Path) -> int:
    """The last step that metrics.jsonl tells of; 0 where there is none."""
    return max((row["step"] for row in rows(folder)), default=0)


def summary(folder: Path) -> dict[str, Any]:
    """summary.json."""
    return _timeless(json.loads((folder / "summary.json").read_text(encoding="utf-8")))


def _bits(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.numpy().tobytes()).hexdigest()


def _timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _timeless(value) if isinstance(value, dict) else value
        for name, value in row.items()
        if name not in TIMINGS
    }

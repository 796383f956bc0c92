"""Run folders as plain files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml


@pytest.fixture
def add_run(experiment: Path) -> Callable[..., Path]:
    """Adds a finished run: add_run("softmax", seed=1, val_loss=2.8, config={"agg": {"size": 3}}, summary={…})."""
    return adds_runs(experiment)


def adds_runs(experiment: Path) -> Callable[..., Path]:
    """What `add_run` is, for any folder."""

    def add(
        agg: str,
        seed: int = 0,
        val_loss: float = 2.5,
        *,
        label: str | None = None,
        folder: str | None = None,
        config: dict[str, Any] | None = None,
        summary: dict[str, Any] | None = None,
    ) -> Path:
        settings: dict[str, Any] = {
            "seed": seed,
            "label": label,
            "experiment_name": "part03",
            "threads": 1,
            "force": False,
            "agg": {"_target_": f"trilab.agg.{agg}.{agg.title()}"},
            "model": {"n_embd": 32, "n_head": 1},
            "data": {"block_size": 8, "path": "notes.txt"},
            "optim": {"lr": 0.01},
            "trainer": {"max_steps": 3000},
            "logger": {"name": "none"},
            "callbacks": {"progress": True},
            "paths": {"outputs": "outputs"},
        }
        for key, value in (config or {}).items():
            settings[key] = settings.get(key, {}) | value if isinstance(value, dict) else value
        results = {
            "agg": agg,
            "label": label or agg,
            "seed": seed,
            "status": "finished",
            "val_loss": val_loss,
            "n_params": 4257,
            "chars_per_second": 400_000.0,
            "data": {"name": "notes.txt", "sha256": "0" * 64},
            "error": None,
        }
        run = experiment / (folder or f"{agg}-seed{seed}")
        run.mkdir()
        (run / "config.yaml").write_text(yaml.safe_dump(settings, allow_unicode=True), encoding="utf-8")
        (run / "summary.json").write_text(json.dumps(results | (summary or {})), encoding="utf-8")
        return run

    return add

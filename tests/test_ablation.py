"""The main job in earnest: Tiny Shakespeare, thousands of steps. Slow; what it shows is what the README says."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MEANS = ("loop", "matmul", "softmax", "cumsum")

pytestmark = pytest.mark.slow


def train(outputs: Path, *arguments: str) -> str:
    command = [sys.executable, "train.py", *arguments, f"paths.outputs={outputs}", "callbacks.sample_chars=0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_bigram_table_reaches_what_the_lecture_says(tmp_path: Path) -> None:
    train(tmp_path, "model=bigram", "logger=none")
    (summary,) = tmp_path.glob("default/*/summary.json")
    assert 2.45 < json.loads(summary.read_text())["val_loss"] < 2.52


def test_the_ablation_ends_with_the_table_that_the_readme_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    said = train(tmp_path, "-m", "experiment=part03")
    with (tmp_path / "part03" / "report.csv").open(encoding="utf-8") as file:
        rows = {row["agg"]: row for row in csv.DictReader(file)}
    assert len(rows) == 10
    assert {row["n_seeds"] for row in rows.values()} == {"3"}
    loss = {agg: float(row["val_loss_mean"]) for agg, row in rows.items()}
    assert 2.4 < loss["none"] < 2.55
    assert max(loss["table"], loss["attention"]) < loss["none"] < loss["softmax"]
    for agg, row in rows.items():
        assert float(row["diff_to_baseline"]) == pytest.approx(loss[agg] - loss["none"], abs=1e-9)
        assert agg in said
    summaries = [json.loads(path.read_text()) for path in tmp_path.glob("part03/*/summary.json")]
    for seed in (0, 1, 2):
        same = [s["val_loss"] for s in summaries if s["seed"] == seed and s["agg"] in MEANS]
        assert len(same) == 4
        assert max(same) - min(same) < 0.005
    assert {row["verdict"] for agg, row in rows.items() if agg != "none"} == {"better", "worse"}
    assert "report.html" in said
    assert len(list((tmp_path / "wandb").glob("offline-run-*"))) == 31  # and one with the verdicts

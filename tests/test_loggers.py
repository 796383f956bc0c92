"""metrics.jsonl: what a run leaves for others to read."""

import json
from pathlib import Path

from trilab.loggers import MetricsFile


def test_lines_after_the_checkpoint_and_the_half_line_of_a_killed_run_are_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "a": 1.0}\n{"step": 2, "a": 2.0}\n{"step": 3, "a": 3.0}\n{"step": 4, "a": 4.')
    metrics = MetricsFile(path, step=2)
    metrics.log_metrics({"a": 5.0}, step=3)
    metrics.close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 1, "a": 1.0},
        {"step": 2, "a": 2.0},
        {"step": 3, "a": 5.0},
    ]


def test_a_line_can_be_read_while_the_training_goes_on(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path / "metrics.jsonl", step=0)
    metrics.log_metrics({"val/loss": 0.1}, step=7)
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 7, "val/loss": 0.1}
    metrics.close()

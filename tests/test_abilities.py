"""What strategies are known to be able to do, and known not to be: the experiments on drawn texts show it."""

import json
import math
from collections.abc import Callable

import pytest

from .conftest import Outcome

pytestmark = pytest.mark.slow
Train = Callable[..., Outcome]
ALONE = ("seed=0", "logger=none", "hydra.launcher.n_jobs=1", "check.causality=off", "callbacks.sample_chars=0")


def answered(train: Train, experiment: str, *keys: str) -> dict[str, tuple[float, float]]:
    """Row → share of the answers that are right, and their loss."""
    done = train("-m", f"experiment={experiment}", *ALONE, *keys, quick=False)
    assert done.code == 0, done.err
    report = json.loads((done.outputs / experiment / "report.json").read_text())
    return {row["name"]: (row["answer_accuracy"], row["losses"]["answer_loss"]["mean"]) for row in report["rows"]}


def test_a_uniform_mean_cannot_recall_and_attention_in_two_layers_can(train: Train) -> None:
    found = answered(train, "recall", "agg=softmax,attention")
    assert found["softmax"][0] < 0.6
    assert found["softmax"][1] > 0.8
    assert found["attention"][0] > 0.95
    assert found["attention"][1] < 0.2


def test_a_window_fails_past_what_its_layers_reach_and_a_wider_one_does_not(train: Train) -> None:
    found = answered(train, "copy", "agg.window=8,16")
    assert found["attention window=8"][0] < 0.25  # chance is 1 in 8
    assert found["attention window=8"][1] == pytest.approx(math.log(8), abs=0.05)
    assert found["attention window=16"][0] > 0.85


def test_a_gap_beyond_the_window_of_one_layer_decides(train: Train) -> None:
    right = {}
    # a copy after a gap g needs 16 + g / 2 characters
    for gap, window in ((0, "18"), (8, "18"), (8, "null")):
        name = f"gap_{gap}_window_{window}"
        keys = (f"experiment_name={name}", "model.n_layer=1", f"data.gap={gap}", f"agg.window={window}")
        done = train("experiment=copy", *ALONE, *keys, "trainer.max_steps=400", quick=False)
        assert done.code == 0, done.err
        (summary,) = (done.outputs / name).glob("*/summary.json")
        right[gap, window] = json.loads(summary.read_text())["answer_accuracy"]
    assert right[0, "18"] > 0.8
    assert right[8, "18"] < 0.25
    assert right[8, "null"] > 0.8

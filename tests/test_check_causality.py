"""check.causality in train.py: what sees the future is refused, told of or let pass, and the run says which."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Outcome
from .wandb_file import wandb_runs

Train = Callable[..., Outcome]

LEAKS = """
import torch
from trilab.agg.cumsum import CumsumMean

class MeanOfAll(CumsumMean):
    def mix(self, x, v):
        return v.mean(1, keepdim=True).expand_as(v)

class OnlyWithGradients(CumsumMean):
    def mix(self, x, v):
        y = super().mix(x, v)
        return y + v[:, -1:] if torch.is_grad_enabled() and v.dtype == torch.float32 else y

class OtherRows(CumsumMean):
    def mix(self, x, v):
        return super().mix(x, v) + v.roll(1, 0)

class OwnDropout(CumsumMean):
    def mix(self, x, v):
        return torch.nn.functional.dropout(super().mix(x, v), 0.1, self.training)

class OnlyInBfloat16(CumsumMean):
    def mix(self, x, v):
        y = super().mix(x, v)
        return y + v[:, -1:] if torch.is_autocast_enabled("cpu") else y
"""


@pytest.fixture(autouse=True)
def leaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sees_ahead.py").write_text(LEAKS)
    monkeypatch.syspath_prepend(tmp_path)


def summary(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("model", ["flat", "gpt"])
def test_a_leak_is_refused_before_the_first_step_and_leaves_nothing(train: Train, model: str) -> None:
    done = train("agg._target_=sees_ahead.MeanOfAll", f"model={model}")
    assert done.code == 2
    assert "MeanOfAll (layer" in done.err
    assert " sees the future: output " in done.err
    assert "Looks like: a number taken over all time" in done.err
    assert "XX moves with a later input" in done.err
    assert "Traceback" not in done.err
    assert not done.runs


@pytest.mark.slow
def test_in_a_sweep_the_leaking_variant_fails_and_the_others_go_on(train: Train) -> None:
    done = train("-m", "agg._target_=sees_ahead.MeanOfAll,trilab.agg.none.Identity", "seed=0,1")
    assert done.code == 1
    status = {run.name.partition("-seed")[0]: summary(run) for run in done.runs}
    assert status["none"]["status"] == "finished"
    failed = status["MeanOfAll"]
    assert failed["status"] == "failed"
    assert failed["error"]["type"] == "Leak"
    assert "\n" not in failed["error"]["message"]
    assert "XX moves with a later input" in failed["error"]["traceback"]
    assert "FAILED: Leak: MeanOfAll (layer 0) sees the future" in done.out
    assert not list(next(run for run in done.runs if run.name.startswith("Mean")).glob("metrics.jsonl"))


def test_warn_tells_of_the_leak_trains_all_the_same_and_the_table_says_so(train: Train) -> None:
    done = train("agg._target_=sees_ahead.MeanOfAll", "check.causality=warn")
    assert done.code == 0
    assert "MeanOfAll (layer 0) sees the future" in done.out
    checked = done.summary["check"]
    assert checked["causality"] == "warn"
    assert checked["leak"].startswith("MeanOfAll (layer 0) sees the future")
    again = train("-m", "agg._target_=sees_ahead.MeanOfAll", "check.causality=warn")
    assert "MeanOfAll sees the future (trained with check.causality=warn): no comparison" in again.out


def test_off_looks_at_nothing(train: Train) -> None:
    done = train("agg._target_=sees_ahead.MeanOfAll", "check.causality=off")
    assert done.code == 0
    assert "future" not in done.out + done.err
    assert done.summary["check"] == {"causality": "off", "leak": None, "covered": None}


def test_the_summary_says_what_was_covered(train: Train) -> None:
    done = train("model=gpt", "agg=attention")
    assert "causality: 3 × attention at 8 of 8 positions in 8 settings, the model at 8 of 8 positions" in done.out
    strategy, whole, path = done.summary["check"]["covered"]["parts"]
    assert (strategy["name"], strategy["layers"], strategy["positions"]) == ("attention", [0, 1, 2], 8)
    assert set(strategy["tried"].values()) == {8}
    assert whole["name"] == "the model"
    assert path["tried"] == {"T=8, tokens, float32 on cpu": 8}


def test_the_precision_that_trains_is_examined_too(train: Train) -> None:
    narrow = "trainer.precision=bf16-mixed"
    done = train("agg=long_conv", narrow)
    assert done.code == 0
    *_, path = done.summary["check"]["covered"]["parts"]
    assert path["name"] == "the model as it will train"
    assert path["tried"] == {"T=8, tokens, bfloat16 on cpu": 8}
    refused = train("agg._target_=sees_ahead.OnlyInBfloat16", narrow)
    assert refused.code == 1
    assert "the model as it will train sees the future" in refused.err
    (run,) = (run for run in refused.runs if run.name.startswith("OnlyInBfloat16"))
    assert summary(run)["error"]["message"].startswith("the model as it will train sees the future: output ")
    warned = train("agg._target_=sees_ahead.OnlyInBfloat16", narrow, "check.causality=warn")
    assert warned.code == 0
    assert summary(run)["check"]["leak"].startswith("the model as it will train sees the future")


def test_a_leak_of_training_only_is_found_in_what_really_trains(train: Train) -> None:
    done = train("agg._target_=sees_ahead.OnlyWithGradients")
    assert done.code != 0
    assert "sees the future: output " in done.err
    assert not any((run / "checkpoints").exists() for run in done.runs)


def test_a_strategy_that_reads_other_rows_of_the_batch_is_refused(train: Train) -> None:
    done = train("agg._target_=sees_ahead.OtherRows")
    assert done.code == 2
    assert "OtherRows (layer 0) mixes rows of the batch: row " in done.err
    assert not done.runs


@pytest.mark.parametrize("model", ["flat", "gpt"])
def test_a_strategy_with_dropout_of_its_own_is_no_leak(train: Train, model: str) -> None:
    assert train("agg._target_=sees_ahead.OwnDropout", f"model={model}").code == 0


def test_a_run_let_through_by_warn_is_no_result_under_error(train: Train) -> None:
    command = ["agg._target_=sees_ahead.MeanOfAll"]
    assert train(*command, "check.causality=warn").code == 0
    refused = train(*command)
    assert refused.code == 2
    assert "is no result under check.causality=error" in refused.err
    assert refused.summary["status"] == "finished"
    assert train("-m", *command).code == 1


def test_a_run_that_nobody_looked_at_is_told_to_be_one(train: Train) -> None:
    assert train("agg=ema", "check.causality=off").code == 0
    assert "whether it sees the future is not known" in train("agg=ema").out


def test_another_word_than_error_warn_or_off_is_refused(train: Train) -> None:
    done = train("check.causality=maybe")
    assert done.code == 2
    assert "check.causality='maybe' must be one of error, warn, off." in done.err


def test_wandb_keeps_what_was_asked_and_what_was_covered(train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    (run,) = wandb_runs(train("agg=ema", "logger=wandb").outputs)
    assert run.config["check"]["causality"] == "error"
    assert run.summary["check"]["covered"]["parts"][0]["name"] == "ema"

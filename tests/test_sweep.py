"""Many runs from one command: all of them, compared at the end, none spoiled by another."""

import csv
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from .command import train_py
from .conftest import STRATEGIES, Outcome
from .wandb_file import wandb_runs

Train = Callable[..., Outcome]
COLUMNS = "agg,n_seeds,val_loss_mean,val_loss_std,diff_to_baseline,n_params,chars_per_second"

FAILS = """
import sys
from trilab.agg.softmax import SoftmaxMean

class Fails(SoftmaxMean):
    def __init__(self, n_embd: int, block_size: int, *, how: str) -> None:
        super().__init__(n_embd, block_size)
        if how == "raise":
            raise RuntimeError("as asked")
        if how == "exit":
            sys.exit(0)
"""

FAILS_FROM_THE_SECOND = """
from pathlib import Path
from trilab.agg.softmax import SoftmaxMean

class Fails(SoftmaxMean):
    def __init__(self, n_embd: int, block_size: int) -> None:
        super().__init__(n_embd, block_size)
        if list(Path("outputs").glob("*/Fails-*/summary.json")):
            raise RuntimeError("as asked")
"""


KILLS = """
import os
from pathlib import Path
from trilab.agg.softmax import SoftmaxMean

class Kills(SoftmaxMean):
    def __init__(self, n_embd: int, block_size: int, *, how: str) -> None:
        super().__init__(n_embd, block_size)
        if how == "kill" and Path("kill").exists():
            os.kill(os.getpid(), 9)
        if how == "exit" and Path("kill").exists():
            os._exit(3)
"""


def summaries(done: Outcome) -> list[dict[str, Any]]:
    return [json.loads((run / "summary.json").read_text()) for run in done.runs]


def rows(experiment: Path) -> list[dict[str, str]]:
    with (experiment / "report.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_combination_is_trained_and_strategies_are_compared(train: Train) -> None:
    done = train("-m", "agg=none,softmax", "seed=0,1")
    assert done.code == 0
    assert sorted((s["agg"], s["seed"], s["status"]) for s in summaries(done)) == [
        ("none", 0, "finished"),
        ("none", 1, "finished"),
        ("softmax", 0, "finished"),
        ("softmax", 1, "finished"),
    ]
    report = done.outputs / "default" / "report.csv"
    assert report.read_text().startswith(f"{COLUMNS},")
    means = {agg: sum(s["val_loss"] for s in summaries(done) if s["agg"] == agg) / 2 for agg in ("none", "softmax")}
    for row in rows(report.parent):
        assert row["n_seeds"] == "2"
        assert float(row["val_loss_mean"]) == pytest.approx(means[row["agg"]], abs=1e-12)
        assert float(row["val_loss_std"]) > 0  # seed 0 is not seed 1
        assert float(row["diff_to_baseline"]) == pytest.approx(means[row["agg"]] - means["none"], abs=1e-12)
        assert f"{float(row['val_loss_mean']):.4f}" in done.out
    assert "default: 4 finished" in done.out
    assert "    4/4  " in done.out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        pytest.param(["agg=attention", "agg.n_head=1,5,2"], "BadInput", marks=pytest.mark.slow),
        (["agg._target_=fails.Fails", "+agg.how=not,raise,never"], "RuntimeError"),
        pytest.param(["agg._target_=fails.Fails", "+agg.how=not,exit,never"], "SystemExit", marks=pytest.mark.slow),
        pytest.param(["agg=softmax", "optim.lr=0.01,1e30,0.02"], "Diverged", marks=pytest.mark.slow),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_run_that_fails_is_named_and_recorded_and_stops_no_other(
    train: Train, tmp_path: Path, arguments: list[str], error: str
) -> None:
    (tmp_path / "fails.py").write_text(FAILS)
    done = train("-m", *arguments)
    assert done.code == 1
    assert sorted(summary["status"] for summary in summaries(done)) == ["failed", "finished", "finished"]
    [(failed, summary)] = [
        (run, s) for run, s in zip(done.runs, summaries(done), strict=True) if s["status"] == "failed"
    ]
    assert summary["error"]["type"] == error
    assert summary["error"]["traceback"].startswith("Traceback")
    assert f"1 of 3 runs did not finish: {failed.name}" in done.out
    assert f"FAILED: {error}: " in done.out
    finished = [run / "summary.json" for run in done.runs if run != failed]
    before = [path.stat().st_mtime_ns for path in finished]
    again = train("-m", *arguments)
    assert again.code == 1
    assert [path.stat().st_mtime_ns for path in finished] == before
    assert "3 runs, 2 of them finished already" in again.out


@pytest.mark.slow
def test_force_trains_a_finished_sweep_anew_and_counts_it_so(train: Train) -> None:
    assert train("-m", "agg=none,softmax").code == 0
    again = train("-m", "agg=none,softmax", "force=true")
    assert again.code == 0
    assert "finished already" not in again.out
    assert "    2/2  " in again.out


@pytest.mark.slow
def test_glob_composes_every_strategy_there_is(train: Train) -> None:
    done = train("-m", "agg=glob(*)", "callbacks.sample_chars=0", "trainer.max_steps=2")
    assert done.code == 0
    assert sorted(str(summary["agg"]) for summary in summaries(done)) == STRATEGIES
    assert len(rows(done.outputs / "default")) == len(STRATEGIES)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["agg=none,softmax", "sede=1"], "sede is not a key. Did you mean seed?"),
        (["agg=none,window", "agg.size=3"], "agg.size is not a key"),
        (["agg=none,window", "+agg.size=3"], "agg.size=3"),
        (["agg=none,nope"], "nope"),
        (["optim.lr=0.1,0"], "optim.lr=0.0 must be"),
        (["seed=0,-1"], "seed=-1 must lie between"),
        (["data.path=nowhere.txt,text.txt"], "nowhere.txt does not exist"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_key_or_value_that_is_wrong_in_one_run_is_refused_before_any_begins(
    train: Train, arguments: list[str], said: str
) -> None:
    done = train("-m", *arguments)
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err
    assert not done.runs
    assert not [path for path in done.outputs.glob("*/*") if path.is_dir()]


@pytest.mark.slow
def test_a_run_has_the_same_bits_alone_in_a_sweep_and_beside_others(train: Train, tmp_path: Path, text: Path) -> None:
    knobs = ("agg=attention", "model.dropout=0.1")
    alone = train(*knobs, "seed=1", "experiment_name=alone")
    serial = train("-m", *knobs, "seed=0,1", "experiment_name=serial")
    beside = train_py(
        tmp_path,
        *("-m", *knobs, "seed=0,1", "experiment_name=beside", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2"),
        text=text,
    )
    assert (alone.code, serial.code, beside.code) == (0, 0, 0), beside.err
    assert "beside: 2 finished" in beside.out
    found = {(run.parent.name, s["seed"]): s["val_loss"] for run, s in zip(beside.runs, summaries(beside), strict=True)}
    assert found.keys() == {("alone", 1), ("serial", 0), ("serial", 1), ("beside", 0), ("beside", 1)}
    assert found["alone", 1] == found["serial", 1] == found["beside", 1]
    assert found["serial", 0] == found["beside", 0] != found["serial", 1]


@pytest.mark.slow
def test_a_run_has_the_same_bits_as_a_job_of_submitit(train: Train, tmp_path: Path, text: Path) -> None:
    knobs = ("agg=attention", "model.dropout=0.1", "seed=1")
    alone = train(*knobs, "experiment_name=alone")
    job = train_py(tmp_path, "-m", *knobs, "experiment_name=job", "hydra/launcher=submitit_local", text=text)
    assert (alone.code, job.code) == (0, 0), job.out + job.err
    found = {run.parent.name: s["val_loss"] for run, s in zip(job.runs, summaries(job), strict=True)}
    assert found.keys() == {"alone", "job"}
    assert found["alone"] == found["job"]


@pytest.mark.slow
def test_two_sweeps_at_once_share_an_experiment_and_train_each_run_once(tmp_path: Path, text: Path) -> None:
    def sweep(aggs: str) -> Outcome:
        return train_py(tmp_path, "-m", f"agg={aggs}", "seed=0,1", "trainer.max_steps=300", text=text, timeout=300)

    with ThreadPoolExecutor() as beside:
        one, two = beside.map(sweep, ("none,softmax,table", "table,softmax"))
    assert (one.code, two.code) == (0, 0), one.err + two.err
    assert len(one.runs) == 6
    for run in one.runs:
        steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert steps == sorted(steps)
        assert (run / "log").read_text().count("causality:") == 1  # begun once
    assert "default: 6 finished" in one.out


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_a_killed_run_of_a_sweep_is_one_that_has_not_finished_and_goes_on(
    tmp_path: Path, text: Path, launcher: str
) -> None:
    (tmp_path / "kills.py").write_text(KILLS)
    (tmp_path / "kill").touch()
    command = ("-m", "agg._target_=kills.Kills", "+agg.how=not,kill,exit,never", f"hydra/launcher={launcher}")
    done = train_py(tmp_path, *command, text=text)
    assert done.code == 1
    assert sorted(str(summary["status"]) for summary in summaries(done)) == [
        *("finished", "finished", "interrupted", "interrupted")
    ]
    assert "its process was killed by SIGKILL (out of memory?)" in done.out
    assert "its process ended with exit code 3" in done.out
    (tmp_path / "kill").unlink()
    assert train_py(tmp_path, *command, text=text).code == 0


@pytest.mark.slow
def test_joblib_names_a_failed_run_and_exits_with_1(tmp_path: Path, text: Path) -> None:
    (tmp_path / "fails.py").write_text(FAILS)
    done = train_py(
        tmp_path,
        *("-m", "agg._target_=fails.Fails", "+agg.how=not,exit,raise,never"),
        *("hydra/launcher=joblib", "hydra.launcher.n_jobs=2"),
        text=text,
    )
    assert done.code == 1
    assert sorted(summary["status"] for summary in summaries(done)) == ["failed", "failed", "finished", "finished"]
    assert "2 of 4 runs did not finish: " in done.out


@pytest.mark.slow
def test_the_ablation_trains_ten_strategies_on_three_seeds_and_compares_them(tmp_path: Path, text: Path) -> None:
    done = train_py(tmp_path, "-m", "experiment=part03", "trainer.max_steps=4", text=text, timeout=300)
    assert done.code == 0, done.err
    assert len(done.runs) == 30
    table = {row["agg"]: row for row in rows(done.outputs / "part03")}
    assert sorted(table) == sorted(
        ["none", "loop", "matmul", "softmax", "cumsum", "sum", "window", "random", "table", "attention"]
    )
    assert {row["n_seeds"] for row in table.values()} == {"3"}
    assert float(table["none"]["diff_to_baseline"]) == 0
    for same in ("loop", "matmul", "cumsum"):
        assert float(table[same]["val_loss_mean"]) == pytest.approx(float(table["softmax"]["val_loss_mean"]), abs=1e-4)


@pytest.mark.slow
def test_seeds_are_added_until_all_is_decided_and_the_same_command_finds_them_there(train: Train) -> None:
    command = ("-m", "agg=none,sum", "seed=0,1", "sweep.until_decided=true", "sweep.max_seeds=3", "optim.lr=0.05")
    done = train(*command)
    assert done.code == 0
    assert "4 runs" in done.out
    assert "    6/6  " in done.out
    assert "Look at 3 seeds of at most 3: " in done.out
    assert "spent so far 5 of 5 %" in done.out
    assert sorted((s["agg"], s["seed"]) for s in summaries(done)) == [
        *(("none", seed) for seed in range(3)),
        *(("sum", seed) for seed in range(3)),
    ]
    experiment = done.outputs / "default"
    looks = json.loads((experiment / "looks.json").read_text())
    assert looks.items() >= {"alpha": 0.05, "first": 3, "last": 3, "every": 1, "baseline": "none", "seen": 0}.items()
    planned = [json.loads(line) for line in (experiment / "planned.jsonl").read_text().splitlines()]
    assert {line["run"] for line in planned} == {run.name for run in done.runs}
    before = [(run / "summary.json").stat().st_mtime_ns for run in done.runs]
    again = train(*command)
    assert again.code == 0
    assert [(run / "summary.json").stat().st_mtime_ns for run in again.runs] == before
    assert "Look at 3 seeds of at most 3: " in again.out
    refused = train(*command[:4], "sweep.max_seeds=5", "optim.lr=0.05")
    assert refused.code == 2
    assert "sweep.max_seeds=5, but " in refused.err


def test_a_sweep_that_cannot_be_looked_at_is_refused(train: Train) -> None:
    refused = train("-m", "agg=softmax,sum", "sweep.until_decided=true")
    assert (refused.code, refused.outputs.exists()) == (2, False)
    assert "report.baseline=none is not among the runs of this sweep: softmax, sum" in refused.err


def test_who_asks_one_run_for_more_seeds_is_told_that_it_takes_a_sweep(train: Train) -> None:
    done = train("agg=softmax", "sweep.until_decided=true", "callbacks.sample_chars=0")
    assert (done.code, len(done.runs)) == (0, 1)
    assert "sweep.until_decided=true adds seeds to a sweep, which needs -m" in done.out


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_added_runs_that_fail_are_named_count_in_the_exit_code_and_end_it(
    tmp_path: Path, text: Path, launcher: str
) -> None:
    (tmp_path / "fails.py").write_text(FAILS_FROM_THE_SECOND)
    done = train_py(
        tmp_path,
        *("-m", "agg._target_=trilab.agg.none.Identity,fails.Fails", "seed=0", "sweep.until_decided=true"),
        f"hydra/launcher={launcher}",
        text=text,
        timeout=300,
    )
    assert done.code == 1
    assert sorted((s["agg"], s["seed"], s["status"]) for s in summaries(done)) == [
        *(("Fails", seed, "failed" if seed else "finished") for seed in range(3)),
        *(("none", seed, "finished") for seed in range(3)),
    ]
    assert "Fails stays undecided and gets no more seeds: Fails-seed" in done.out
    assert "2 of 6 runs did not finish: Fails-seed1-" in done.out


def test_a_sweep_ends_with_its_verdicts_as_a_run_of_wandb_unless_nothing_was_trained(
    train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    command = ("-m", "agg=none", "seed=0", "logger=wandb", "logger.project=mine")
    done = train(*command)
    reports = [run for run in wandb_runs(done.outputs) if run.job_type == "report"]
    assert [(run.name, run.group, run.project, run.exit_code) for run in reports] == [
        ("default report", "default", "mine", 0)
    ]
    assert {"verdicts/path", "report/path"} <= {name for row in reports[0].history for name in row}
    again = train(*command)
    assert "1 of them finished already" in again.out
    assert len([run for run in wandb_runs(done.outputs) if run.job_type == "report"]) == 1


@pytest.mark.slow
def test_a_sweep_is_reported_on_its_own_terms_whatever_older_runs_say(train: Train) -> None:
    train("-m", "agg=none,ema", "seed=0")
    done = train("-m", "agg=none,ema,softmax", "seed=0", "report.baseline=ema", "report.measure=best_val_loss")
    told = json.loads((done.outputs / "default" / "report.json").read_text())["terms"]
    assert (told["baseline"], told["measure"]) == ("ema", "best_val_loss")


def test_a_choice_by_a_key_that_no_run_has_is_refused_before_any_is_trained(train: Train) -> None:
    refused = train("-m", "agg=none,ema", "report.choose=nope")
    assert refused.code == 2
    assert "report.choose=nope is no key of these runs' configs" in refused.err
    assert refused.runs == []

"""Every YAML in conf/ composes into a config that holds, and every experiment trains."""

import json
import statistics
from collections.abc import Callable
from pathlib import Path

import hydra
import pytest
import yaml

from trilab.compose import conf_dir
from trilab.config import bind, read, strategies
from trilab.sweep import plain

from .conftest import ROOT, Outcome, untimed

Train = Callable[..., Outcome]
CONF = ROOT / "conf"
EXPERIMENTS = sorted(
    path.relative_to(CONF / "experiment").with_suffix("") for path in CONF.glob("experiment/**/*.yaml")
)
CHOICES = sorted(
    f"{path.parent.name}={path.stem}"
    for path in CONF.glob("*/*.yaml")
    if path.parent.name not in ("experiment", "hydra")
)


@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_of_every_group_composes_into_values_that_hold(choice: str) -> None:
    with hydra.initialize_config_dir(str(conf_dir()), version_base="1.3"):
        given = [choice, "data.path=text.txt"] if choice == "data=file" else [choice]
        config = read(plain(hydra.compose("train", given)))
    strategies(config)
    bind(config.model, "model", given=("vocab_size", "block_size", "make_agg", "seed"))
    bind(config.optim, "optim")()
    bind(config.data.source, "data")


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=str)
def test_every_experiment_trains(train: Train, experiment: Path) -> None:
    keys = [f"experiment={experiment.as_posix()}", "trainer.max_steps=2", "match.flops=null"]  # it sets the steps
    draws_its_text = "override /data" in (CONF / "experiment" / experiment).with_suffix(".yaml").read_text()
    if draws_its_text:
        keys += ["data.characters=20000", "logger=none", "callbacks.sample_chars=5"]
    done = train(*keys, quick=not draws_its_text)
    assert done.code == 0, done.err
    assert json.loads((done.run / "summary.json").read_text())["steps"] == 2


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=str)
def test_every_experiment_opens_with_the_command_that_runs_it_and_how_long_it_takes(experiment: Path) -> None:
    comment = (CONF / "experiment" / experiment).with_suffix(".yaml").read_text(encoding="utf-8").split("defaults:")[0]
    assert f"experiment={experiment.as_posix()}" in comment
    assert "on one core" in comment or "on 2 cores" in comment


@pytest.mark.slow
def test_the_rungs_of_the_lecture_are_one_sweep_and_carry_their_names(train: Train) -> None:
    done = train("-m", "experiment/lecture=glob(*)", "trainer.max_steps=2", "callbacks.sample_chars=0")
    assert done.code == 0, done.err
    rungs = [path.name for path in EXPERIMENTS if path.parent.name == "lecture"]
    labels = [json.loads((run / "summary.json").read_text())["label"] for run in done.runs]
    assert labels == rungs
    assert {run.parent.name for run in done.runs} == {"lecture"}
    assert all(f"\n{rung} " in done.out for rung in rungs)


def test_nothing_but_the_test_loss_depends_on_the_test_split(train: Train, text: Path) -> None:
    keys = ("agg=table", "data.test_share=0.2", "check.causality=off")
    characters = text.read_text()
    begins = len(characters) * 4 // 5
    other = text.with_name("other.txt")
    other.write_text(characters[:begins] + "".join(sorted(characters[begins:])))
    first = train(*keys).run
    (second,) = (run for run in train(*keys, f"data.path={other}").runs if run != first)
    one, other = (json.loads((run / "summary.json").read_text()) for run in (first, second))
    assert one["test_loss"] != other["test_loss"]
    for key in ("val_loss", "best_val_loss", "references", "loss_by_position", "loss_by_block"):
        assert one[key] == other[key], key
    rows = [list(map(json.loads, (run / "metrics.jsonl").read_bytes().splitlines())) for run in (first, second)]
    assert untimed(rows[0]) == untimed(rows[1])


@pytest.mark.slow
def test_tuned_chooses_each_rate_on_validation_and_judges_on_the_test_split(train: Train) -> None:
    sweep = ("agg=none,table", "optim.lr=0.0001,0.01,1", "seed=0,1")
    done = train("-m", "experiment=tuned", *sweep, "trainer.max_steps=40", "check.causality=off")
    assert done.code == 0, done.err
    report = json.loads((done.outputs / "tuned" / "report.json").read_text())
    assert report["terms"]["measure"] == "test_loss"
    summaries = [json.loads((run / "summary.json").read_text()) | {"lr": rate(run)} for run in done.runs]
    for row in report["rows"]:
        ours = [each for each in summaries if each["label"] == row["name"].split()[0]]
        by_rate = {lr: statistics.mean(s["val_loss"] for s in ours if s["lr"] == lr) for lr in (0.0001, 0.01, 1)}
        chosen = min(by_rate, key=by_rate.__getitem__)
        assert row["settings"]["optim.lr"] == f"{chosen:g}"
        expected = {str(s["seed"]): s["test_loss"] for s in ours if s["lr"] == chosen}
        assert row["losses"]["test_loss"]["by_seed"] == expected


def rate(run: Path) -> float:
    """optim.lr of a run."""
    return float(yaml.safe_load((run / "config.yaml").read_text())["optim"]["lr"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "budget", "key", "within"),
    [("params", "match.params=30000", "n_params", 0.1), ("flops", "match.flops=1e9", "training_flops", 0.1)],
)
def test_what_a_budget_is_of_is_equal_in_all_rows(
    train: Train, experiment: str, budget: str, key: str, within: float
) -> None:
    sweep = ("agg=none,attention,min_gru", "seed=0", budget, "trainer.max_steps=3")
    done = train("-m", f"experiment=budget/{experiment}", *sweep, "check.causality=off")
    assert done.code == 0, done.err
    report = json.loads((done.outputs / f"budget_{experiment}" / "report.json").read_text())
    spent = [row[key] for row in report["rows"]]
    assert len(spent) == 3
    assert max(spent) / min(spent) <= 1 + within

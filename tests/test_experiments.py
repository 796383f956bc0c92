"""Every YAML in conf/ composes into a config that holds, and every experiment trains."""

import json
from collections.abc import Callable
from pathlib import Path

import hydra
import pytest

from trilab.compose import conf_dir
from trilab.config import bind, read, strategies
from trilab.sweep import plain

from .conftest import ROOT, Outcome

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
    done = train(f"experiment={experiment.as_posix()}", "trainer.max_steps=2")
    assert done.code == 0, done.err
    assert json.loads((done.run / "summary.json").read_text())["steps"] == 2


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=str)
def test_every_experiment_opens_with_the_command_that_runs_it_and_how_long_it_takes(experiment: Path) -> None:
    comment = (CONF / "experiment" / experiment).with_suffix(".yaml").read_text(encoding="utf-8").split("defaults:")[0]
    assert f"experiment={experiment.as_posix()}" in comment
    assert "on one core" in comment or "on 2 cores" in comment


def test_the_rungs_of_the_lecture_are_one_sweep_and_carry_their_names(train: Train) -> None:
    done = train("-m", "experiment/lecture=glob(*)", "trainer.max_steps=2", "callbacks.sample_chars=0")
    assert done.code == 0, done.err
    rungs = [path.name for path in EXPERIMENTS if path.parent.name == "lecture"]
    labels = [json.loads((run / "summary.json").read_text())["label"] for run in done.runs]
    assert labels == rungs
    assert {run.parent.name for run in done.runs} == {"lecture"}
    assert all(f"\n{rung} " in done.out for rung in rungs)

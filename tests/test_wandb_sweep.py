"""conf/wandb_sweep.yaml: what an agent of W&B makes of it is a command that trains."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from wandb.sdk.launch.sweeps import utils as sweeps
from wandb.sdk.lib.config_util import save_config_file_from_dict

from trilab.compose import conf_dir, strategy_names

from .conftest import QUICK, ROOT, Outcome
from .wandb_file import wandb_runs

FILE = ROOT / "conf" / "wandb_sweep.yaml"


@pytest.fixture
def sweep() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return content


def chosen(sweep: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """One point of the grid in the form that W&B's server sends."""
    fixed = {name: said["value"] for name, said in sweep["parameters"].items() if "value" in said}
    return {name: {"value": value} for name, value in (fixed | values).items()}


def agent_command(sweep: dict[str, Any], arguments: dict[str, Any]) -> list[str]:
    """What `wandb agent` would run, by W&B's own code."""
    parts = sweeps.create_sweep_command_args({"args": arguments})
    parts |= {"env": ["/usr/bin/env"], "interpreter": ["python"], "program": [sweep["program"]]}
    words = sweeps.create_sweep_command(list(sweep["command"]))
    return [str(one) for word in words for one in (parts[word[2:-1]] if word.startswith("${") else [word])]


def test_the_grid_is_of_strategies_and_seeds_and_lowers_the_validation_loss(sweep: dict[str, Any]) -> None:
    assert sweep["metric"] == {"name": "val/loss", "goal": "minimize"}
    assert sweep["method"] == "grid"
    assert set(sweep["parameters"]["agg"]["values"]) <= set(strategy_names())
    assert len(set(sweep["parameters"]["seed"]["values"])) > 1
    assert (ROOT / sweep["program"]).is_file()


def test_the_command_is_in_hydras_form(sweep: dict[str, Any]) -> None:
    command = agent_command(sweep, chosen(sweep, {"agg": "none", "seed": 0}))
    assert command == ["/usr/bin/env", "python", "train.py", "experiment_name=wandb_sweep", "agg=none", "seed=0"]


def test_the_file_lies_where_the_wheel_takes_conf_from_and_is_no_group_of_hydras(
    train: Callable[..., Outcome],
) -> None:
    assert conf_dir() / "wandb_sweep.yaml" == FILE
    said = train("--help", quick=False)
    assert "softmax" in said.out
    assert "wandb_sweep" not in said.out


@pytest.mark.slow
def test_what_the_agent_starts_trains_under_the_agents_id(sweep: dict[str, Any], tmp_path: Path, text: Path) -> None:
    outputs, settings = tmp_path / "outputs", tmp_path / "config-agent1.yaml"
    arguments = chosen(sweep, {"agg": "cumsum", "seed": 0})
    save_config_file_from_dict(str(settings), arguments)
    command = agent_command(sweep, arguments)
    command[1:3] = [sys.executable, str(ROOT / sweep["program"])]
    quick = [key for key in QUICK if not key.startswith("logger")]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    agent = {"WANDB_RUN_ID": "agent1", "WANDB_SWEEP_ID": "somesweep", "WANDB_SWEEP_PARAM_PATH": str(settings)}
    done = subprocess.run(
        [*command, *quick, f"data.path={text}", f"paths.outputs={outputs}"],
        cwd=tmp_path,
        env=clean | agent | {"HOME": str(tmp_path), "NETRC": str(tmp_path / "netrc")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    outcome = Outcome(done.returncode, done.stdout, done.stderr, outputs)
    assert outcome.config["experiment_name"] == "wandb_sweep"
    assert outcome.run.name.startswith("cumsum-seed0-")
    [run] = wandb_runs(outputs)
    assert run.id == "agent1"
    assert (run.config["agg"], run.config["seed"]) == ("cumsum", 0)  # as the sweep calls them: its keys are locked
    [told] = json.loads((outcome.run / "wandb.json").read_text())["parts"]
    assert told["id"] == "agent1"


def test_every_value_of_the_grid_is_in_a_config_that_composes(sweep: dict[str, Any]) -> None:
    from trilab.compose import composed

    axes = {name: said["values"] for name, said in sweep["parameters"].items() if "values" in said}
    for place in range(max(map(len, axes.values()))):
        point = {name: values[place % len(values)] for name, values in axes.items()}
        composed(agent_command(sweep, chosen(sweep, point))[3:])

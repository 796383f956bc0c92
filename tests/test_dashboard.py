"""What `trilab dashboard` would send, and that it names what runs really log."""

import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb

from trilab import dashboard as module
from trilab.dashboard import dashboard
from trilab.errors import BadInput
from trilab.tracking import AXIS, log_report

from .conftest import Outcome
from .wandb_file import wandb_runs

pytest.importorskip("wandb_workspaces", reason="an extra: pip install 'trilab[dashboard]'")
pytestmark = pytest.mark.filterwarnings("ignore:.*Pydantic.*")  # wandb-workspaces' own use of deprecated names


def walk(content: Any) -> Iterator[dict[str, Any]]:
    """Every object in a JSON value."""
    if isinstance(content, dict):
        yield content
    for item in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        yield from walk(item)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """Of a user who is not logged in."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    content: dict[str, Any] = json.loads(dashboard("part03", project="trilab", entity="lab", dry_run=True))
    return content


def panels(view: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Kind of panel → configs."""
    found: dict[str, list[dict[str, Any]]] = {}
    for item in walk(view):
        if "viewType" in item:
            found.setdefault(item["viewType"], []).append(item["config"])
    return found


def test_the_workspace_shows_the_experiment_s_runs_a_strategy_a_group(sent: dict[str, Any]) -> None:
    view = sent["workspace"]
    assert (view["entity"], view["project"], view["displayName"]) == ("lab", "trilab", "part03")
    [runs] = view["spec"]["section"]["runSets"]
    [only] = runs["filters"]["filters"]
    assert (only["key"]["name"], only["op"], only["value"]) == ("group", "=", "part03")
    assert [key["name"] for key in runs["grouping"]] == ["jobType"]
    assert "summary:best_val_loss" in runs["runFeed"]["columnPinned"]


@pytest.mark.parametrize("which", ["workspace", "report"])
def test_both_show_loss_by_strategy_cost_samples_tables_and_verdicts(sent: dict[str, Any], which: str) -> None:
    found = panels(sent[which])
    [losses] = found["Run History Line Plot"]
    assert (losses["xAxis"], losses["metrics"], losses["groupBy"]) == (AXIS, ["val/loss"], "jobType")
    [bars] = found["Bar Chart"]
    assert (bars["metrics"], bars["groupBy"]) == (["summary_metrics.best_val_loss"], "jobType")
    parameters, flops = found["Scatter Plot"]
    assert parameters["xAxis"].endswith("n_params")
    assert flops["xAxis"].endswith("flops_per_char")
    text = json.dumps(sent[which])
    assert all(name in text for name in ("loss_by_position_table", "weights/layer_0", '"sample"', '"verdicts"'))


def test_the_report_s_runs_are_those_of_the_experiment(sent: dict[str, Any]) -> None:
    grids = [item for item in walk(sent["report"]) if item.get("type") == "panel-grid"]
    assert len(grids) == 4
    for grid in grids:
        [runs] = grid["metadata"]["runSets"]
        [only] = runs["filters"]["filters"]
        assert (only["key"]["name"], only["value"]) == ("group", "part03")


@pytest.mark.parametrize("name", ["it's", 'a"b', "a b"])
def test_a_name_with_quotes_is_a_name(name: str) -> None:
    content = json.loads(dashboard(name, project="trilab", entity=None, dry_run=True))
    filters = [item["value"] for item in walk(content) if item.get("op") == "="]
    assert filters == [name] * 5


def test_what_is_drawn_is_what_runs_log(
    train: Callable[..., Outcome], sent: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    done = train("logger=wandb")
    log_report(
        done.outputs,
        project="trilab",
        entity=None,
        mode="offline",
        experiment="default",
        rows=[{"variant": "softmax"}],
        page=tmp_path / "none.html",
    )
    wandb.teardown()
    verdicts, run = wandb_runs(done.outputs)
    logged = {key.partition("/path")[0].partition("/filenames")[0] for row in run.history for key in row}
    assert {"val/loss", AXIS, "sample", "weights/layer_0"} <= logged
    assert {"val_loss", "best_val_loss", "n_params", "flops_per_char"} <= set(run.summary)
    assert any("verdicts/path" in row for row in verdicts.history)


def test_without_the_package_there_is_one_line_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        module.importlib.util, "find_spec", lambda it, *rest: None if it == "wandb_workspaces" else find(it, *rest)
    )
    with pytest.raises(BadInput, match=r"pip install 'trilab\[dashboard\]'"):
        dashboard("part03", project="trilab", entity=None, dry_run=True)


def test_whoever_is_not_logged_in_is_told_how(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    wandb.teardown()
    with pytest.raises(BadInput, match="Log in with `wandb login`"):
        dashboard("part03", project="trilab", entity=None, dry_run=False)


@pytest.mark.parametrize(("experiment", "project"), [("", "trilab"), ("a/b", "trilab"), ("part03", " ")])
def test_what_is_no_name_is_refused(experiment: str, project: str) -> None:
    with pytest.raises(BadInput, match="is no name"):
        dashboard(experiment, project=project, entity=None, dry_run=True)

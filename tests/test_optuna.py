"""A search by Optuna: hydra/sweeper=optuna_tpe."""

import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from .command import train_py
from .conftest import Outcome

pytest.importorskip("hydra_plugins.hydra_optuna_sweeper", reason="an extra: pip install 'trilab[optuna]'")

Train = Callable[..., Outcome]
SEARCH = ("-m", "hydra/sweeper=optuna_tpe", "optim.lr=tag(log, interval(1e-4, 1e-1))", "hydra.sweeper.n_trials=3")


@pytest.mark.slow
def test_a_search_trains_as_many_runs_as_asked_for_and_names_the_best(tmp_path: Path, text: Path) -> None:
    done = train_py(tmp_path, *SEARCH, "agg=ema", "trainer.max_steps=20", text=text)
    assert done.code == 0, done.err
    assert done.out.startswith("a search\n")
    assert done.out.count("  ema seed=") == 3  # a line for each run that ends
    assert "default: 3 finished" in done.out
    assert (done.outputs / "default" / "report.html").exists()
    losses = {}
    for run in done.runs:
        rate = yaml.safe_load((run / "config.yaml").read_text())["optim"]["lr"]
        assert 1e-4 <= rate <= 1e-1
        losses[rate] = json.loads((run / "summary.json").read_text())["val_loss"]
    assert len(losses) == 3
    [found] = done.outputs.glob("*/optimization_results.yaml")
    best = yaml.safe_load(found.read_text())
    assert (best["best_params"]["optim.lr"], best["best_value"]) == min(losses.items(), key=lambda item: item[1])
    (tmp_path / "again").mkdir()
    again = train_py(tmp_path / "again", *SEARCH, "agg=ema", "trainer.max_steps=20", text=text)
    assert [run.name for run in again.runs] == [run.name for run in done.runs]  # the search itself is seeded
    passed = train_py(tmp_path, *SEARCH, "agg=ema", "trainer.max_steps=20", text=text)
    assert passed.out.count("Finished already") == 3
    assert yaml.safe_load(found.read_text()) == best


def test_a_database_that_this_optuna_cannot_write_to_is_refused(train: Train) -> None:
    if int(version("optuna").partition(".")[0]) >= 3 or int(version("SQLAlchemy").partition(".")[0]) < 2:
        pytest.skip("this Optuna knows this SQLAlchemy")
    done = train(*SEARCH, "agg=ema", "hydra.sweeper.storage=sqlite:///search.db")
    assert (done.code, done.outputs.exists()) == (2, False)
    assert "hydra.sweeper.storage=sqlite:///search.db: Optuna" in done.err


@pytest.mark.slow
def test_a_run_that_diverges_is_a_failed_trial_and_the_search_goes_on(tmp_path: Path, text: Path) -> None:
    rates = ("-m", "hydra/sweeper=optuna_tpe", "optim.lr=choice(1e30, 0.01)", "hydra.sweeper.n_trials=4")
    done = train_py(tmp_path, *rates, "agg=ema", text=text)
    assert done.code == 0, done.err
    states = {json.loads((run / "summary.json").read_text())["status"] for run in done.runs}
    assert states == {"finished", "failed"}
    [found] = done.outputs.glob("*/optimization_results.yaml")
    assert yaml.safe_load(found.read_text())["best_params"] == {"optim.lr": 0.01}


@pytest.mark.slow
def test_a_search_of_which_no_run_finishes_has_failed(tmp_path: Path, text: Path) -> None:
    rates = ("-m", "hydra/sweeper=optuna_tpe", "optim.lr=choice(1e30, 1e31)", "hydra.sweeper.n_trials=2")
    done = train_py(tmp_path, *rates, "agg=ema", text=text)
    assert done.code == 1
    assert "2 of 2 runs did not finish" in done.out

"""`trilab power`: what the spread over seeds says of the seeds that a difference needs."""

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trilab.cli import main
from trilab.errors import BadInput
from trilab.power import Floor, floor_of
from trilab.report import make_report
from trilab.stats import power

from .conftest import QUICK, exit_code
from .report.conftest import adds_runs

LOSSES = (2.50, 2.52, 2.51, 2.53)
STD = math.sqrt(0.0005 / 3)

AddRun = Callable[..., Path]


@pytest.fixture
def add_run(experiment: Path) -> AddRun:
    add = adds_runs(experiment)
    for seed, loss in enumerate(LOSSES):
        add("none", seed, loss, summary={"seconds": 30.0})
    return add


def floor(experiment: Path, difference: float = 0.01, at_once: int | None = 1) -> Floor:
    return floor_of(make_report(experiment), difference=difference, at_once=at_once)


def test_the_spread_comes_with_its_chi_square_interval(experiment: Path, add_run: AddRun) -> None:
    found = floor(experiment).spread
    assert found.std == pytest.approx(STD)
    assert found.low == pytest.approx(0.5665 * STD, rel=1e-3)  # χ² of 3 degrees of freedom: 9.348 and 0.2158
    assert found.high == pytest.approx(3.7286 * STD, rel=1e-3)
    assert found.n == 4


def test_alone_the_baseline_bounds_the_differences_by_independence(experiment: Path, add_run: AddRun) -> None:
    found = floor(experiment)
    assert found.paired_from is None
    assert found.paired.std == pytest.approx(math.sqrt(2) * STD)
    for effort in found.efforts:
        assert effort.seeds == power(found.paired.std, effort.nats)
        assert effort.low < effort.seeds < effort.high
    assert [effort.nats for effort in found.efforts] == [0.005, 0.01, 0.02, 0.05]


def test_where_variants_share_seeds_the_largest_spread_of_differences_is_taken(
    experiment: Path, add_run: AddRun
) -> None:
    for seed, loss in enumerate(LOSSES):
        add_run("cumsum", seed, loss + 0.001 * seed)
        add_run("table", seed, loss + 0.3 + 0.002 * seed)
        add_run("copy", seed, loss)
        add_run("none", seed, loss + 0.05 * seed, config={"optim": {"lr": 1.0}}, folder=f"other-{seed}", label="other")
        if seed < 2:
            add_run("ema", seed, loss + 0.1 * seed)
    found = floor(experiment)
    assert found.paired_from == "table"
    assert found.paired.std == pytest.approx(0.002 * math.sqrt(5 / 3))
    assert found.paired.n == 4
    assert found.spread.std == pytest.approx(STD)


@pytest.mark.parametrize("at_once", [1, 3, None])
def test_minutes_are_those_of_both_variants_in_rounds(experiment: Path, add_run: AddRun, at_once: int | None) -> None:
    found = floor(experiment, difference=0.04, at_once=at_once)
    (effort,) = [effort for effort in found.efforts if effort.nats == 0.04]
    assert effort.minutes == math.ceil(2 * effort.seeds / (at_once or 1)) * 0.5


def test_runs_that_do_not_tell_their_seconds_give_no_minutes(experiment: Path) -> None:
    add = adds_runs(experiment)
    for seed, loss in enumerate(LOSSES):
        add("none", seed, loss)
    assert {effort.minutes for effort in floor(experiment).efforts} == {None}


def test_one_run_tells_nothing_of_noise(experiment: Path) -> None:
    adds_runs(experiment)("none", 0, 2.5)
    with pytest.raises(BadInput, match="tells nothing of noise"):
        floor(experiment)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--seeds", "2"], "--seeds 2 must be at least 3"),
        (["--difference", "0"], "--difference 0 must be above 0"),
        (["--difference", "nan"], "--difference nan must be above 0"),
        (["seed=1,2"], "seed=1,2 is set by trilab power itself"),
        (["part03"], "part03 is no key=value"),
        (["=1"], "=1 is no key=value"),
        (["hydra/sweeper=optuna_tpe"], "hydra/sweeper=optuna_tpe is set by trilab power itself"),
        (["agg=none,ema"], "trilab power is for one configuration, and agg=none,ema make 2"),
        (["sede=1"], "sede is not a key. Did you mean seed?"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["trilab", "power", *arguments])
    monkeypatch.chdir(tmp_path)
    assert exit_code(main) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_baseline_is_trained_once_and_told_of_in_words_or_as_json(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = [*QUICK, f"data.path={text}", f"paths.outputs={tmp_path / 'outputs'}"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["trilab", "power", *keys, "--seeds", "3"])
    assert exit_code(main) == 0
    said = capsys.readouterr().out
    assert "    3/3  " in said
    assert "√2 times that" in said
    runs = {path.name.rpartition("-")[0] for path in (tmp_path / "outputs" / "power").glob("none-*")}
    assert runs == {"none-seed0", "none-seed1", "none-seed2"}
    monkeypatch.setattr(sys, "argv", ["trilab", "power", *keys, "--seeds", "3", "--json", "--difference", "0.03"])
    assert exit_code(main) == 0
    said_now = capsys.readouterr()
    found = json.loads(said_now.out)
    assert "3 of them finished already" in said_now.err
    assert found["losses"].keys() == {"0", "1", "2"}
    assert [effort["nats"] for effort in found["efforts"]] == [0.005, 0.01, 0.02, 0.03, 0.05]
    assert f"{found['spread']['std']:.4f}" in said

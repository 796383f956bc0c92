"""Of each strategy only the value of one key that did best on validation is compared."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trilab.report import make_report
from trilab.report.runs import read_runs
from trilab.report.variants import choose, group

AddRun = Callable[..., Path]


@pytest.fixture
def offer(add_run: AddRun) -> Callable[..., None]:
    """offer("ema", 0.01, 2.5, 2.6) adds runs of seeds 0, 1 at that rate, with these val losses."""

    def add(agg: str, lr: float, *val_losses: float, test_loss: float = 9.0) -> None:
        for seed, loss in enumerate(val_losses):
            config, summary = {"optim": {"lr": lr}}, {"test_loss": test_loss}
            add_run(agg, seed, loss, folder=f"{agg}-{lr}-{seed}", config=config, summary=summary)

    return add


def chosen(experiment: Path) -> tuple[list[str], list[str]]:
    kept, _, notes = choose(group(read_runs(experiment)), "optim.lr")
    return sorted(variant.name for variant in kept), notes


def test_the_lowest_mean_on_validation_counts_whatever_the_test_split_says(
    experiment: Path, offer: Callable[..., None]
) -> None:
    offer("ema", 0.001, 2.6, 2.7, test_loss=1.0)
    offer("ema", 0.01, 2.5, 2.6, test_loss=3.0)
    offer("ema", 0.1, 2.4, 2.9, test_loss=1.0)  # the lowest single seed
    assert chosen(experiment) == (["ema lr=0.01"], [])
    report = make_report(experiment, choose="optim.lr", measure="test_loss")
    (row,) = report.rows
    assert row.headline.mean == 3.0
    assert set(row.chosen_from) == {"ema lr=0.001", "ema lr=0.01", "ema lr=0.1"}


@pytest.mark.parametrize(("best", "word"), [(0.001, "smallest"), (0.1, "largest")])
def test_a_value_at_the_edge_of_the_grid_is_told(
    experiment: Path, offer: Callable[..., None], best: float, word: str
) -> None:
    for lr in (0.001, 0.01, 0.1):
        offer("ema", lr, *((2.4, 2.4) if lr == best else (2.5, 2.5)))
    note = f"ema chose the {word} optim.lr offered, {best:g}: a better one may lie beyond. Widen the grid."
    assert chosen(experiment)[1] == [note]
    assert note in make_report(experiment, choose="optim.lr").notes


def test_the_smaller_value_wins_a_tie(experiment: Path, offer: Callable[..., None]) -> None:
    for lr in (100.0, 9.0, 10.0):  # as text, 10 and 100 come before 9
        offer("ema", lr, 2.5, 2.5)
    assert chosen(experiment)[0] == ["ema lr=9"]


def test_a_value_of_which_a_seed_has_failed_is_not_chosen_and_is_named(
    experiment: Path, offer: Callable[..., None]
) -> None:
    offer("ema", 0.001, 2.6, 2.6)
    offer("ema", 0.01, 2.5, 2.5)
    offer("ema", 0.1, 2.0)  # its other seed diverged
    names, notes = chosen(experiment)
    assert names == ["ema lr=0.01"]
    assert notes == ["ema lr=0.1: not chosen from, 1 of 2 seeds have finished."]


def test_a_strategy_with_one_value_has_no_edge(experiment: Path, offer: Callable[..., None]) -> None:
    offer("none", 0.01, 2.5, 2.5)
    assert chosen(experiment) == (["none"], [])

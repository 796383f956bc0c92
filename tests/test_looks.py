"""The plan of looks on disk, and what a report makes of it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from trilab.errors import BadInput
from trilab.looks import looks_of, read_looks, settle
from trilab.report import make_report
from trilab.sequential import Spending

from .report.conftest import adds_runs

PLAN = Spending(first=3, last=7)
GOES_ON = {"sweep": {"until_decided": True, "max_seeds": 7}}
BROKEN = ["", "{", "[]", "null", '{"first": 3}', '{"alpha": 0.05, "first": 3.0, "last": 7, "every": 1}', "\xff"]


@pytest.fixture
def add_run(experiment: Path) -> Callable[..., Path]:
    return adds_runs(experiment)


def test_a_plan_is_read_as_it_was_settled_and_stays_what_it_was(experiment: Path) -> None:
    assert read_looks(experiment) is None
    assert settle(experiment, PLAN) == PLAN
    assert read_looks(experiment) == PLAN
    assert settle(experiment, Spending(first=5, last=7)) == PLAN


def test_another_number_of_seeds_after_the_first_looks_is_refused(experiment: Path) -> None:
    settle(experiment, PLAN)
    with pytest.raises(BadInput, match=r"sweep\.max_seeds=9, but .*looks\.json was settled for at most 7"):
        settle(experiment, Spending(first=3, last=9))
    assert read_looks(experiment) == PLAN


@pytest.mark.parametrize("content", BROKEN)
def test_a_broken_plan_is_no_plan_and_a_sweep_does_not_write_over_it(experiment: Path, content: str) -> None:
    (experiment / "looks.json").write_text(content, encoding="latin-1")
    with pytest.raises(BadInput, match=r"looks\.json cannot be read as the plan of looks"):
        settle(experiment, PLAN)
    assert (experiment / "looks.json").read_text(encoding="latin-1") == content


@pytest.mark.parametrize("content", [*BROKEN, None])
def test_without_a_plan_the_configs_say_how_careful_to_be(experiment: Path, content: str | None) -> None:
    if content is not None:
        (experiment / "looks.json").write_text(content, encoding="latin-1")
    what = "is gone" if content is None else "cannot be read"
    spending, said = looks_of(experiment, [{}, {"sweep": None}, {"sweep": {"until_decided": False}}, GOES_ON])
    assert spending == Spending(first=3, last=7)
    assert said == f"looks.json {what}: looks are taken to be at 3 … 7 seeds."
    spending, said = looks_of(experiment, [{}, {"sweep": {"until_decided": True, "max_seeds": "7"}}])
    assert spending is None
    assert said == ("" if content is None else f"looks.json {what}: {said.partition(': ')[2]}")
    assert ("more often than 5 %" in said) == (content is not None)


def test_a_report_judges_by_the_looks_and_says_what_they_cost(experiment: Path, add_run: Callable[..., Path]) -> None:
    """p of `doubtful` is between the level of a look and 5 %: plainly compared it would be worse."""
    for seed, noise in enumerate((0.0, 0.01, -0.02, 0.015)):
        add_run("none", seed, 2.5 + noise)
        add_run("doubtful", seed, 2.5 + noise + (0.02, 0.03, 0.05, 0.04)[seed])
        if seed < 3:
            add_run("plain", seed, 2.9 + noise + 0.001 * seed)
    plain = {row.name: row.comparison for row in make_report(experiment).rows}
    assert plain["doubtful"] is not None
    assert plain["doubtful"].verdict == "worse"
    settle(experiment, PLAN)
    report = make_report(experiment)
    found = {row.name: row.comparison for row in report.rows if row.comparison}
    assert {name: c.verdict for name, c in found.items()} == {"doubtful": "undecided", "plain": "worse"}
    assert plain["doubtful"].difference == found["doubtful"].difference
    assert report.spending == PLAN
    (note,) = report.notes
    assert note == (
        "Seeds are added until decided, to at most 7: each of 5 looks may spend 1 of 5 % and is what p is held "
        "against; spent so far 2 %; decided at 3 seeds: plain."
    )


def test_with_a_last_seed_given_a_report_knows_of_no_later_one(experiment: Path, add_run: Callable[..., Path]) -> None:
    for seed in range(5):
        add_run("none", seed, 2.5 + 0.01 * seed)
    (row,) = make_report(experiment, up_to=2).rows
    assert row.seeds == (0, 1, 2)


def test_with_one_seed_the_interval_over_text_is_still_shown(experiment: Path, add_run: Callable[..., Path]) -> None:
    blocks = {"characters": [10] * 8, "nats": [25.0, 24, 26, 25, 24, 25, 26, 25]}
    add_run("none", 0, 2.5, summary={"loss_by_block": blocks})
    add_run("softmax", 0, 2.8, summary={"loss_by_block": {**blocks, "nats": [n + 3 for n in blocks["nats"]]}})
    settle(experiment, PLAN)
    (comparison,) = [row.comparison for row in make_report(experiment).rows if row.comparison]
    assert (comparison.over, comparison.verdict) == ("text", "undecided")
    assert json.loads((experiment / "looks.json").read_text())["last"] == 7

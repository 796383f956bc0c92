"""The plan of looks on disk, and what a report makes of it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from trilab.errors import BadInput
from trilab.looks import Looks, looks_of, read_looks, settle
from trilab.report import make_report
from trilab.sequential import Spending

from .report.conftest import adds_runs

PLAN = Looks(Spending(first=3, last=7), "none", "val_loss", 0.005)
GOES_ON = {"sweep": {"until_decided": True, "max_seeds": 7}}
BROKEN = ["", "{", "[]", "null", '{"first": 3}', '{"alpha": 0.05, "first": 3.0, "last": 7, "every": 1}', "\xff"]


@pytest.fixture
def add_run(experiment: Path) -> Callable[..., Path]:
    return adds_runs(experiment)


def test_a_plan_is_read_as_it_was_settled_and_stays_what_it_was(experiment: Path) -> None:
    assert read_looks(experiment) is None
    assert settle(experiment, PLAN) == PLAN
    assert read_looks(experiment) == PLAN
    assert settle(experiment, replace(PLAN, spending=Spending(first=5, last=7), seen=2)) == PLAN


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            replace(PLAN, spending=Spending(first=3, last=9)),
            "sweep.max_seeds=9, but … was settled for sweep.max_seeds=7",
        ),
        (replace(PLAN, margin=3.0), "report.margin=3.0, but … was settled for report.margin=0.005"),
        (replace(PLAN, baseline="ema"), "report.baseline=ema, but … was settled for report.baseline=none"),
        (replace(PLAN, measure="test_loss"), "report.measure=test_loss, but … was settled for report.measure=val_loss"),
    ],
)
def test_another_plan_or_other_terms_after_the_first_looks_are_refused(
    experiment: Path, other: Looks, said: str
) -> None:
    settle(experiment, PLAN)
    with pytest.raises(BadInput) as refused:
        settle(experiment, other)
    assert said.replace("…", str(experiment / "looks.json")) in str(refused.value)
    assert read_looks(experiment) == PLAN


def test_a_report_holds_to_the_terms_of_the_looks_and_says_where_others_were_asked_for(
    experiment: Path, add_run: Callable[..., Path]
) -> None:
    for seed, noise in enumerate((0.0, 0.001, -0.001)):
        add_run("none", seed, 2.5 + noise, config={"report": {"margin": 0.001}})
        add_run("ema", seed, 2.51 + 1.1 * noise)
    settle(experiment, replace(PLAN, margin=0.5, seen=3))
    report = make_report(experiment)
    assert report.terms.margin == 0.5
    assert any("3 seeds had finished before the looks were settled" in note for note in report.notes)
    other = make_report(experiment, margin=0.25)
    assert other.terms.margin == 0.25
    assert any("settled for other terms than margin=0.25" in note for note in other.notes)


def test_seeds_beyond_the_look_that_decided_are_named(experiment: Path, add_run: Callable[..., Path]) -> None:
    for seed, noise in enumerate((0.0, 0.001, -0.001, 0.002)):
        add_run("none", seed, 2.5 + noise)
        add_run("plain", seed, 2.9 + 1.1 * noise)
    add_run("plain", 9, 2.9)
    settle(experiment, PLAN)
    notes = make_report(experiment).notes
    assert "plain: seed 3 came after the look that its verdict is of and is not in it." in notes
    assert any("seed 9 only in plain" in note for note in notes)


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
    usual = replace(PLAN, spending=Spending(), margin=0.25)
    looks, said = looks_of(experiment, [{}, {"sweep": None}, {"sweep": {"until_decided": False}}, GOES_ON], usual)
    assert looks == replace(PLAN, margin=0.25)
    assert said == f"looks.json {what}: looks are taken to be at 3 … 7 seeds."
    looks, said = looks_of(experiment, [{}, {"sweep": {"until_decided": True, "max_seeds": "7"}}], usual)
    assert looks is None
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
    assert report.spending == PLAN.spending
    note, of_intervals = report.notes
    assert "they cover less than 95 %" in of_intervals
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

"""Which row is drawn how, and differences with their intervals on one axis."""

from collections.abc import Callable
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest

from trilab.report import Row, make_report
from trilab.report.page.intervals import axis, interval, shared_axis
from trilab.report.page.looks import looks

AddRun = Callable[..., Path]
MARGIN = 0.005


@pytest.fixture
def rows(experiment: Path, add_run: AddRun) -> Callable[..., dict[str, Row]]:
    """Rows of three seeds at these losses, with their spread, by name."""

    def made(spread: float = 0.001, **levels: float) -> dict[str, Row]:
        for k, (name, level) in enumerate(levels.items()):
            for seed in range(3):
                add_run(name, seed, level + seed * spread * (k + 1))
        return {row.name: row for row in make_report(experiment).rows}

    return made


MakeRows = Callable[..., dict[str, Row]]


def test_one_axis_holds_every_interval(rows: MakeRows) -> None:
    found = rows(none=2.5, window=2.49, attention=2.4, sum=2.55)
    scale = shared_axis(list(found.values()), MARGIN)
    assert scale is not None
    for row in found.values():
        if (difference := row.difference) is not None:
            assert difference.low is not None
            assert difference.high is not None
            assert scale.holds(difference.low)
            assert scale.holds(difference.high)
            assert "arrow" not in interval(row, scale, MARGIN)
    assert "0.0" in axis(scale, MARGIN)


def test_a_row_far_out_ends_in_an_arrow_and_leaves_the_rest_their_room(rows: MakeRows) -> None:
    found = rows(none=2.5, window=2.49, attention=2.4, lost=9.0)
    scale = shared_axis(list(found.values()), MARGIN)
    assert scale is not None
    assert not scale.holds(6.5)
    assert scale(0.0) - scale(-0.1) > 50
    assert "arrow" in interval(found["lost"], scale, MARGIN)
    assert "arrow" not in interval(found["attention"], scale, MARGIN)


def test_an_interval_wider_than_the_axis_ends_in_arrows_at_both_ends(rows: MakeRows) -> None:
    found = rows(spread=0.2, none=2.5, window=2.31)
    scale = shared_axis(list(found.values()), MARGIN)
    assert scale is not None
    drawn = fromstring(interval(found["window"], scale, MARGIN))
    assert len([part for part in drawn if part.get("class") == "arrow"]) == 2


def test_the_verdict_is_told_by_form_too(rows: MakeRows, add_run: AddRun) -> None:
    for seed, loss in enumerate((2.4, 2.5, 2.6)):
        add_run("open", seed, loss)
    found = rows(spread=1e-5, none=2.5, attention=2.4, same=2.5001)
    scale = shared_axis(list(found.values()), MARGIN)
    assert scale is not None
    drawn = {name: interval(row, scale, MARGIN) for name, row in found.items()}
    verdicts = {name: row.comparison.verdict for name, row in found.items() if row.comparison}
    assert verdicts == {"attention": "better", "same": "equal", "open": "undecided"}
    for name, verdict in verdicts.items():
        assert f"verdict-{verdict}" in drawn[name]
    assert 'rect class="mean"' in drawn["same"]
    assert 'circle class="mean"' in drawn["attention"]
    assert 'circle class="mean"' in drawn["open"]  # hollow, by the verdict's class


def test_without_a_difference_there_is_no_axis(rows: MakeRows) -> None:
    assert shared_axis(list(rows(window=2.4, attention=2.5).values()), MARGIN) is None


def test_few_rows_have_a_colour_each_and_twins_the_same(rows: MakeRows) -> None:
    found = rows(spread=0.0, none=2.5, cumsum=2.4, loop=2.4, attention=2.3)
    look = dict(zip(found, looks(list(found.values())), strict=True))
    assert look["none"] == "look-baseline"
    assert look["cumsum"] == look["loop"]
    assert len(set(look.values())) == 3


def test_of_many_rows_only_the_three_best_and_the_baseline_stand_out(rows: MakeRows) -> None:
    found = rows(none=2.5, **{f"s{k}": 2.4 - 0.01 * k for k in range(9)})
    look = dict(zip(found, looks(list(found.values())), strict=True))
    assert look["none"] == "look-baseline"
    assert [look[name] for name in ("s8", "s7", "s6")] == ["look-0", "look-1", "look-2"]
    assert {look[f"s{k}"] for k in range(6)} == {"look-plain"}

"""Standings → rows, and how far they are from the baseline."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from trilab.overview.experiment import Standing, State
from trilab.overview.rows import Row, make_rows


def standing(
    label: str,
    seed: int | None = 0,
    losses: Mapping[int, float] | None = None,
    *,
    state: State = "running",
    settings: Mapping[str, str] | None = None,
    max_steps: int | None = 1000,
    step: int | None = None,
) -> Standing:
    losses = losses or {}
    return Standing(
        folder=Path(f"outputs/part03/{label}-seed{seed}"),
        label=label,
        seed=seed,
        state=state,
        step=max(losses, default=0) if step is None else step,
        max_steps=max_steps,
        val_losses=losses,
        steps_per_second=None,
        settings={"agg._target_": label} if settings is None else settings,
    )


def planned(label: str, seed: int) -> Standing:
    return Standing(Path(f"outputs/part03/{label}-seed{seed}"), label, seed, "left", 0, 1000, {}, None, None)


def rows_of(*standings: Standing, baseline: str = "none") -> dict[str, Row]:
    return {row.name: row for row in make_rows(standings, baseline=baseline)[0]}


def test_a_difference_is_paired_by_seed_at_the_latest_step_that_both_have() -> None:
    rows = rows_of(
        standing("none", 0, {500: 3.0, 1000: 2.5}),
        standing("none", 1, {500: 3.5}),
        standing("none", 2, {500: 9.0}),
        standing("sum", 0, {500: 2.0, 1000: 2.25}),
        standing("sum", 1, {500: 3.0, 1000: 1.0}),
        standing("sum", 3, {500: 1.0}),
    )
    difference = rows["sum"].difference
    assert difference is not None
    assert difference.paired.mean == pytest.approx((-0.25 - 0.5) / 2)
    assert difference.paired.seeds == (0, 1)
    assert (difference.first_step, difference.last_step) == (500, 1000)
    assert rows["none"].is_baseline
    assert rows["none"].difference is None


def test_without_a_common_step_or_seed_there_is_no_difference() -> None:
    rows = rows_of(
        standing("none", 0, {500: 3.0}),
        standing("sum", 0, {400: 2.0}),
        standing("table", 1, {500: 2.0}),
        planned("x", 0),
    )
    assert [rows[name].difference for name in ("sum", "table", "x")] == [None, None, None]


def test_any_row_can_be_the_baseline_and_it_comes_first() -> None:
    losses = {500: 3.0}
    rows, note = make_rows([standing("none", 0, losses), standing("sum", 0, losses)], baseline="sum")
    assert ([row.name for row in rows], note) == (["sum", "none"], "")


def test_a_baseline_that_is_not_there_or_not_clear_is_told() -> None:
    rows, note = make_rows([standing("sum")], baseline="none")
    assert (rows[0].difference, note) == (None, "No differences: there is no run of the baseline 'none'.")
    several = [standing("sum", settings={"agg.size": size}) for size in ("2", "4")]
    rows, note = make_rows(several, baseline="sum")
    assert note == "No differences: the baseline 'sum' could be any of 'sum size=2', 'sum size=4'."
    assert make_rows(several, baseline="sum size=4")[1] == ""


def test_runs_that_differ_in_a_knob_are_rows_of_their_own() -> None:
    rows = rows_of(*(standing("window", seed, settings={"agg.size": size}) for size in ("2", "4") for seed in (1, 0)))
    assert list(rows) == ["window size=2", "window size=4"]
    assert [s.seed for s in rows["window size=2"].standings] == [0, 1]


def test_a_planned_run_joins_the_only_row_of_its_label_and_else_stands_alone() -> None:
    two = [standing("window", settings={"agg.size": size}) for size in ("2", "4")]
    rows = rows_of(standing("sum", 0), planned("sum", 1), planned("none", 0), *two, planned("window", 1))
    assert [s.seed for s in rows["sum"].standings] == [0, 1]
    assert sorted(rows) == ["none", "sum", "window", "window size=2", "window size=4"]


def test_a_curve_is_the_mean_over_the_seeds_that_have_the_step() -> None:
    row = rows_of(standing("sum", 0, {500: 3.0, 1000: 2.5}), standing("sum", 1, {500: 2.0}))["sum"]
    assert row.curve == {500: 2.5, 1000: 2.5}


def test_a_trend_does_not_jump_where_a_seed_is_behind() -> None:
    behind = rows_of(standing("sum", 0, {500: 3.0, 1000: 2.5, 1500: 2.25}), standing("sum", 1, {500: 2.0}))["sum"]
    assert behind.trend == {500: 2.5, 1000: 2.0, 1500: 1.75}
    level = rows_of(standing("sum", 0, {500: 3.0, 1000: 2.5}), standing("sum", 1, {500: 2.0, 1000: 1.75}))["sum"]
    assert level.trend == level.curve == {500: 2.5, 1000: 2.125}
    apart = rows_of(standing("sum", 0, {500: 3.0}), standing("sum", 1, {1000: 2.0}))["sum"]
    assert apart.trend == {500: 3.0, 1000: 2.0}


def test_how_much_is_done_counts_steps_of_all_runs() -> None:
    assert rows_of(standing("sum", 0, {1000: 2.5}), planned("sum", 1))["sum"].done == 0.5
    assert rows_of(standing("sum", 0, {1000: 2.5}, max_steps=None))["sum"].done is None
    assert rows_of(standing("sum", 0, {1000: 2.5}, max_steps=0))["sum"].done is None


def test_of_two_runs_of_one_seed_the_first_counts() -> None:
    rows = rows_of(standing("none", 0, {500: 3.0}), standing("sum", 0, {500: 2.0}), standing("sum", 0, {500: 1.0}))
    difference = rows["sum"].difference
    assert difference is not None
    assert (difference.paired.mean, difference.paired.n) == (-1.0, 1)


def test_runs_without_a_seed_are_shown_and_not_compared() -> None:
    rows = rows_of(standing("none", None, {500: 3.0}), standing("sum", None, {500: 2.0}))
    assert rows["sum"].difference is None

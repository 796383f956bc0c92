from dataclasses import replace

import numpy as np
import pytest

from trilab.sequential import Spending, look_by_look
from trilab.stats import compare

BASELINE = {seed: 2.5 + 0.01 * (seed % 3) for seed in range(12)}


def shifted(by: float, wobble: float, seeds: int = 12, pattern: int = 0) -> dict[int, float]:
    draws = np.random.default_rng(pattern).normal(by, wobble, seeds)
    return {seed: BASELINE[seed] + float(draws[seed]) for seed in range(seeds)}


def first(losses: dict[int, float], n: int) -> dict[int, float]:
    return {seed: losses[seed] for seed in sorted(losses)[:n]}


# Spending


@pytest.mark.parametrize(
    ("spending", "looks"),
    [
        (Spending(), tuple(range(3, 13))),
        (Spending(first=2, last=2), (2,)),
        (Spending(first=3, last=9, every=2), (3, 5, 7, 9)),
        (Spending(first=3, last=8, every=2), (3, 5, 7, 8)),
        (Spending(first=5, last=7, every=100), (5, 7)),
    ],
)
def test_looks_go_from_the_first_to_the_last(spending: Spending, looks: tuple[int, ...]) -> None:
    assert spending.looks == looks


@pytest.mark.parametrize("alpha", [0.05, 0.01])
@pytest.mark.parametrize(("last", "every"), [(3, 1), (4, 1), (12, 1), (30, 1), (12, 4)])
def test_the_levels_of_all_looks_are_alpha_together(alpha: float, last: int, every: int) -> None:
    spending = Spending(alpha, first=3, last=last, every=every)
    assert sum(spending.level(n) for n in spending.looks) == pytest.approx(alpha, rel=1e-12)


def test_one_look_may_use_all_of_alpha() -> None:
    assert Spending(0.05, first=5, last=5).level(5) == 0.05


@pytest.mark.parametrize("n", [0, 2, 4, 13])
def test_a_look_that_was_not_planned_has_no_level(n: int) -> None:
    with pytest.raises(ValueError, match=f"no look at {n} seeds, only at 3, 5, 7"):
        Spending(first=3, last=7, every=2).level(n)


@pytest.mark.parametrize("wrong", [{"alpha": 0.0}, {"alpha": 1.0}, {"first": 1}, {"first": 5, "last": 4}, {"every": 0}])
def test_a_plan_that_makes_no_sense_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="2 ≤ first ≤ last"):
        Spending(**wrong)


# Verdicts look by look


SPENDING = Spending(0.05, first=3, last=12)


def test_a_plain_difference_is_decided_at_an_early_look_and_stays_so() -> None:
    values = {"plain": shifted(0.3, 0.001), "doubtful": shifted(0.001, 0.02, pattern=1)}
    found = look_by_look(values, BASELINE, spending=SPENDING)
    assert (found["plain"].verdict, found["plain"].difference.n) == ("worse", 3)
    assert (found["doubtful"].verdict, found["doubtful"].difference.n) == ("undecided", 12)
    turned = {**values, "plain": {seed: loss - (seed > 2) for seed, loss in values["plain"].items()}}
    assert look_by_look(turned, BASELINE, spending=SPENDING)["plain"] == found["plain"]


def test_a_look_uses_its_own_part_of_alpha_only() -> None:
    values = {"v": shifted(0.012, 0.008)}
    found = look_by_look(values, BASELINE, spending=SPENDING, margin=0)["v"]
    n = found.difference.n
    assert found.verdict == "worse"
    assert 3 < n < 12
    before = [compare({"v": first(values["v"], k)}, BASELINE, margin=0)["v"].p_adjusted or 0 for k in range(3, n + 1)]
    assert before[-1] <= 0.005
    assert all(p > 0.005 for p in before[:-1])
    assert any(p <= 0.05 for p in before[:-1])


def test_at_one_look_the_verdicts_are_those_of_compare() -> None:
    values = {f"v{i}": shifted(0.004 * i, 0.006, pattern=i) for i in range(5)}
    once = Spending(0.05, first=12, last=12)
    assert look_by_look(values, BASELINE, spending=once) == compare(values, BASELINE)


def test_before_the_first_look_nothing_is_decided() -> None:
    values = {"v": shifted(0.3, 0.0001), "twin": dict(BASELINE)}
    found = look_by_look(
        {name: first(losses, 2) for name, losses in values.items()}, first(BASELINE, 2), spending=SPENDING
    )
    assert {c.verdict for c in found.values()} == {"undecided"}
    assert look_by_look({"v": {}}, {}, spending=SPENDING)["v"].verdict == "undecided"


def test_seeds_between_two_looks_wait_for_the_next() -> None:
    values, sparse = {"v": shifted(0.003, 0.006)}, Spending(first=4, last=12, every=4)
    at_four = look_by_look({"v": first(values["v"], 4)}, first(BASELINE, 4), spending=sparse)
    assert look_by_look({"v": first(values["v"], 7)}, first(BASELINE, 7), spending=sparse) == at_four
    assert at_four["v"].difference.n == 4


def test_a_variant_that_stopped_when_it_was_decided_gives_the_same_verdicts_as_one_that_went_on() -> None:
    values = {"plain": shifted(0.3, 0.001), "doubtful": shifted(0.01, 0.02, pattern=1)}
    stopped = {**values, "plain": first(values["plain"], 3)}
    assert look_by_look(stopped, BASELINE, spending=SPENDING) == look_by_look(values, BASELINE, spending=SPENDING)


def test_what_was_decided_stays_when_seeds_are_added() -> None:
    values = {f"v{i}": shifted(0.01 * i, 0.012, pattern=i) for i in range(6)}
    before = {}
    for n in range(3, 13):
        found = look_by_look({k: first(v, n) for k, v in values.items()}, first(BASELINE, n), spending=SPENDING)
        for name, comparison in before.items():
            assert comparison.verdict == "undecided" or found[name] == comparison
        before = found
    assert {c.verdict for c in before.values()} >= {"worse", "undecided"}


def test_a_missing_seed_of_a_variant_does_not_delay_the_looks() -> None:
    gap = {seed: loss for seed, loss in shifted(0.3, 0.001).items() if seed != 1}
    found = look_by_look({"v": gap}, BASELINE, spending=SPENDING)["v"]
    assert (found.verdict, found.difference.seeds) == ("worse", (0, 2))


def test_an_undecided_variant_says_how_many_seeds_the_next_look_would_need() -> None:
    values = {"v": shifted(0.003, 0.01)}
    found = look_by_look(values, BASELINE, spending=SPENDING)["v"]
    assert found == replace(compare(values, BASELINE, alpha=0.005)["v"])
    assert (found.seeds_needed or 0) > (compare(values, BASELINE)["v"].seeds_needed or 0)

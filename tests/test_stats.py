import random
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import DescrStatsW, ttost_paired

from trilab.stats import (
    MOST_SEEDS,
    Blocks,
    Comparison,
    Verdict,
    compare,
    paired_difference,
    power,
    sample_std,
    smallest_difference,
)

BASELINE = {0: 2.500, 1: 2.512, 2: 2.491, 3: 2.505, 4: 2.498}


def shifted(by: float, wobble: float, seeds: int = 5, pattern: int = 0) -> dict[int, float]:
    """The baseline's losses moved by `by` on the mean, give or take the wobble."""
    draws = np.random.default_rng(pattern).standard_normal(seeds)
    draws = (draws - draws.mean()) / draws.std(ddof=1) * wobble
    return {seed: BASELINE[seed] + by + float(draws[seed]) for seed in range(seeds)}


def a_family(size: int = 8) -> dict[str, dict[int, float]]:
    return {f"v{i}": shifted(0.004 * i - 0.012, 0.004, pattern=i) for i in range(size)}


def differences(values: dict[int, float]) -> list[float]:
    return [values[seed] - BASELINE[seed] for seed in sorted(values)]


# The difference of two variants


def test_the_paired_difference_is_the_mean_of_the_differences_seed_by_seed() -> None:
    difference = paired_difference({0: 2.5, 1: 2.75, 2: 2.0}, {0: 2.0, 1: 2.0, 2: 2.0})
    # 0.5, 0.75, 0: mean 1.25 / 3, squared deviations (1/12)² + (1/3)² + (5/12)² = 42/144, halved
    assert difference.mean == pytest.approx(1.25 / 3, rel=1e-15)
    assert difference.std == pytest.approx((21 / 144) ** 0.5, rel=1e-15)
    assert (difference.n, difference.seeds) == (3, (0, 1, 2))
    assert (difference.unpaired, difference.unpaired_baseline) == ((), ())


def test_only_common_seeds_count_and_the_others_are_named() -> None:
    difference = paired_difference({5: 100.0, 1: 2.5, 0: 2.5}, {3: -100.0, 0: 2.0, 1: 1.0})
    assert difference.mean == 1.0
    assert difference.seeds == (0, 1)
    assert difference.unpaired == (5,)
    assert difference.unpaired_baseline == (3,)


def test_without_a_common_seed_there_is_no_difference() -> None:
    difference = paired_difference({0: 2.5}, {1: 2.0})
    assert (difference.mean, difference.std, difference.n) == (None, None, 0)
    assert (difference.low, difference.high, difference.p) == (None, None, None)


def test_one_pair_has_a_difference_but_no_spread_and_no_interval() -> None:
    difference = paired_difference({0: 2.5}, {0: 2.0})
    assert (difference.mean, difference.std) == (0.5, None)
    assert (difference.low, difference.high, difference.p) == (None, None, None)


def test_the_spread_divides_by_one_less_than_the_number_of_seeds() -> None:
    assert sample_std([1.0, 2.0, 3.0]) == 1.0
    assert sample_std([1.0]) is None


def test_equal_values_have_a_spread_and_a_difference_of_exactly_zero() -> None:
    assert sample_std([0.1, 0.1, 0.1]) == 0.0
    values = {seed: 0.1 * seed for seed in range(7)}
    difference = paired_difference(values, values)
    assert (difference.mean, difference.low, difference.high, difference.p) == (0.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize("n", [2, 3, 5, 40])
def test_interval_and_p_are_those_of_the_paired_t_test(n: int) -> None:
    draw = random.Random(n)
    values = {seed: draw.gauss(2.51, 0.02) for seed in range(n)}
    baseline = {seed: draw.gauss(2.5, 0.02) for seed in range(n)}
    difference = paired_difference(values, baseline)
    theirs = stats.ttest_rel(list(values.values()), list(baseline.values()))
    low, high = DescrStatsW([values[s] - baseline[s] for s in range(n)]).tconfint_mean(alpha=0.05)
    assert difference.p == pytest.approx(theirs.pvalue, rel=1e-9)
    assert (difference.low, difference.high) == (pytest.approx(low, rel=1e-9), pytest.approx(high, rel=1e-9))


def test_a_difference_can_be_had_without_loading_scipy() -> None:
    program = (
        "import sys; from trilab.stats import paired_difference as d; d({0: 1.0, 1: 2.0}, {0: 1.5, 1: 1.0}).std;"
        "print([name for name in ('scipy', 'numpy', 'torch') if name in sys.modules])"
    )
    told = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "[]\n"


# A family of comparisons


def test_p_is_adjusted_by_holm_over_the_family() -> None:
    family = a_family()
    compared = compare(family, BASELINE)
    plain = [stats.ttest_1samp(differences(values), 0).pvalue for values in family.values()]
    holm = multipletests(plain, method="holm")[1]
    assert [compared[name].p_adjusted for name in family] == pytest.approx(list(holm), rel=1e-9)
    assert len(set(holm)) > 3


@pytest.mark.parametrize("margin", [0.004, 0.008, 0.012, 0.02])
def test_verdicts_are_those_of_holm_adjusted_tests_equality_first(margin: float) -> None:
    family = a_family()
    zeros = [0.0] * len(BASELINE)
    tost = [ttost_paired(np.array(differences(v)), np.array(zeros), -margin, margin)[0] for v in family.values()]
    equal = multipletests(tost, method="holm")[1]
    plain = multipletests([stats.ttest_1samp(differences(v), 0).pvalue for v in family.values()], method="holm")[1]
    expected: dict[str, Verdict] = {}
    for name, near, far in zip(family, equal, plain, strict=True):
        apart: Verdict = "better" if np.mean(differences(family[name])) < 0 else "worse"
        expected[name] = "equal" if near <= 0.05 else apart if far <= 0.05 else "undecided"
    assert {name: c.verdict for name, c in compare(family, BASELINE, margin=margin).items()} == expected


def test_the_verdict_tells_direction_closeness_and_doubt() -> None:
    family = {
        "lower": shifted(-0.05, 0.004),
        "higher": shifted(0.05, 0.004),
        "close": shifted(0.0003, 0.0008),
        "doubtful": shifted(0.004, 0.02),
    }
    compared = compare(family, BASELINE)
    assert [c.verdict for c in compared.values()] == ["better", "worse", "equal", "undecided"]
    assert {c.over for c in compared.values()} == {"seeds"}


def test_a_difference_that_is_sure_but_smaller_than_the_margin_is_equal() -> None:
    values = {"v": shifted(0.002, 0.0001)}
    assert compare(values, BASELINE)["v"].verdict == "equal"
    assert compare(values, BASELINE, margin=0.001)["v"].verdict == "worse"
    assert compare(values, BASELINE)["v"].p_adjusted == pytest.approx(1.4e-6, rel=0.1)


def test_variants_of_the_same_bits_count_once_in_the_family() -> None:
    once = compare({"a": shifted(0.012, 0.009), "b": shifted(0.03, 0.004)}, BASELINE)
    twins = compare({name: shifted(0.012, 0.009) for name in "acdefg"} | {"b": shifted(0.03, 0.004)}, BASELINE)
    assert {twins[name].p_adjusted for name in "acdefg"} == {once["a"].p_adjusted}
    assert (twins["b"], twins["g"]) == (once["b"], once["a"])


def test_a_twin_in_fewer_seeds_is_other_evidence() -> None:
    full = shifted(0.012, 0.009)
    compared = compare({"full": full, "less": {seed: full[seed] for seed in range(4)}}, BASELINE)
    smaller = min(c.difference.p or 0 for c in compared.values())
    assert min(c.p_adjusted or 0 for c in compared.values()) == pytest.approx(2 * smaller)


def test_a_variant_with_one_pair_or_none_is_not_of_the_family() -> None:
    alone = compare({"a": shifted(0.012, 0.009)}, BASELINE)["a"]
    compared = compare({"a": shifted(0.012, 0.009), "one": {0: 2.6}, "none": {77: 2.6}}, BASELINE)
    assert compared["a"] == alone
    for name in ("one", "none"):
        found = compared[name]
        assert (found.p_adjusted, found.verdict, found.seeds_needed, found.over) == (None, "undecided", None, "seeds")


def test_an_adjusted_p_is_a_probability() -> None:
    family = {f"v{i}": shifted(0.0, 0.02, pattern=i) for i in range(3)}
    assert {c.p_adjusted for c in compare(family, BASELINE).values()} == {1.0}


def test_an_empty_family_has_no_comparisons() -> None:
    assert compare({}, BASELINE) == {}
    assert compare({"a": {}}, {})["a"].verdict == "undecided"


def test_the_order_of_variants_and_of_seeds_does_not_matter() -> None:
    family = a_family()
    turned = {name: dict(reversed(family[name].items())) for name in reversed(family)}
    assert compare(turned, dict(reversed(BASELINE.items()))) == compare(family, BASELINE)


# No spread at all


@pytest.mark.parametrize("margin", [0.0, 0.005])
def test_the_same_bits_as_the_baseline_are_equal(margin: float) -> None:
    found = compare({"twin": dict(BASELINE), "other": shifted(0.05, 0.004)}, BASELINE, margin=margin)["twin"]
    assert (found.verdict, found.p_adjusted, found.seeds_needed) == ("equal", 1.0, None)
    assert (found.difference.low, found.difference.high, found.difference.p) == (0.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("by", "verdict"), [(0.25, "worse"), (-0.25, "better"), (2**-9, "equal"), (-(2**-9), "equal"), (2**-7, "worse")]
)
def test_one_difference_in_every_seed_is_taken_as_known(by: float, verdict: Verdict) -> None:
    baseline = {0: 2.0, 1: 2.25, 2: 2.5}
    found = compare({"v": {seed: loss + by for seed, loss in baseline.items()}}, baseline)["v"]
    assert found.difference.std == 0.0
    assert (found.verdict, found.p_adjusted, found.seeds_needed) == (verdict, 0.0, None)
    assert (found.difference.low, found.difference.high) == (by, by)


def test_a_spread_of_rounding_errors_is_judged_like_none() -> None:
    # 0.1 but for the last bits
    found = compare({"v": {0: 0.3, 1: 0.7, 2: 1.1}}, {0: 0.2, 1: 0.6, 2: 1.0})["v"]
    assert 0 < (found.difference.std or 0) < 1e-15
    assert (found.verdict, found.seeds_needed) == ("worse", None)


@pytest.mark.parametrize("tiny", [5e-324, 1e-300])
def test_the_smallest_spread_that_can_be_written_breaks_nothing(tiny: float) -> None:
    found = compare({"v": {0: tiny, 1: 0.0}, "w": {0: 1.0, 1: 1.0}}, {0: 0.0, 1: 0.0})
    assert (found["v"].verdict, found["w"].verdict) == ("equal", "worse")


# How many seeds would decide


@pytest.mark.parametrize(("by", "wobble"), [(0.012, 0.012), (0.02, 0.03), (0.02, 0.16)])
@pytest.mark.parametrize("members", [1, 4])
def test_seeds_needed_agrees_with_statsmodels_where_a_difference_is_the_nearer_verdict(
    by: float, wobble: float, members: int
) -> None:
    family = {f"v{i}": shifted(by, wobble, pattern=i) for i in range(members)}
    needed = compare(family, BASELINE, margin=1e-6)["v0"].seeds_needed
    theirs = TTestPower().solve_power(effect_size=by / wobble, alpha=0.05 / members, power=0.8)
    assert needed == int(np.ceil(theirs))


def test_seeds_needed_for_equality_gives_two_one_sided_tests_their_power() -> None:
    mean, std, margin = 0.001, 0.01, 0.005
    needed = compare({"v": shifted(mean, std)}, BASELINE, margin=margin)["v"].seeds_needed
    assert needed is not None

    def decided(n: int) -> float:
        draw = np.random.default_rng(0).normal(mean, std, (20_000, n))
        half = stats.t.isf(0.05, n - 1) * draw.std(axis=1, ddof=1) / n**0.5
        return float(np.mean((draw.mean(axis=1) + half < margin) & (draw.mean(axis=1) - half > -margin)))

    assert decided(needed) == pytest.approx(0.8, abs=0.012)
    assert decided(needed - 3) < 0.8


def test_the_nearer_of_the_two_verdicts_counts() -> None:
    far = compare({"v": shifted(0.009, 0.02)}, BASELINE)["v"].seeds_needed
    near = compare({"v": shifted(0.001, 0.02)}, BASELINE)["v"].seeds_needed
    between = compare({"v": shifted(0.0025, 0.02)}, BASELINE)["v"].seeds_needed
    assert far is not None
    assert near is not None
    assert between is not None
    assert far < between
    assert near < between
    assert near < power(0.02, 0.001)


def test_where_more_seeds_than_anyone_would_train_are_needed_none_are_named() -> None:
    assert compare({"v": shifted(0.005, 0.2)}, BASELINE)["v"].seeds_needed is None
    just = compare({"v": shifted(0.018, 0.2)}, BASELINE, margin=0.0)["v"].seeds_needed
    assert just is not None
    assert 900 < just <= MOST_SEEDS


def test_only_what_is_undecided_needs_seeds_and_always_more_than_there_are() -> None:
    draw = np.random.default_rng(3)
    for _ in range(20):
        family = {f"v{i}": shifted(draw.normal(0, 0.01), draw.uniform(0.001, 0.02), pattern=i) for i in range(6)}
        for found in compare(family, BASELINE).values():
            if found.verdict == "undecided":
                assert found.seeds_needed is None or found.seeds_needed > 5
            else:
                assert found.seeds_needed is None


# One seed


def blocks(nats: list[float], characters: int = 100) -> Blocks:
    return Blocks(tuple(nats), (characters,) * len(nats))


def test_one_seed_has_an_interval_over_text_and_no_verdict() -> None:
    theirs = blocks([250.0 + i % 3 for i in range(8)])
    mine = blocks([150.0 + i % 2 for i in range(8)])
    found = compare({"v": {7: 1.505}}, {7: 2.51}, blocks={"v": mine}, baseline_blocks={"v": theirs})["v"]
    each = [(m - t) / 100 for m, t in zip(mine.nats, theirs.nats, strict=True)]
    low, high = DescrStatsW(each).tconfint_mean(alpha=0.05)
    assert (found.difference.low, found.difference.high) == (pytest.approx(low), pytest.approx(high))
    assert high < -0.9
    assert (found.over, found.verdict) == ("text", "undecided")
    assert (found.p_adjusted, found.seeds_needed, found.difference.p) == (None, None, None)


def test_the_interval_over_text_is_of_the_mean_per_character() -> None:
    # a block of 1 character that differs by 5 nats is no more than that among 10,000
    theirs = Blocks((0.0,) * 11, (1000,) * 10 + (1,))
    mine = Blocks((10.0,) * 10 + (5.0,), theirs.characters)
    difference = compare({"v": {0: 0.0}}, {0: 0.0}, blocks={"v": mine}, baseline_blocks={"v": theirs})["v"].difference
    assert difference.low is not None
    assert difference.high is not None
    assert 0.5 * (difference.low + difference.high) == pytest.approx(105 / 10_001)
    assert difference.high - difference.low < 0.005


def test_neighbouring_blocks_are_put_together() -> None:
    waves = [10.0 * (i // 25 % 2) for i in range(100)]
    finely = [waves[i * 37 % 100] for i in range(100)]
    wide, narrow = (
        compare({"v": {0: 2.0}}, {0: 2.0}, blocks={"v": blocks(nats)}, baseline_blocks={"v": blocks([0.0] * 100)})["v"]
        for nats in (waves, finely)
    )
    assert np.diff(wide.difference.text or ()) > 2.5 * np.diff(narrow.difference.text or ())


@pytest.mark.parametrize("other", [None, Blocks((1.0, 2.0), (100, 101)), Blocks((1.0,), (100,))])
def test_blocks_that_cannot_be_paired_give_no_interval(other: Blocks | None) -> None:
    mine = Blocks((1.0, 2.0), (100, 100))
    found = compare({"v": {0: 2.0}}, {0: 2.0}, blocks={"v": mine}, baseline_blocks={"v": other})["v"]
    assert (found.difference.low, found.over) == (None, "seeds")
    strangers = compare({"v": {1: 2.0}}, {0: 2.0}, blocks={"v": mine}, baseline_blocks={"v": mine})["v"]
    assert (strangers.difference.low, strangers.over) == (None, "seeds")
    one = Blocks((1.0,), (100,))
    assert compare({"v": {0: 2.0}}, {0: 2.0}, blocks={"v": one}, baseline_blocks={"v": one})["v"].over == "seeds"


def test_with_two_seeds_the_interval_is_over_seeds_whatever_blocks_there_are() -> None:
    same = blocks([1.0, 2.0])
    found = compare({"v": {0: 2.0, 1: 2.1}}, {0: 2.0, 1: 2.0}, blocks={"v": same}, baseline_blocks={"v": same})["v"]
    assert (found.over, found.difference.text) == ("seeds", None)
    assert (found.difference.high or 0) > 0.5


def test_blocks_need_a_sum_and_some_characters_each() -> None:
    with pytest.raises(ValueError, match="2 sums of nats for 1 blocks"):
        Blocks((1.0, 2.0), (100,))
    with pytest.raises(ValueError, match="at least one character, not 0"):
        Blocks((1.0,), (0,))


# What was decided at an earlier look


def test_what_was_decided_earlier_stands() -> None:
    first = compare({"v": shifted(0.05, 0.004), "w": shifted(0.004, 0.02)}, BASELINE)
    assert (first["v"].verdict, first["w"].verdict) == ("worse", "undecided")
    later = compare({"v": shifted(-0.05, 0.004), "w": shifted(0.05, 0.004)}, BASELINE, earlier=first)
    assert later["v"] is first["v"]
    assert later["w"].verdict == "worse"


@pytest.mark.parametrize(("verdict", "factor"), [("better", 2), ("worse", 2), ("equal", 3), ("undecided", 3)])
def test_what_was_rejected_leaves_the_family_and_the_rest_counts(verdict: Verdict, factor: int) -> None:
    family = {"gone": shifted(0.0, 0.02, pattern=9), "a": shifted(0.012, 0.009), "b": shifted(0.005, 0.02)}
    earlier: Comparison = replace(compare(family, BASELINE)["gone"], verdict=verdict)
    found = compare(family, BASELINE, earlier={"gone": earlier})["a"]
    assert found.p_adjusted == pytest.approx(factor * (found.difference.p or 0), rel=1e-12)


def test_equality_too_is_adjusted_for_those_that_were_found_different_before() -> None:
    margin, gone = 0.005, shifted(0.5, 0.02, pattern=9)
    family = {"gone": gone, "a": shifted(0.0, 0.0043)}
    alone = compare({"a": family["a"]}, BASELINE, margin=margin)
    assert alone["a"].verdict == "equal"
    worse = compare({"gone": gone}, BASELINE)
    assert worse["gone"].verdict == "worse"
    assert compare(family, BASELINE, margin=margin, earlier=worse)["a"].verdict == "undecided"
    settled = {"gone": replace(worse["gone"], verdict="equal")}
    assert compare(family, BASELINE, margin=margin, earlier=settled)["a"].verdict == "equal"


# What cannot be compared


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_refused(loss: float) -> None:
    with pytest.raises(ValueError, match=r"the loss of v with seed 3 is (nan|inf)"):
        compare({"v": {3: loss}}, BASELINE)
    with pytest.raises(ValueError, match=r"the loss of the baseline with seed 3"):
        compare({"v": {3: 2.0}}, {3: loss})


def test_alpha_and_margin_must_make_sense() -> None:
    with pytest.raises(ValueError, match="alpha must lie between 0 and 1, not 5"):
        compare({}, BASELINE, alpha=5)
    with pytest.raises(ValueError, match=r"margin must be at least 0 nats per character, not -0\.1"):
        compare({}, BASELINE, margin=-0.1)


# Planning


@pytest.mark.parametrize("effect", [0.05, 0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("comparisons", [1, 10])
def test_the_seeds_for_a_difference_agree_with_statsmodels(effect: float, comparisons: int) -> None:
    for wanted in (0.8, 0.95):
        theirs = TTestPower().solve_power(effect_size=effect, alpha=0.05 / comparisons, power=wanted)
        assert power(0.01, -0.01 * effect, power=wanted, comparisons=comparisons) == int(np.ceil(theirs))


def test_the_smallest_difference_is_the_one_that_needs_these_seeds() -> None:
    for n in (2, 3, 7, 100):
        found = smallest_difference(0.02, n, comparisons=4)
        assert power(0.02, found * 1.0001, comparisons=4) == n
        assert power(0.02, found * 0.9999, comparisons=4) == n + 1


def test_beyond_ten_thousand_seeds_the_normal_distribution_goes_on() -> None:
    near, far = power(1.0, 0.0281), power(1.0, 0.0279)
    assert near < 10_000 < far
    assert far / near == pytest.approx((281 / 279) ** 2, rel=1e-3)


def test_without_a_spread_two_seeds_are_enough_for_anything() -> None:
    assert power(0.0, 1e-9) == 2
    assert smallest_difference(0.0, 2) == 0.0


def test_two_seeds_never_find_anything_at_a_level_that_small() -> None:
    assert smallest_difference(0.01, 2, alpha=1e-9) == float("inf")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"std": -1.0, "difference": 0.1}, "std must be finite and at least 0, not -1.0"),
        ({"std": 1.0, "difference": 0.0}, "difference must be finite and not 0, not 0.0"),
        ({"std": 1.0, "difference": 0.1, "power": 1.0}, "power=1.0"),
        ({"std": 1.0, "difference": 0.1, "alpha": 0.0}, "alpha=0.0"),
        ({"std": 1.0, "difference": 0.1, "comparisons": 0}, "comparisons=0"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        power(**arguments)  # type: ignore[arg-type]


def test_the_smallest_difference_needs_a_pair_of_seeds() -> None:
    with pytest.raises(ValueError, match="at least 2 seeds, not 1"):
        smallest_difference(0.01, 1)

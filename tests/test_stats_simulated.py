"""What intervals, verdicts and looks promise, held against data whose truth is known.

Many data sets are judged at once by scipy; that `trilab.stats` judges each of them so too is held where it is closest.
`python -m pytest -s tests/test_stats_simulated.py` prints what was measured.
"""

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from trilab.sequential import Spending, look_by_look
from trilab.stats import STRETCHES, Blocks, compare, paired_difference

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MARGIN = 0.005
SPENDING = Spending(alpha=0.05, first=3, last=12)
ROUNDS = 40_000


def at_most(share: float, rounds: int) -> float:
    """What a share that is no larger stays below in a simulation, but for once in 700."""
    return share + 3 * (share * (1 - share) / rounds) ** 0.5


def by_seed(losses: Floats) -> dict[int, float]:
    return dict(enumerate(losses.tolist()))


def zeros(n: int) -> dict[int, float]:
    return dict.fromkeys(range(n), 0.0)


def p_different(differences: Floats) -> Floats:
    """(…, n) → (…)."""
    p: Floats = stats.ttest_1samp(differences, 0, axis=-1).pvalue
    return p


def p_equal(differences: Floats, margin: float = MARGIN) -> Floats:
    """(…, n) → (…)."""
    above = stats.ttest_1samp(differences, -margin, axis=-1, alternative="greater").pvalue
    below = stats.ttest_1samp(differences, margin, axis=-1, alternative="less").pvalue
    return np.maximum(above, below)


def closest(p: Floats, to: float, count: int = 20) -> NDArray[np.int_]:
    """The data sets that are judged most narrowly."""
    return np.argsort(np.abs(np.log(p / to)))[:count]


# The interval over seeds


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("shape", ["normal", "skewed", "heavy tails"])
def test_the_interval_covers_the_truth_as_often_as_it_says(n: int, shape: str) -> None:
    random = np.random.default_rng(n)
    size = (ROUNDS, n)
    draws = {
        "normal": lambda: random.standard_normal(size),
        "skewed": lambda: (random.gamma(4, size=size) - 4) / 2,  # skewness 1
        "heavy tails": lambda: random.standard_t(5, size=size),  # kurtosis 9
    }[shape]()
    p = p_different(draws)
    for row in closest(p, 0.05):
        difference = paired_difference(by_seed(draws[row]), zeros(n))
        assert ((difference.low or 0) <= 0 <= (difference.high or 0)) == (p[row] >= 0.05)
    covered = float(np.mean(p >= 0.05))
    print(f"\n{shape}, {n} seeds: the 95 % interval covers in {covered:.1%}")
    assert 0.93 <= covered <= 0.97


def test_under_strong_skew_the_interval_covers_less_and_nobody_hides_it() -> None:
    draws = np.random.default_rng(0).exponential(size=(ROUNDS, 5)) - 1  # skewness 2
    covered = float(np.mean(p_different(draws) >= 0.05))
    print(f"\nexponential, 5 seeds: the 95 % interval covers in {covered:.1%}")
    assert 0.87 < covered < 0.9


@pytest.mark.parametrize(("n", "most"), [(3, 0.78), (5, 0.86), (10, 0.92)])
def test_a_bootstrap_of_so_few_seeds_does_not_cover(n: int, most: float) -> None:
    random = np.random.default_rng(n)
    draws = random.standard_normal((2000, n))
    for method in ("percentile", "basic"):
        found = stats.bootstrap((draws,), np.mean, axis=-1, n_resamples=500, method=method, rng=random)
        low, high = found.confidence_interval
        covered = float(np.mean((low <= 0) & (high >= 0)))
        print(f"\n{method} bootstrap, {n} seeds: the 95 % interval covers in {covered:.1%}")
        assert covered < most


# Verdicts of a family


def null_family(n: int, rounds: int, variants: int = 10) -> tuple[Floats, Floats]:
    """Losses (rounds, variants, n) and the baseline's (rounds, n), all of one mean: differences correlate by 0.5."""
    random = np.random.default_rng(n)
    return random.normal(2.5, 0.01, (rounds, variants, n)), random.normal(2.5, 0.01, (rounds, n))


def as_mappings(losses: Floats) -> dict[str, dict[int, float]]:
    return {f"v{i}": by_seed(row) for i, row in enumerate(losses)}


@pytest.mark.parametrize("n", [3, 5, 10])
def test_a_family_without_differences_is_called_different_in_at_most_5_percent(n: int) -> None:
    losses, baseline = null_family(n, ROUNDS // 4)
    smallest = p_different(losses - baseline[:, None]).min(axis=1)
    for row in closest(smallest, 0.05 / 10, count=10):
        compared = compare(as_mappings(losses[row]), by_seed(baseline[row]), margin=0)
        called = any(c.verdict in ("better", "worse") for c in compared.values())
        assert called == (smallest[row] <= 0.05 / 10)
    wrong = float(np.mean(smallest <= 0.05 / 10))
    print(f"\n10 variants, {n} seeds: a family without differences is called different in {wrong:.1%}")
    assert wrong <= at_most(0.05, len(losses))


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("spread", [0.0005, 0.002, 0.005])
def test_a_difference_as_large_as_the_margin_is_called_equal_in_at_most_5_percent(n: int, spread: float) -> None:
    draws = np.random.default_rng(n).normal(MARGIN, spread, (ROUNDS, n))
    p = p_equal(draws)
    for row in closest(p, 0.05, count=10):
        found = compare({"v": by_seed(draws[row])}, zeros(n), margin=MARGIN)["v"]
        assert (found.verdict == "equal") == (p[row] <= 0.05)
    wrong = float(np.mean(p <= 0.05))
    print(f"\na true difference of the margin, {n} seeds: called equal in {wrong:.1%}")
    assert wrong <= at_most(0.05, ROUNDS)


@pytest.mark.slow
def test_in_a_family_where_most_differ_the_rest_is_still_called_different_in_at_most_5_percent() -> None:
    losses, baseline = null_family(5, 2000)
    losses[:, :6] += 0.2
    wrong = found = 0
    for mine, theirs in zip(losses, baseline, strict=True):
        compared = compare(as_mappings(mine), by_seed(theirs), margin=0)
        wrong += any(compared[f"v{i}"].verdict in ("better", "worse") for i in range(6, 10))
        found += sum(compared[f"v{i}"].verdict == "worse" for i in range(6))
    print(f"\n4 of 10 without a difference: called different in {wrong / len(losses):.1%}")
    assert found == 6 * len(losses)
    assert 0.02 < wrong / len(losses) <= at_most(0.05, len(losses))


# Looking after every seed


def looks_at(draws: Floats, levels: Mapping[int, float], margin: float | None = None) -> tuple[Flags, NDArray[np.int_]]:
    """Which of the (rounds, seeds) are decided at any look, and the number of seeds where that is, or the last."""
    decided = np.zeros(len(draws), dtype=bool)
    seeds = np.full(len(draws), max(levels))
    for n, level in levels.items():
        p = p_different(draws[:, :n]) if margin is None else p_equal(draws[:, :n], margin)
        seeds[~decided & (p <= level)] = n
        decided |= p <= level
    return decided, seeds


LEVELS = {n: SPENDING.level(n) for n in SPENDING.looks}


def test_looking_after_every_seed_is_wrong_in_at_most_5_percent() -> None:
    draws = np.random.default_rng(0).standard_normal((ROUNDS, 12))
    wrong, seeds = looks_at(draws, LEVELS)
    naive, _ = looks_at(draws, dict.fromkeys(LEVELS, 0.05))
    for row in [*np.flatnonzero(wrong)[:6], *np.flatnonzero(naive & ~wrong)[:6]]:
        found = look_by_look({"v": by_seed(draws[row])}, zeros(12), spending=SPENDING, margin=0)["v"]
        assert (found.verdict in ("better", "worse"), found.difference.n) == (wrong[row], seeds[row])
    print(f"\nlooks at 3 … 12 seeds: wrong in {wrong.mean():.1%}; at p ≤ 0.05 each time in {naive.mean():.1%}")
    assert wrong.mean() <= at_most(0.05, ROUNDS)
    assert naive.mean() > 0.15


@pytest.mark.parametrize("spread", [0.002, 0.005])
def test_looking_for_equality_after_every_seed_is_wrong_in_at_most_5_percent(spread: float) -> None:
    draws = np.random.default_rng(0).normal(MARGIN, spread, (ROUNDS, 12))
    wrong, _ = looks_at(draws, LEVELS, MARGIN)
    print(f"\nlooks at 3 … 12 seeds, a true difference of the margin: called equal in {wrong.mean():.1%}")
    assert wrong.mean() <= at_most(0.05, ROUNDS)


def test_equal_spending_decides_with_the_fewest_seeds_what_is_plain_to_see() -> None:
    random = np.random.default_rng(0)
    shares = np.arange(1, len(LEVELS) + 1) / len(LEVELS)
    rising = dict(zip(LEVELS, 0.05 * np.diff(shares**2, prepend=0), strict=True))
    for effect in (1.5, 3.0, 5.0, 10.0):
        draws = random.normal(effect, 1, (ROUNDS // 4, 12))
        equal, later = (looks_at(draws, levels)[1].mean() for levels in (LEVELS, rising))
        print(f"\na difference of {effect} standard deviations: {equal:.1f} seeds, rising spending {later:.1f}")
        assert equal < later


@pytest.mark.slow
def test_a_family_that_is_looked_at_after_every_seed_is_wrong_in_at_most_5_percent() -> None:
    losses, baseline = null_family(12, 400, variants=6)
    losses[:, :2] += 0.1
    losses[:, 2] = baseline + np.random.default_rng(1).normal(0, 0.0005, baseline.shape)
    wrong = 0
    for mine, theirs in zip(losses, baseline, strict=True):
        found = look_by_look(as_mappings(mine), by_seed(theirs), spending=SPENDING, margin=MARGIN)
        assert [found[f"v{i}"].verdict for i in range(3)] == ["worse", "worse", "equal"]
        wrong += any(found[f"v{i}"].verdict in ("better", "worse") for i in range(3, 6))
    print(f"\n3 of 6 in doubt: called different at any look in {wrong / len(losses):.1%}")
    assert wrong / len(losses) <= at_most(0.05, len(losses))


@pytest.mark.parametrize("true", [0.5, 1.0, 2.0, 3.0])
def test_the_interval_where_looking_stopped_covers_somewhat_less_than_it_says(true: float) -> None:
    draws = np.random.default_rng(0).normal(true, 1.0, (40_000, 12))
    _, seeds = looks_at(draws, LEVELS)
    counted = np.arange(12) < seeds[:, None]
    mean = np.where(counted, draws, 0).sum(1) / seeds
    std = np.sqrt(np.where(counted, np.square(draws - mean[:, None]), 0).sum(1) / (seeds - 1))
    covered = np.abs(mean - true) <= stats.t.isf(0.025, seeds - 1) * std / np.sqrt(seeds)
    print(
        f"\ninterval where looks at 3 … 12 seeds stopped, a difference of {true:g} sd: covers in {covered.mean():.1%}"
    )
    assert 0.915 <= covered.mean() <= 0.94


# The interval over text


@pytest.mark.parametrize("correlation", [0.0, 0.2, 0.5])
def test_the_interval_over_text_covers_although_neighbours_are_alike(correlation: float) -> None:
    random = np.random.default_rng(0)
    rounds, count = 2000, 100
    characters = (1115,) * (count - 1) + (700,)
    noise = random.standard_normal((rounds, count))
    for i in range(1, count):
        noise[:, i] = correlation * noise[:, i - 1] + (1 - correlation**2) ** 0.5 * noise[:, i]
    nats = np.array(characters) * (2.5 + 0.02 * noise)
    theirs = Blocks(tuple(2.5 * c for c in characters), characters)
    widths, covered = [], 0
    for row in nats.tolist():
        blocks = {"v": Blocks(tuple(row), characters)}
        difference = compare({"v": {0: 2.5}}, {0: 2.5}, blocks=blocks, baseline_blocks={"v": theirs})["v"].difference
        assert difference.text is not None
        covered += difference.text[0] <= 0 <= difference.text[1]
        widths.append(difference.text[1] - difference.text[0])
    each = noise.std(axis=1, ddof=1) * stats.t.isf(0.025, count - 1) / count**0.5
    singly = float(np.mean(np.abs(noise.mean(axis=1)) <= each))
    wider = np.mean(widths) / (2 * 0.02 * each.mean())
    print(
        f"\nneighbouring blocks correlate by {correlation}: {STRETCHES} stretches cover in {covered / rounds:.1%}, "
        f"{count} blocks in {singly:.1%}; {wider:.2f} times as wide"
    )
    assert 0.93 <= covered / rounds <= 0.97
    assert correlation == 0 or singly < covered / rounds

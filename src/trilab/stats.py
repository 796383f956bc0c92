"""Comparisons of variants over the seeds that they were trained with: by how much, how sure, and what more would take.

All quantities are losses, nats per character: lower is better. scipy is loaded where a distribution is needed.
"""

import math
import statistics
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Verdict = Literal["better", "worse", "equal", "undecided"]

CONFIDENCE = 0.95
"""Of every interval."""
MOST_SEEDS = 1000
"""A comparison that would need more seeds says None instead of a number."""
STRETCHES = 8
"""Neighbouring blocks of text are put together into this many: see `_interval_over_text`."""
_STEEPEST = 1e4
"""Noncentralities are cut here, where any test has decided: further out the noncentral t is not computed reliably."""


@dataclass(frozen=True)
class PairedDifference:
    """Value minus baseline, seed by seed: for one seed all variants read the same windows, so that noise cancels."""

    mean: float | None
    """Mean of the per-seed differences, in the unit of the values; None where no seed is shared."""
    std: float | None
    """Sample standard deviation of the per-seed differences (n - 1); None with fewer than two pairs."""
    seeds: tuple[int, ...]
    """The pairs, ascending."""
    unpaired: tuple[int, ...]
    """Seeds that only the values have, ascending."""
    unpaired_baseline: tuple[int, ...]
    """Seeds that only the baseline has, ascending."""
    text: tuple[float, float] | None = None
    """With one pair, the 95 % interval over blocks of validation text, where those were given to `compare`."""

    @property
    def n(self) -> int:
        """Number of pairs."""
        return len(self.seeds)

    @property
    def low(self) -> float | None:
        """Lower end of the interval, see `interval`; None where there is none."""
        return self.interval[0] if self.interval else None

    @property
    def high(self) -> float | None:
        """Upper end of the interval, see `interval`; None where there is none."""
        return self.interval[1] if self.interval else None

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """mean ± t(0.975, n - 1) · std / √n, over seeds; with one pair that over text, which is another thing.

        For this comparison alone: not widened for the number of comparisons or of looks. Over 3 to 10 seeds it covers
        the truth in 95 % where the differences are normal and in 93 to 96 % where their skewness is 1 or they are
        distributed as t with 5 degrees of freedom; strong skew breaks it (an exponential distribution: 88 %).

        Seeds are not resampled: a bootstrap of a few differences covers the truth far less often than it says, as
        `python -m pytest -k bootstrap tests/test_stats_simulated.py` shows.
        """
        if self.mean is None or self.std is None:
            return self.text
        from scipy.stats import t  # type: ignore[import-untyped]

        half = float(t.isf((1 - CONFIDENCE) / 2, self.n - 1)) * self.std / math.sqrt(self.n)
        return self.mean - half, self.mean + half

    @cached_property
    def p(self) -> float | None:
        """Two-sided, of the paired t-test; None with fewer than two pairs.

        Where all differences are one and the same number d there is nothing to estimate: p is 1 for d = 0, otherwise 0,
        which is what ever smaller spreads tend to.
        """
        if self.mean is None or self.std is None:
            return None
        import numpy as np

        return float(_p_different(np.float64(self.mean), np.float64(self.std / math.sqrt(self.n)), self.n - 1))


@dataclass(frozen=True)
class Blocks:
    """Losses of one run by stretches of the validation text, in the order of the text."""

    nats: tuple[float, ...]
    """Summed over each block."""
    characters: tuple[int, ...]
    """Predicted in each block, at least one."""

    def __post_init__(self) -> None:
        if len(self.nats) != len(self.characters):
            raise ValueError(f"{len(self.nats)} sums of nats for {len(self.characters)} blocks of characters")
        if any(n < 1 for n in self.characters):
            raise ValueError(f"a block needs at least one character, not {min(self.characters)}")


@dataclass(frozen=True)
class Comparison:
    """A variant against the baseline, as one of a family of comparisons."""

    difference: PairedDifference
    p_adjusted: float | None
    """That the difference is zero, Holm-adjusted over the family; None with fewer than two pairs."""
    verdict: Verdict
    seeds_needed: int | None
    """Seeds in all that would decide it with power 0.8, were the mean and the spread what they look like now.

    None where it is decided, with fewer than two pairs, and above MOST_SEEDS.
    """
    over: Literal["seeds", "text"]
    """What the interval is taken over: `text` says nothing of how another seed would have come out."""


def compare(
    values: Mapping[str, Mapping[int, float]],
    baseline: Mapping[int, float],
    *,
    alpha: float = 0.05,
    margin: float = 0.005,
    blocks: Mapping[str, Blocks] | None = None,
    baseline_blocks: Mapping[str, Blocks] | None = None,
    earlier: Mapping[str, Comparison] | None = None,
) -> dict[str, Comparison]:
    """Each variant's verdict against the baseline, with at most alpha of wrong ones in the whole family.

    With d the mean of the n paired differences and e = std / √n:
    different (better where d < 0, worse where d > 0): paired t-test, p = P(|t| ≥ |d| / e), n - 1 degrees of freedom;
    equal: two one-sided tests against ±margin, p = P(t ≥ (margin - |d|) / e).
    Either p is Holm-adjusted over the family and decides at ≤ alpha; what neither decides is undecided. Equal comes
    first: a difference that is surely smaller than the margin is not worth being called better. Each of the two kinds
    of claim is wrong anywhere in the family with a probability of at most alpha.

    The family is all variants with two pairs or more. Variants with the same bits in every paired seed are one piece of
    evidence: they count once. The same bits as the baseline's are equal, whatever the margin. Where all differences
    are one number d ≠ 0 it is taken as known: equal below the margin, otherwise better or worse.

    With one pair the verdict is undecided, however narrow the interval over text: how far another seed would have ended
    up is not known.

    Args:
        values: variant → seed → loss, nats per character, finite.
        baseline: seed → loss of what they are compared with.
        alpha: probability of a wrong claim that is accepted, of each kind, in the family.
        margin: nats per character, at least 0.
        blocks: variant → the loss of its one shared seed by blocks of text.
        baseline_blocks: variant → the same of the baseline. Blocks that were cut otherwise cannot be paired and are
            passed over.
        earlier: comparisons of an earlier look at fewer seeds. What they decided stands; it counts in the family, as
            rejected where its verdict rejected.
    Raises:
        ValueError: a loss that is not finite; alpha not between 0 and 1; a negative margin.
    Source:
        Holm 1979, A simple sequentially rejective multiple test procedure; Schuirmann 1987 (two one-sided tests).
    """
    _check(alpha, margin, {**values, "the baseline": baseline})
    decided = {name: c for name, c in (earlier or {}).items() if name in values and c.verdict != "undecided"}
    differences = {name: paired_difference(losses, baseline) for name, losses in values.items() if name not in decided}
    open_ = {name: d for name, d in differences.items() if d.std is not None}
    rejected = {_evidence(values[name], c.difference): c.verdict for name, c in decided.items()}
    judged = _judge({name: (_evidence(values[name], d), d) for name, d in open_.items()}, rejected, alpha, margin)
    result = {}
    for name in values:
        if name in decided:
            result[name] = decided[name]
        elif name in judged:
            result[name] = judged[name]
        else:
            pair = (blocks or {}).get(name), (baseline_blocks or {}).get(name)
            text = _interval_over_text(*pair) if differences[name].n == 1 else None
            difference = replace(differences[name], text=text)
            result[name] = Comparison(difference, None, "undecided", None, "text" if text else "seeds")
    return result


def paired_difference(values: Mapping[int, float], baseline: Mapping[int, float]) -> PairedDifference:
    """Mean over the common seeds s of values[s] - baseline[s].

    Args:
        values: seed → result, for instance the val loss in nats per character.
        baseline: the same for what is compared against.
    """
    seeds = sorted(values.keys() & baseline.keys())
    differences = [values[seed] - baseline[seed] for seed in seeds]
    return PairedDifference(
        mean=statistics.mean(differences) if differences else None,
        std=sample_std(differences),
        seeds=tuple(seeds),
        unpaired=tuple(sorted(values.keys() - baseline.keys())),
        unpaired_baseline=tuple(sorted(baseline.keys() - values.keys())),
    )


def sample_std(values: Collection[float]) -> float | None:
    """Sample standard deviation (n - 1), in the unit of the values; None with fewer than two. Equal values give 0.0."""
    return statistics.stdev(values) if len(values) > 1 else None


def power(std: float, difference: float, *, alpha: float = 0.05, power: float = 0.8, comparisons: int = 1) -> int:
    """Smallest n with P(t(n - 1, √n · |difference| / std) > t(1 - alpha / 2 / comparisons, n - 1)) ≥ power.

    How many seeds the paired t-test needs to find a true difference with the given probability, where it is one of
    several comparisons. Noncentral t; above 10,000 seeds the normal distribution.

    Args:
        std: standard deviation of the paired differences, nats per character, at least 0.
        difference: nats per character, not 0.
    Raises:
        ValueError: an argument out of its range.
    """
    _check_design(std, alpha, power, comparisons)
    if difference == 0 or not math.isfinite(difference):
        raise ValueError(f"difference must be finite and not 0, not {difference}")
    from scipy.stats import norm

    level = alpha / 2 / comparisons
    effect = abs(difference) / std if std else math.inf
    most = 10_000
    n = int(_smallest(lambda n: _reaches(n, effect, level) >= power, 2, most))
    return n if n <= most else math.ceil(((norm.isf(level) + norm.ppf(power)) / effect) ** 2)


def smallest_difference(std: float, n: int, *, alpha: float = 0.05, power: float = 0.8, comparisons: int = 1) -> float:
    """The difference that n seeds find with the given probability: `power` solved for the difference.

    Args:
        std: standard deviation of the paired differences, nats per character, at least 0.
        n: pairs of runs, at least 2.
    Returns:
        Nats per character, positive (0 where nothing varies); inf where n seeds never find any at such a level.
    Raises:
        ValueError: an argument out of its range.
    """
    _check_design(std, alpha, power, comparisons)
    if n < 2:
        raise ValueError(f"a spread needs at least 2 seeds, not {n}")
    from scipy.optimize import brentq  # type: ignore[import-untyped]

    level = alpha / 2 / comparisons
    most = _STEEPEST / math.sqrt(n)
    if _reaches(n, most, level) < power:
        return math.inf if std else 0.0
    return std * float(brentq(lambda effect: float(_reaches(n, effect, level)) - power, 0, most, xtol=1e-12))


def _check(alpha: float, margin: float, values: Mapping[str, Mapping[int, float]]) -> None:
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1, not {alpha}")
    if not 0 <= margin < math.inf:
        raise ValueError(f"margin must be at least 0 nats per character, not {margin}")
    for name, losses in values.items():
        for seed, loss in losses.items():
            if not math.isfinite(loss):
                raise ValueError(f"the loss of {name} with seed {seed} is {loss}: only finite ones can be compared")


def _check_design(std: float, alpha: float, power: float, comparisons: int) -> None:
    if not 0 <= std < math.inf:
        raise ValueError(f"std must be finite and at least 0, not {std}")
    if comparisons < 1 or not 0 < alpha < 1 or not alpha / 2 / comparisons < power < 1:
        raise ValueError(
            f"needs 0 < alpha < 1, alpha / 2 / comparisons < power < 1 and comparisons ≥ 1, "
            f"not alpha={alpha}, power={power}, comparisons={comparisons}"
        )


_Evidence = tuple[tuple[int, float], ...]


def _evidence(losses: Mapping[int, float], difference: PairedDifference) -> _Evidence:
    return tuple((seed, losses[seed]) for seed in difference.seeds)


def _judge(
    variants: Mapping[str, tuple[_Evidence, PairedDifference]],
    rejected: Mapping[_Evidence, Verdict],
    alpha: float,
    margin: float,
) -> dict[str, Comparison]:
    """Verdicts over seeds; `rejected` are the family's members that were decided earlier."""
    import numpy as np

    family = dict(variants.values())
    n = np.array([d.n for d in family.values()])
    mean = np.array([d.mean for d in family.values()], dtype=np.float64)
    std = np.array([d.std for d in family.values()], dtype=np.float64)
    error = std / np.sqrt(n)
    equal_before = sum(verdict == "equal" for verdict in rejected.values())
    different_before = len(rejected) - equal_before
    # a claim's own rejections have left its family; those of the other claim are members that it did not reject
    p_different = _holm(_p_different(mean, error, n - 1), unrejected=equal_before)
    p_equal = _holm(_p_equal(mean, error, n - 1, margin), unrejected=different_before)
    needed = _seeds_needed(n, mean, std, alpha / max(1, len(family) + len(rejected)), margin)
    judged = {}
    for i, evidence in enumerate(family):
        verdict: Verdict = "undecided"
        if p_equal[i] <= alpha:
            verdict = "equal"
        elif p_different[i] <= alpha:
            verdict = "better" if mean[i] < 0 else "worse"
        more = int(needed[i]) if verdict == "undecided" and needed[i] <= MOST_SEEDS else None
        judged[evidence] = (float(p_different[i]), verdict, more)
    return {
        name: Comparison(difference, *judged[evidence], over="seeds")
        for name, (evidence, difference) in variants.items()
    }


def _p_different(
    mean: "Floats | np.float64", error: "Floats | np.float64", freedom: "NDArray[np.int_] | int"
) -> "Floats":
    """P(|t| ≥ |mean| / error)."""
    import numpy as np
    from scipy.stats import t

    p: Floats = 2 * t.sf(_ratio(np.abs(mean), error), freedom)
    return p


def _p_equal(mean: "Floats", error: "Floats", freedom: "NDArray[np.int_]", margin: float) -> "Floats":
    """P(t ≥ (margin - |mean|) / error): the larger p of the two one-sided tests."""
    import numpy as np
    from scipy.stats import t

    p = t.sf(_ratio(margin - np.abs(mean), error), freedom)
    known = np.where((np.abs(mean) < margin) | (mean == 0), 0.0, 1.0)
    return np.where(error == 0, known, p)


def _ratio(distance: "Floats | np.float64", error: "Floats | np.float64") -> "Floats":
    """distance / error, 0 / 0 = 0."""
    import numpy as np

    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        return np.where(distance == 0, 0.0, distance / error)


def _holm(p: "Floats", *, unrejected: int) -> "Floats":
    """The i-th smallest of m becomes max over j ≤ i of (m - j + 1) p_j, at most 1.

    Args:
        p: of the hypotheses to be adjusted.
        unrejected: how many more the family has, none of which will be rejected.
    """
    import numpy as np

    order = np.argsort(p, kind="stable")
    remaining = len(p) + unrejected - np.arange(len(p))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(remaining * p[order]))
    return adjusted


def _seeds_needed(
    n: "NDArray[np.int_]", mean: "Floats", std: "Floats", level: float, margin: float, power: float = 0.8
) -> "NDArray[np.int_]":
    """Seeds in all, more than n, with which one of the two claims has the power; MOST_SEEDS + 1 where more are needed.

    Both one-sided tests succeed with at least the sum of their powers minus 1: never too few seeds for `equal`.
    """
    import numpy as np

    to_zero, to_near, to_far = (_ratio(d, std) for d in (np.abs(mean), margin - np.abs(mean), margin + np.abs(mean)))

    def enough(n: "NDArray[np.int_]") -> "NDArray[np.bool_]":
        different = _reaches(n, to_zero, level / 2) >= power
        equal = _reaches(n, to_near, level) + _reaches(n, to_far, level) - 1 >= power
        return different | equal

    return _smallest(enough, n + 1, MOST_SEEDS)


def _reaches(n: "NDArray[np.int_] | int", effect: "Floats | float", level: float) -> "Floats":
    """P(t(n - 1, √n · effect) > t(1 - level, n - 1)): power of a one-sided t-test.

    Args:
        effect: true mean / true standard deviation. Negative counts as 0.
    """
    import numpy as np
    from scipy.stats import nct, t

    noncentrality = np.clip(np.sqrt(n) * effect, 0, _STEEPEST)
    reached: Floats = nct.sf(t.isf(level, n - 1), n - 1, noncentrality)
    return reached


def _smallest(
    enough: Callable[["NDArray[np.int_]"], "NDArray[np.bool_]"], low: "NDArray[np.int_] | int", high: int
) -> "NDArray[np.int_]":
    """The smallest n in low … high that is enough, by bisection for every entry at once; high + 1 where none is."""
    import numpy as np

    low = np.asarray(low)
    above = np.maximum(low, high + 1)
    while np.any(low < above):
        middle = (low + above) // 2
        suffices = enough(middle)
        low, above = np.where(suffices | (low == above), low, middle + 1), np.where(suffices, middle, above)
    smallest: NDArray[np.int_] = above
    return smallest


def _interval_over_text(blocks: Blocks | None, baseline: Blocks | None) -> tuple[float, float] | None:
    """r ± t(0.975, G - 1) · √(G / (G - 1) · Σ (d_g - r c_g)²) / Σ c_g with r = Σ d_g / Σ c_g, over G stretches of text.

    d_g is the difference in summed nats and c_g the number of characters of stretch g: a mean per character. Blocks
    next to each other are alike, so that an interval over each by itself would be too narrow; neighbours are put
    together into at most STRETCHES. Where each of 100 blocks correlates by 0.5 with the next, 8 stretches cover the
    truth in 93.5 % and the blocks by themselves in 74 %; where they do not correlate, the stretches' interval is 1.15
    times as wide (`python -m pytest -k text -s tests/test_stats_simulated.py` prints it).
    """
    if not blocks or not baseline or blocks.characters != baseline.characters or len(blocks.nats) < 2:
        return None
    import numpy as np
    from scipy.stats import t

    nats = np.array(blocks.nats) - np.array(baseline.nats)
    stretches = np.array_split(np.arange(len(nats)), min(STRETCHES, len(nats)))
    d = np.array([nats[stretch].sum() for stretch in stretches])
    c = np.array([np.array(blocks.characters)[stretch].sum() for stretch in stretches])
    per_character = d.sum() / c.sum()
    freedom = len(stretches) - 1
    error = np.sqrt((freedom + 1) / freedom * np.square(d - per_character * c).sum()) / c.sum()
    half = t.isf((1 - CONFIDENCE) / 2, freedom) * error
    return float(per_character - half), float(per_character + half)

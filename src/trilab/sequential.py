"""Looking after every added seed without paying for it: each look spends a part of alpha."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trilab.stats import Comparison, compare


@dataclass(frozen=True)
class Spending:
    """level(n) = alpha / number of looks, for each of the looks at `first`, `first + every`, …, `last` seeds.

    Whoever adds seeds until p ≤ alpha, and looks K times, is wrong more often than alpha: 18 % for looks at 3, 4, …, 12
    seeds and alpha = 5 %. Here the levels sum to alpha, so that a wrong claim at any look has a probability of at most
    alpha, however the looks depend on one another (the union bound); for normal differences it is half of that, 2.5 %.

    Why equal parts: the t quantiles of few seeds are so far out that a first look with less (O'Brien and Fleming's
    way) cannot decide even what is plain to see, and plain differences are what an ablation mostly has. For a mean
    difference of 1.5, 3, 5 and 10 standard deviations, looks at 3 … 12 seeds take 7.6, 4.7, 3.8 and 3.2 seeds on
    average; where the share spent grows as the square of the looks done, 7.8, 5.3, 4.5 and 3.9
    (`python -m pytest -k spending -s tests/test_stats_simulated.py` prints them).

    Raises:
        ValueError: alpha not between 0 and 1; first below 2; last below first; every below 1.
    Source:
        Slud and Wei 1982, Two-sample repeated significance tests based on the modified Wilcoxon statistic (alpha in
        parts); Maurer and Bretz 2013, Multiple testing in group sequential trials using graphical approaches (what was
        rejected leaves the family). Both use the joint distribution of the looks; here it is not needed.
    """

    alpha: float = 0.05
    first: int = 3
    """Seeds at the first look."""
    last: int = 12
    """Seeds at the last look, whether or not `every` reaches it."""
    every: int = 1
    """Seeds added between two looks."""

    def __post_init__(self) -> None:
        if not 0 < self.alpha < 1 or self.first < 2 or self.last < self.first or self.every < 1:
            raise ValueError(f"needs 0 < alpha < 1, 2 ≤ first ≤ last and every ≥ 1, not {self}")

    @property
    def looks(self) -> tuple[int, ...]:
        """Numbers of seeds at which there is a look, ascending."""
        return (*range(self.first, self.last, self.every), self.last)

    def level(self, n: int) -> float:
        """The alpha that the look at n seeds may use.

        Raises:
            ValueError: there is no look at n seeds.
        """
        if n not in self.looks:
            raise ValueError(f"there is no look at {n} seeds, only at {', '.join(map(str, self.looks))}")
        return self.alpha / len(self.looks)


def look_by_look(
    values: Mapping[str, Mapping[int, float]],
    baseline: Mapping[int, float],
    *,
    spending: Spending,
    margin: float = 0.005,
) -> dict[str, Comparison]:
    """What the looks so far have decided: at the n-th look the first n seeds of the baseline, ascending.

    A function of the losses alone: a sweep that was broken off, and the report afterwards, come to the same verdicts.
    A variant that is decided stays so and needs no further seeds; a later look is at the others, with what is decided
    counted in the family. Before the first look all are undecided. `p_adjusted` is that of the look that decided, or of
    the latest, to be held against spending.level, not against alpha.

    Args:
        values: variant → seed → loss, nats per character, of runs that are finished.
        baseline: the same of the baseline, which is trained with every seed.
        spending: settled before the first look.
        margin: nats per character, see `compare`.
    """
    seeds = sorted(baseline)
    looks = [n for n in spending.looks if n <= len(seeds)]
    if not looks:
        compared = compare(values, baseline, alpha=spending.level(spending.first), margin=margin)
        return {name: replace(comparison, verdict="undecided") for name, comparison in compared.items()}
    found: dict[str, Comparison] = {}
    for n in looks:
        known = seeds[:n]
        found = compare(
            {name: {seed: losses[seed] for seed in known if seed in losses} for name, losses in values.items()},
            {seed: baseline[seed] for seed in known},
            alpha=spending.level(n),
            margin=margin,
            earlier=found,
        )
    return {
        name: replace(
            c, difference=replace(c.difference, unpaired=tuple(sorted(values[name].keys() - baseline.keys())))
        )
        for name, c in found.items()
    }

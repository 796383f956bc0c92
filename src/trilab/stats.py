"""Comparisons of two variants over the seeds that both were trained with."""

import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass


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

    @property
    def n(self) -> int:
        """Number of pairs."""
        return len(self.seeds)


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

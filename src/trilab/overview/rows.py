"""Standings → rows: the runs that differ in nothing but the seed, and how far they are from the baseline."""

import statistics
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from trilab.overview.experiment import Standing
from trilab.report.variants import distinctions
from trilab.stats import PairedDifference, paired_difference


@dataclass(frozen=True)
class Difference:
    """Val loss minus the baseline's so far: each seed at the latest step that it has in both."""

    paired: PairedDifference
    """In nats per character."""
    first_step: int
    last_step: int
    """The least and the most advanced of the steps that were compared at."""


@dataclass(frozen=True)
class Row:
    """Runs of one configuration, over seeds."""

    name: str
    """The label, with the keys that tell it from others of that label."""
    standings: tuple[Standing, ...]
    """Ascending by seed."""
    difference: Difference | None
    """None for the baseline itself, and where no seed has a step in common with it."""
    is_baseline: bool

    @property
    def curve(self) -> dict[int, float]:
        """Step → mean val loss over the seeds that have one there, nats per character; ascending."""
        losses: dict[int, list[float]] = defaultdict(list)
        for standing in self.standings:
            for step, loss in standing.val_losses.items():
                losses[step].append(loss)
        return {step: statistics.fmean(losses[step]) for step in sorted(losses)}

    @property
    def trend(self) -> dict[int, float]:
        """As `curve`, but from step to step it moves by what the seeds that have both moved by, on the mean.

        So it does not jump where one seed is behind the others. The same as the curve where all have every step.
        """
        moved: dict[int, float] = {}
        before = None
        for step, mean in self.curve.items():
            both = [s.val_losses for s in self.standings if step in s.val_losses and before in s.val_losses]
            if before is None or not both:
                moved[step] = mean
            else:
                moved[step] = moved[before] + statistics.fmean(losses[step] - losses[before] for losses in both)
            before = step
        return moved

    @property
    def done(self) -> float | None:
        """Share of all its steps that are done, 0 to 1; None where a run does not say how many it has."""
        steps = [(s.step, s.max_steps) for s in self.standings]
        known = [most for _, most in steps if most is not None]
        if len(known) < len(steps) or not sum(known):
            return None
        return min(1.0, sum(step for step, _ in steps) / sum(known))

    @property
    def max_steps(self) -> int:
        """Of the longest run, or where that is not known the steps seen."""
        return max(max(s.max_steps or 0, s.step, *s.val_losses, 0) for s in self.standings)


def make_rows(standings: Sequence[Standing], *, baseline: str) -> tuple[list[Row], str]:
    """The rows by name, the baseline first.

    Args:
        standings: of one experiment.
        baseline: the name of a row, or a label that only one row has.
    Returns:
        The rows; and why there are no differences, in a sentence, or nothing.
    """
    groups = _group(standings)
    found = [n for n in groups if n == baseline] or [n for n, of in groups.items() if of[0].label == baseline]
    base = found[0] if len(found) == 1 else None
    rows = [
        Row(
            name=name,
            standings=tuple(same),
            difference=_difference(same, groups[base]) if base is not None and name != base else None,
            is_baseline=name == base,
        )
        for name, same in groups.items()
    ]
    rows.sort(key=lambda row: (not row.is_baseline, row.name))
    if len(found) > 1:
        names = ", ".join(repr(name) for name in sorted(found))
        return rows, f"No differences: the baseline {baseline!r} could be any of {names}."
    return rows, "" if found else f"No differences: there is no run of the baseline {baseline!r}."


def _group(standings: Sequence[Standing]) -> dict[str, list[Standing]]:
    """Row name → its runs, ascending by seed. A run without a config yet joins the only row of its label, if any."""
    members: dict[frozenset[tuple[str, str]], list[Standing]] = defaultdict(list)
    unknown: dict[str, list[Standing]] = defaultdict(list)
    for standing in standings:
        if standing.settings is None:
            unknown[standing.label].append(standing)
        else:
            members[frozenset(standing.settings.items())].append(standing)
    # a finished run knows its label best
    labels = {key: min(same, key=lambda s: s.state != "finished").label for key, same in members.items()}
    named: dict[str, list[Standing]] = {}
    for key, same in members.items():
        namesakes = [dict(other) for other in members if labels[other] == labels[key]]
        named.setdefault(" ".join([labels[key], *distinctions(dict(key), namesakes)]), []).extend(same)
    for label, same in unknown.items():
        of_that_label = [name for name, others in named.items() if others[0].label == label]
        named.setdefault(of_that_label[0] if len(of_that_label) == 1 else label, []).extend(same)
    return {name: sorted(same, key=_by_seed) for name, same in named.items()}


def _by_seed(standing: Standing) -> tuple[Hashable, ...]:
    return standing.seed is None, standing.seed or 0, standing.name


def _difference(own: Sequence[Standing], base: Sequence[Standing]) -> Difference | None:
    ours, theirs = _losses_by_seed(own), _losses_by_seed(base)
    values: dict[int, float] = {}
    references: dict[int, float] = {}
    steps = []
    for seed in ours.keys() & theirs.keys():
        common = ours[seed].keys() & theirs[seed].keys()
        if common:
            step = max(common)
            steps.append(step)
            values[seed], references[seed] = ours[seed][step], theirs[seed][step]
    return Difference(paired_difference(values, references), min(steps), max(steps)) if steps else None


def _losses_by_seed(standings: Sequence[Standing]) -> dict[int, Mapping[int, float]]:
    """Of several runs of one seed the first counts, as in the report."""
    found: dict[int, Mapping[int, float]] = {}
    for standing in standings:
        if standing.seed is not None:
            found.setdefault(standing.seed, standing.val_losses)
    return found

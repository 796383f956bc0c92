"""Variants → rows: what the report says of each, and how it compares with the baseline."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from trilab.report.runs import Run, number
from trilab.report.terms import MEASURES, Measure
from trilab.report.variants import JUDGED_ON, Variant
from trilab.sequential import Spending, look_by_look
from trilab.stats import Blocks, Comparison, PairedDifference, compare, sample_std


@dataclass(frozen=True)
class OverSeeds:
    """One number for each seed, nats per character."""

    by_seed: Mapping[int, float]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return statistics.mean(self.by_seed.values())

    @property
    def std(self) -> float | None:
        """Sample standard deviation over the seeds; None with one."""
        return sample_std(self.by_seed.values())


@dataclass(frozen=True)
class Row:
    """What the report says of one variant."""

    variant: Variant
    is_baseline: bool
    measure: Measure
    """The headline: what rows are ordered and judged by."""
    losses: Mapping[Measure, OverSeeds]
    """Every measure that all of its runs have."""
    comparisons: Mapping[Measure, Comparison]
    """With the baseline, on every measure that both have; none for the baseline itself, or without one."""
    twin: str | None
    """An earlier row with the same bits in every seed: one and the same evidence."""
    chosen_from: tuple[str, ...] = ()
    """The rows that it was chosen from as the one with the lowest validation loss, itself among them."""

    @property
    def name(self) -> str:
        """The variant's."""
        return self.variant.name

    @property
    def runs(self) -> tuple[Run, ...]:
        """Ascending by seed."""
        return self.variant.runs

    @property
    def seeds(self) -> tuple[int, ...]:
        """Ascending."""
        return tuple(run.seed for run in self.runs)

    @property
    def headline(self) -> OverSeeds:
        """The losses that it is judged by."""
        return self.losses[self.measure]

    @property
    def comparison(self) -> Comparison | None:
        """With the baseline, on the headline."""
        return self.comparisons.get(self.measure)

    @property
    def difference(self) -> PairedDifference | None:
        """Loss minus the baseline's, paired by seed; None where there is no baseline."""
        return self.comparison.difference if self.comparison else None

    @cached_property
    def answer_accuracy(self) -> float | None:
        """Share of the validation text's answers that are guessed right, mean over seeds; None where there are none."""
        return self._mean("answer_accuracy")

    @cached_property
    def n_params(self) -> int | None:
        """Trained parameters."""
        found = self._mean("n_params")
        return None if found is None else round(found)

    @cached_property
    def flops_per_char(self) -> float | None:
        """Operations of training on one character, forward and backward."""
        return self._mean("flops_per_char")

    @cached_property
    def training_flops(self) -> float | None:
        """Operations of the whole training."""
        each = [_training_flops(run) for run in self.runs]
        known = [flops for flops in each if flops is not None]
        return statistics.mean(known) if len(known) == len(each) else None

    @cached_property
    def state_size(self) -> int | None:
        """Numbers that a stream carries from one character to the next, at block_size."""
        found = self._mean("state_size")
        return None if found is None else round(found)

    @cached_property
    def seconds(self) -> float | None:
        """Wall time of a training, mean over seeds."""
        return self._mean("seconds")

    @cached_property
    def chars_per_second(self) -> float | None:
        """Speed of training, mean over seeds."""
        return self._mean("chars_per_second")

    @cached_property
    def loss_by_position(self) -> tuple[float, ...] | None:
        """Final val loss of the character after each position, mean over seeds; None where a run does not tell."""
        each = [_numbers(run.summary.get("loss_by_position")) for run in self.runs]
        if not all(each) or len({len(losses) for losses in each}) > 1:
            return None
        return tuple(statistics.fmean(losses) for losses in zip(*each, strict=True))

    @cached_property
    def curves(self) -> Mapping[int, Mapping[int, float]]:
        """Seed → step → val loss."""
        return {run.seed: run.curve for run in self.runs}

    def _mean(self, key: str) -> float | None:
        known = [value for run in self.runs if (value := number(run.summary.get(key))) is not None]
        return statistics.mean(known) if known else None


def make_rows(
    variants: Sequence[Variant],
    baseline: Variant | None,
    *,
    measure: Measure = "val_loss",
    margin: float = 0.005,
    chosen_from: Mapping[str, tuple[str, ...]] | None = None,
    spending: Spending | None = None,
) -> list[Row]:
    """One row a variant, the lowest mean loss first.

    Args:
        variants: all of which have the measure.
        baseline: one of them, or None: no differences then.
        measure: what they are judged by.
        margin: nats per character; a difference that is surely smaller is no difference.
        chosen_from: name → the rows that this one was chosen from.
        spending: the plan of looks, where seeds were added until all was decided; verdicts are then those of the looks.
    """
    losses = {v.name: {m: OverSeeds(found) for m in MEASURES if (found := measured(v, m))} for v in variants}
    comparisons = _comparisons(variants, losses, baseline, margin, spending) if baseline else {}
    rows = [
        Row(
            variant=variant,
            is_baseline=variant is baseline,
            measure=measure,
            losses=losses[variant.name],
            comparisons=comparisons.get(variant.name, {}),
            twin=_twin(variant, variants),
            chosen_from=(chosen_from or {}).get(variant.name, ()),
        )
        for variant in variants
    ]
    return sorted(rows, key=lambda row: (row.headline.mean, row.name))


def measured(variant: Variant, measure: Measure) -> dict[int, float]:
    """Seed → loss; empty where a run of the variant does not have it."""
    found = {run.seed: number(run.summary.get(measure)) for run in variant.runs}
    whole = {seed: value for seed, value in found.items() if value is not None}
    return whole if len(whole) == len(found) else {}


def _comparisons(
    variants: Sequence[Variant],
    losses: Mapping[str, Mapping[Measure, OverSeeds]],
    baseline: Variant,
    margin: float,
    spending: Spending | None,
) -> dict[str, dict[Measure, Comparison]]:
    """Name → measure → comparison; each measure is a family of its own."""
    found: dict[str, dict[Measure, Comparison]] = {v.name: {} for v in variants}
    for measure in MEASURES:
        if measure not in losses[baseline.name]:
            continue
        others = [v for v in variants if v is not baseline and measure in losses[v.name] and same_text(v, baseline)]
        values = {v.name: losses[v.name][measure].by_seed for v in others}
        by_seed = losses[baseline.name][measure].by_seed
        if spending and len(by_seed) > 1:
            compared = look_by_look(values, by_seed, spending=spending, margin=margin)
        else:  # with one seed nothing is decided, whatever the plan
            # stretches of text are of the final weights' validation
            own, theirs = _blocks(others, baseline) if measure == "val_loss" else ({}, {})
            compared = compare(values, by_seed, margin=margin, blocks=own, baseline_blocks=theirs)
        for name, comparison in compared.items():
            found[name][measure] = comparison
    return found


def same_text(one: Variant, other: Variant) -> bool:
    """Whether two variants were validated, and tested, on the same characters."""
    return all(one.settings.get(key) == other.settings.get(key) for key in JUDGED_ON)


def _blocks(variants: Sequence[Variant], baseline: Variant) -> tuple[dict[str, Blocks], dict[str, Blocks]]:
    """Variant → the stretches of the one seed that it shares with the baseline, its own and the baseline's."""
    own, theirs = {}, {}
    for variant in variants:
        shared = sorted({run.seed for run in variant.runs} & {run.seed for run in baseline.runs})
        if len(shared) == 1:
            ours, other = (next(_read_blocks(run) for run in v.runs if run.seed in shared) for v in (variant, baseline))
            if ours and other:
                own[variant.name], theirs[variant.name] = ours, other
    return own, theirs


def _read_blocks(run: Run) -> Blocks | None:
    content = run.summary.get("loss_by_block")
    if not isinstance(content, dict):
        return None
    nats, characters = _numbers(content.get("nats")), _numbers(content.get("characters"))
    whole = len(nats) == len(characters) and nats and all(n > 0 for n in characters)
    return Blocks(nats, tuple(round(n) for n in characters)) if whole else None


def _twin(variant: Variant, variants: Sequence[Variant]) -> str | None:
    """The first other variant that came to the same losses, bit for bit, in the same seeds."""
    same = (other for other in variants if other.val_losses == variant.val_losses)
    first = next(same, variant)
    return None if first is variant else first.name


def _training_flops(run: Run) -> float | None:
    each, steps = number(run.summary.get("flops_per_char")), number(run.summary.get("steps"))
    data = run.config.get("data")
    sizes = [number(data.get(key)) for key in ("batch_size", "block_size")] if isinstance(data, dict) else []
    product = 1.0
    for factor in (each, steps, *(sizes or [None])):
        if factor is None:
            return None
        product *= factor
    return product


def _numbers(value: object) -> tuple[float, ...]:
    """A list of finite numbers; empty for anything else."""
    if not isinstance(value, list):
        return ()
    found = tuple(number(item) for item in value)
    return tuple(item for item in found if item is not None) if None not in found else ()

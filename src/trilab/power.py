"""`trilab power`: how far seeds alone spread, and so how many would decide a difference, and how long that takes."""

import contextlib
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trilab.errors import BadInput
from trilab.report import Report, Row, make_report
from trilab.report.runs import one_line, read_run, read_runs
from trilab.report.terms import IN_WORDS, Measure, Terms, terms_of
from trilab.report.variants import group
from trilab.stats import CONFIDENCE, power, smallest_difference

ALPHA = 0.05
POWER = 0.8
DIFFERENCES = (0.005, 0.01, 0.02, 0.05)
"""Nats per character, besides the one that is asked for."""


@dataclass(frozen=True)
class Spread:
    """A standard deviation as estimated from a few numbers, nats per character."""

    std: float
    low: float
    high: float
    """Of its 95 % interval."""
    n: int
    """The numbers it was estimated from."""

    def times(self, factor: float) -> "Spread":
        """That of the numbers multiplied by a constant."""
        return Spread(self.std * factor, self.low * factor, self.high * factor, self.n)


@dataclass(frozen=True)
class Effort:
    """What it takes to find a difference."""

    nats: float
    """Per character."""
    seeds: int
    low: int
    """Seeds, if the spread is as small as its interval allows."""
    high: int
    """Seeds, if it is as large."""
    minutes: float | None
    """To train these seeds of the baseline and of one variant; None where no run says how long it took."""


@dataclass(frozen=True)
class Floor:
    """The noise floor of a configuration."""

    baseline: str
    measure: Measure
    losses: dict[int, float]
    """Seed → loss, nats per character."""
    spread: Spread
    """Of the losses over seeds."""
    paired: Spread
    """Of the differences between two variants with the same seed."""
    paired_from: str | None
    """The variant that it was measured on; None: √2 times `spread`, as if variants had nothing in common."""
    seconds: float | None
    """A run, on average."""
    at_once: int | None
    """Runs that train at a time; None where a cluster decides that (minutes are then those of one after another)."""
    smallest: float
    """Nats per character: the difference that as many seeds as were trained would find."""
    efforts: tuple[Effort, ...]


def noise_floor(keys: Sequence[str], *, seeds: int, difference: float, as_json: bool, console: Console) -> int:
    """Train the baseline with seeds 0 … seeds - 1 as a sweep, and say what its spread means.

    The runs go to outputs/power/, or where the keys say, and are passed over the next time.

    Args:
        keys: of the configuration, as for train.py.
        seeds: how many, at least 3.
        difference: nats per character that one would like to find.
        as_json: print one JSON object, and nothing else, to the standard output; progress goes to the other one.
    Returns:
        The exit code: 0, or the sweep's where a run did not finish.
    Raises:
        BadInput: keys that this command sets itself; numbers out of range; fewer than two runs that finished.
    """
    _check(keys, seeds, difference)
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        code, folders, at_once = _train(keys, seeds)
    if code:
        return code
    folder = folders[0].parent
    own = terms_of([read_run(folders[0])])  # runs of other configurations may lie beside these
    terms = Terms(_name(folder, folders), own.measure, own.margin)
    floor = floor_of(make_report(folder, terms=terms), difference=difference, at_once=at_once)
    if as_json:
        print(json.dumps(asdict(floor), indent=1))
    else:
        _show(floor, console)
    return 0


def _check(keys: Sequence[str], seeds: int, difference: float) -> None:
    for key in keys:
        if key.startswith(("-", "=")) or "=" not in key:
            raise BadInput(f"{key} is no key=value of a configuration, such as experiment=part03.")
        name = key.lstrip("+").partition("=")[0]
        if name in ("seed", "sweep.until_decided", "hydra/sweeper") or name.startswith("hydra.sweeper"):
            raise BadInput(f"{key} is set by trilab power itself: --seeds says how many there are.")
    if seeds < 3:
        raise BadInput(f"--seeds {seeds} must be at least 3: fewer say next to nothing of a spread.")
    if not 0 < difference < math.inf:
        raise BadInput(f"--difference {difference:g} must be above 0 and finite: nats per character.")


def _train(keys: Sequence[str], seeds: int) -> tuple[int, list[Path], int | None]:
    """Exit code, the runs' folders, how many trained at a time."""
    from trilab import sweep
    from trilab.launch import main

    if (n := sweep.number_of_runs(keys)) > 1:
        raise BadInput(f"trilab power is for one configuration, and {' '.join(keys)} make {n}: one value a key.")
    given = dict(key.lstrip("+").partition("=")[::2] for key in keys)
    own = ["experiment_name=power", f"agg={given.get('report.baseline', 'none')}"]
    all_seeds = ",".join(map(str, range(seeds)))
    before = sys.argv
    sys.argv = [f"{Path(before[0]).name} train", "-m", *own, *keys, f"seed={all_seeds}", "sweep.until_decided=false"]
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1, [], None
    finally:
        sys.argv = before
    assert sweep.current is not None
    return 0, sweep.current.folders, sweep.current.at_once


def _name(folder: Path, runs: Sequence[Path]) -> str:
    """The row that these runs are: earlier ones of other configurations may lie beside them.

    Raises:
        BadInput: they are several.
    """
    names = [variant.name for variant in group(read_runs(folder)) if {run.folder for run in variant.runs} & {*runs}]
    if len(names) != 1:
        raise BadInput(
            f"trilab power is for one configuration, and these keys make {len(names)}: {', '.join(names)}. Give one "
            "value of each key."
        )
    return names[0]


def floor_of(report: Report, *, difference: float, at_once: int | None) -> Floor:
    """What the runs of an experiment say of noise.

    The spread of paired differences is measured where other strategies share at least three seeds with the baseline
    and differ in nothing else: the largest, so that the number of seeds suffices for each of them. Otherwise it is √2
    times the baseline's own: as large as it gets where a variant spreads no further than the baseline, unless it does
    worse with a seed where the baseline does better.

    Args:
        report: with a baseline of two seeds or more.
        difference: nats per character that one would like to find.
        at_once: runs that train at a time; None: not known.
    Raises:
        BadInput: there is no such baseline.
    """
    base = report.baseline
    if base is None or base.headline.std is None:
        why = report.notes[0] if base is None and report.notes else "Its baseline has fewer than two finished runs."
        raise BadInput(f"{report.folder} tells nothing of noise. {why}")
    spread = _spread(base.headline.std, len(base.seeds))
    paired, origin = _paired(base, report.rows) or (spread.times(math.sqrt(2)), None)
    return Floor(
        baseline=base.name,
        measure=report.terms.measure,
        losses=dict(base.headline.by_seed),
        spread=spread,
        paired=paired,
        paired_from=origin,
        seconds=base.seconds,
        at_once=at_once,
        smallest=smallest_difference(paired.std, len(base.seeds), alpha=ALPHA, power=POWER),
        efforts=tuple(_effort(nats, paired, base.seconds, at_once or 1) for nats in sorted({*DIFFERENCES, difference})),
    )


def _paired(base: Row, rows: Sequence[Row]) -> tuple[Spread, str] | None:
    alike = [row for row in rows if _but_for_strategy(row) == _but_for_strategy(base)]
    differences = [(row.difference, row.name) for row in alike if row.difference and row.difference.n > 2]
    measured = [(_spread(d.std, d.n), name) for d, name in differences if d.std]
    return max(measured, key=lambda found: found[0].std, default=None)


def _but_for_strategy(row: Row) -> dict[str, str]:
    return {k: v for k, v in row.variant.settings.items() if not k.startswith(("agg.", "model.agg_per_layer"))}


def _spread(std: float, n: int) -> Spread:
    """std · √((n - 1) / χ²), χ² at 97.5 % and 2.5 % of n - 1 degrees of freedom: for normal numbers."""
    from scipy.stats import chi2  # type: ignore[import-untyped]

    tail = (1 - CONFIDENCE) / 2
    low, high = (std * math.sqrt((n - 1) / float(chi2.isf(q, n - 1))) for q in (tail, 1 - tail))
    return Spread(std, low, high, n)


def _effort(nats: float, paired: Spread, seconds: float | None, at_once: int) -> Effort:
    seeds, low, high = (power(std, nats, alpha=ALPHA, power=POWER) for std in (paired.std, paired.low, paired.high))
    # runs train in rounds: a last one that is not full takes as long
    minutes = None if seconds is None else math.ceil(2 * seeds / at_once) * seconds / 60
    return Effort(nats, seeds, low, high, minutes)


def _show(floor: Floor, console: Console) -> None:
    n = floor.spread.n
    noise = f"{_range(floor.spread)} nats (sample standard deviation and its 95 % interval)"
    lines = [
        f"{one_line(floor.baseline)}: {IN_WORDS[floor.measure]} over {n} seeds: spread {noise}",
        f"paired differences: {_range(floor.paired)}, {_origin(floor)}",
    ]
    for line in lines:
        console.print(Text(line))
    table = Table(box=None, header_style="bold", padding=(0, 3, 0, 0))
    for title in ("difference", "seeds", "from … to", "minutes"):
        table.add_column(title, justify="right")
    for effort in floor.efforts:
        minutes = (
            ""
            if effort.minutes is None
            else f"{effort.minutes:,.0f}"
            if effort.minutes >= 10
            else f"{effort.minutes:.1f}"
        )
        table.add_row(f"{effort.nats:g}", f"{effort.seeds:,}", f"{effort.low:,} … {effort.high:,}", minutes)
    console.print(table)
    console.print(Text(_legend(floor), "dim"))


def _range(spread: Spread) -> str:
    return f"{spread.std:.4f} ({spread.low:.4f} … {spread.high:.4f})"


def _origin(floor: Floor) -> str:
    if floor.paired_from is None:
        return "√2 times that: as if variants had nothing in common; what they share makes it smaller"
    return f"as measured on {one_line(floor.paired_from)} over {floor.paired.n} seeds"


def _legend(floor: Floor) -> str:
    what = f"seeds that find a difference of so many nats per character with a probability of {100 * POWER:g} %"
    said = [
        f"{what}, where p ≤ {100 * ALPHA:g} % decides, for one variant against the baseline",
        "from … to: as the spread's interval allows",
        f"{floor.spread.n} seeds find {floor.smallest:.3g}",
    ]
    if floor.seconds is not None:
        how = "one after another" if floor.at_once in (1, None) else f"{floor.at_once} at a time"
        said.append(f"minutes: both variants, {floor.seconds:.1f} s a run, {how}")
    return f"{'; '.join(said)}."

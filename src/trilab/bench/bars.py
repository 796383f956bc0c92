"""What was set as a goal, each as a figure taken in one run on one machine; and whether it is met."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from trilab.bench import agg, data, generate, startup, sweep, train
from trilab.bench.measured import Measured, Series, Spread, spread

# From what was measured to the figure that is judged, round by round; nothing where it was not measured.
Judged = Callable[[Measured], list[float]]

ALL_MEANS = f"{train.TRAIN_PY} compiled, in bfloat16 where that is multiplied"
EQUAL_LOSS = 0.005  # nats a character: what a report calls equal (report.margin)


@dataclass(frozen=True)
class Bar:
    """One goal.

    Args:
        says: what is compared with what.
        kind, device: of the measurement that tells.
        limit: the figure's.
        at_most: whether it may be as much at most, or must be as much at least.
        judged: the figure.
        unit: "×" of a ratio, "s", or "" of an exponent.
    """

    says: str
    kind: str
    limit: float
    at_most: bool
    judged: Judged
    unit: str = "×"
    device: str = "cpu"

    @property
    def goal(self) -> str:
        """In words."""
        return f"{'≤' if self.at_most else '≥'} {self.limit:g} {self.unit}".strip()


@dataclass(frozen=True)
class Verdict:
    """What became of a bar; measured is None where it was not."""

    bar: Bar
    measured: Spread | None
    quick: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the median meets it; None where nothing was measured."""
        if self.measured is None:
            return None
        return self.measured.median <= self.bar.limit if self.bar.at_most else self.measured.median >= self.bar.limit

    @property
    def in_words(self) -> str:
        """Met, not met or not measured."""
        if self.met is None:
            return "not measured"
        return ("met" if self.met else "**not met**") + " (quick)" * self.quick


def judge(found: Sequence[Measured]) -> list[Verdict]:
    """Every bar, in the order of BARS."""
    of = {(one.kind, one.device): one for one in found}
    verdicts = []
    for bar in BARS:
        one = of.get((bar.kind, bar.device))
        values = bar.judged(one) if one else []
        verdicts.append(Verdict(bar, spread(values) if values else None, quick=one is not None and one.quick))
    return verdicts


def _ratio(case: str, measure: str, over: str, under: str) -> Judged:
    return lambda found: found.ratios(case, measure, over, under)


def _value(case: str, measure: str, way: str) -> Judged:
    def judged(found: Measured) -> list[float]:
        one = found.find(case, measure, way)
        return list(one.values) if one else []

    return judged


def _exponent(measure: str, way: str) -> Judged:
    return lambda found: found.exponents(measure, way)


def _validation(case: str, found: Measured) -> list[float]:
    validation = found.find(case, train.VALIDATION, train.TRAIN_PY)
    training = found.find(case, train.SPEED, train.TRAIN_PY)
    if validation is None or training is None:
        return []
    return [a / b for a, b in zip(validation.values, training.values, strict=True)]


def _growth(found: Measured) -> list[float]:
    """A character's time at the end of the longest text over that of the shortest, of the strategy that grows most."""
    sizes = sorted({one.size for one in found.series if one.measure == generate.FAR and one.size})
    if len(sizes) < 2:
        return []
    of: list[list[float]] = []
    for way in dict.fromkeys(one.way for one in found.series if one.measure == generate.FAR):
        early = found.find(f"at {sizes[0]:,}", generate.FAR, way)
        late = found.find(f"at {sizes[-1]:,}", generate.FAR, way)
        if early and late:
            of.append([b / a for a, b in zip(early.values, late.values, strict=True)])
    return max(of, key=lambda ratios: spread(ratios).median)


def _at_memory_speed() -> list[Bar]:
    found = []
    means = {"uniform mean (cumsum)": "cumsum", "decays (ema)": "ema", agg.RECURRENCE: agg.RECURRENCE}
    for says, way in means.items():
        for shape in agg.SHAPES:
            case = agg.case_of(shape)
            for measure, limit in ((agg.FORWARD, 2.0), (agg.BACKWARD, 5.0)):
                judged = _ratio(case, measure, way, agg.COPY)
                found.append(Bar(f"{says} at {case}: {measure} / copy of x", "agg", limit, True, judged))
    for shape in agg.SHAPES:
        case = agg.case_of(shape)
        judged = _ratio(case, agg.FORWARD, agg.CUMSUM, "cumsum")
        found.append(Bar(f"torch.cumsum / arange at {case}: forward / ours", "agg", 4.0, False, judged))
    return found


def _products() -> list[Bar]:
    case = agg.case_of(agg.FULL.product)
    return [
        Bar(
            f"static table at {case}: {measure} / by the full product",
            *("agg", 0.65, True, _ratio(case, measure, "table", agg.FULL_TABLE)),
        )
        for measure in (agg.FORWARD, agg.BACKWARD)
    ]


def _attention() -> list[Bar]:
    """With its gradients, at sizes that are trained: a kernel of our own has to be worth it."""
    found = []
    for shape in agg.HEADS:
        case = agg.case_of(shape)
        for under in ("", agg.UNDER_WINDOW) if shape[2] > agg.WINDOW else ("",):
            judged = _ratio(case, agg.BACKWARD, agg.KERNEL + under, agg.TORCHS_KERNEL + under)
            says = f"attention{under} at {case}: {agg.BACKWARD} / torch's kernel"
            found.append(Bar(says, "agg", 1.0, True, judged))
    return found


def _exponents() -> list[Bar]:
    wanted = [
        (agg.BACKWARD, "window", "time of window's mean"),
        (agg.MEMORY, "window", "memory of window's mean"),
        (agg.BACKWARD, agg.WINDOWED, "time of attention with a window"),
        (agg.MEMORY, agg.WINDOWED, "memory of attention with a window"),
        (agg.MEMORY, "attention", "memory of attention, no (B, H, T, T)"),
    ]
    return [
        Bar(f"{says}: p in T^p", "agg", 1.2, True, _exponent(measure, way), unit="") for measure, way, says in wanted
    ]


def _with_all_means(found: Measured, case: str, measure: str) -> Series | None:
    """Of train.py compiled and in bfloat16; compiled, where the processor does not multiply bfloat16."""
    ways = (f"{train.TRAIN_PY} {means}" for means in (train.COMPILED_IN_HALF, train.COMPILED))
    return next((one for way in ways if (one := found.find(case, measure, way))), None)


def _gained(case: str, loop: str, found: Measured) -> list[float]:
    quick = _with_all_means(found, case, train.SPEED)
    return found.ratios(case, train.SPEED, quick.way, loop) if quick else []


def _lost(case: str, found: Measured) -> list[float]:
    """What all means add to the loss, or take from it, seed by seed."""
    plain, quick = found.find(case, train.LOSS, train.TRAIN_PY), _with_all_means(found, case, train.LOSS)
    if plain is None or quick is None:
        return []
    return [abs(a - b) for a, b in zip(quick.values, plain.values, strict=True)]


def _training() -> list[Bar]:
    nano, tiny = train.NANO, train.TINY
    at_once = _ratio(tiny.name, train.SPEED, train.TRAIN_PY, train.GPT_PY)
    return [
        Bar(f"{train.TRAIN_PY} / {train.GPT_PY}, {tiny.name}", "train", 1.0, False, at_once),
        *(
            Bar(f"{ALL_MEANS} / {loop}, {case}", "train", 1.5, False, partial(_gained, case, loop))
            for case in (nano.name, nano.on_all_cores)
            for loop in (train.GPT_PY, train.THROUGHOUT)
        ),
        *(
            Bar(
                f"{train.LOSS}, {ALL_MEANS}: difference from {train.TRAIN_PY} as it is, {case}",
                *("train", EQUAL_LOSS, True, partial(_lost, case)),
                unit=train.LOSS_UNIT,
            )
            for case in (nano.name, nano.on_all_cores)
        ),
        *(
            Bar(f"validation / training, {size.name}", "train", 3.0, False, partial(_validation, size.name))
            for size in (nano, tiny)
        ),
    ]


def _starting() -> list[Bar]:
    of = partial(_ratio, startup.CASE, startup.MEASURE)
    value = partial(_value, startup.CASE, startup.MEASURE)
    return [
        Bar(f"{startup.FIRST_STEP} / bare imports", "startup", 1.3, True, of(startup.FIRST_STEP, startup.IMPORTS)),
        Bar("with W&B, offline / bare imports", "startup", 1.3, True, of(startup.WITH_WANDB, startup.IMPORTS)),
        Bar(startup.TRAIN_HELP, "startup", 1.5, True, value(startup.TRAIN_HELP), unit="s"),
        Bar(startup.TRILAB_HELP, "startup", 1.5, True, value(startup.TRILAB_HELP), unit="s"),
    ]


def _sweeping(found: Measured) -> list[float]:
    return [ratio for case in dict.fromkeys(one.case for one in found.series)
            for ratio in found.ratios(case, sweep.MEASURE, sweep.SWEEP, sweep.SHARE)]  # fmt: skip


def _generating() -> list[Bar]:
    cases = [f"{strategy}, context {generate.FULL.context}" for strategy in generate.FULL.strategies]
    return [
        *(
            Bar(
                f"recomputing / streaming, {case}, 6 layers, its last characters",
                *("generate", 10.0, False, _ratio(case, generate.LATE, generate.RECOMPUTING, generate.STREAMING)),
            )
            for case in cases
        ),
        Bar("a character at 4,096 / at 256, the strategy that grows most", "generate", 1.2, True, _growth),
    ]


def _reading() -> list[Bar]:
    return [
        Bar(f"reading {kind} / {data.LOOP}", "data", 10.0, False, _ratio(kind, data.MEASURE, data.OURS, data.LOOP))
        for kind in data.WORDS
    ]


def _on_a_card() -> list[Bar]:
    of_means = [
        Bar(
            f"GPU: {way} at {agg.case_of(shape)}: forward / copy of x",
            *("agg", 1.3, True, _ratio(agg.case_of(shape), agg.FORWARD, way, agg.COPY)),
            device="cuda",
        )
        for way in ("cumsum", "ema")
        for shape in agg.SHAPES
    ]
    case = train.FULL.name
    return of_means + [
        Bar(
            f"GPU: {ALL_MEANS} / {loop}, {case}",
            *("train", 1.0, False, partial(_gained, case, loop)),
            device="cuda",
        )
        for loop in (train.GPT_PY, train.VECTORISED, train.NANOGPT)
    ]


BARS = (
    *_at_memory_speed(),
    *_products(),
    *_attention(),
    *_exponents(),
    *_training(),
    Bar("a sweep / its runs' processor time by the cores", "sweep", 1.15, True, _sweeping),
    *_starting(),
    *_generating(),
    *_reading(),
    *_on_a_card(),
)

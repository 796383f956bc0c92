import pytest

from trilab.bench import data, generate, startup, train
from trilab.bench.bars import ALL_MEANS, BARS, judge
from trilab.bench.measured import Measured, Series

from .conftest import Make


def of(found: list[Measured], says: str) -> tuple[str, float | None]:
    (verdict,) = [verdict for verdict in judge(found) if verdict.bar.says == says]
    return verdict.in_words, verdict.measured.median if verdict.measured else None


TINY, NANO = train.TINY.name, train.NANO.name
TINY_BAR = f"train.py / gpt.py's loop, {TINY}"
NANO_BAR = f"{ALL_MEANS} / gpt.py's loop, {NANO}"
PLAIN, COMPILED, HALF, BOTH = (
    " ".join([train.TRAIN_PY, *means]) for means in ([], [train.COMPILED], [train.HALF], [train.COMPILED, train.HALF])
)


def training(made: Make, ours: tuple[float, ...], theirs: tuple[float, ...], *, quick: bool = False) -> Measured:
    series = [
        Series(TINY, train.SPEED, train.TRAIN_PY, train.UNIT, ours),
        Series(TINY, train.SPEED, train.GPT_PY, train.UNIT, theirs),
        Series(TINY, train.VALIDATION, train.TRAIN_PY, train.UNIT, tuple(4 * value for value in ours)),
    ]
    return made("train", series, reference=train.GPT_PY, quick=quick)


def test_without_measurements_every_bar_is_there_and_not_measured() -> None:
    verdicts = judge([])
    assert [verdict.bar for verdict in verdicts] == list(BARS)
    assert {verdict.in_words for verdict in verdicts} == {"not measured"}


def test_no_two_bars_say_the_same() -> None:
    assert len({bar.says for bar in BARS}) == len(BARS)


def test_a_bar_is_met_by_the_median_of_the_ratios_within_rounds(made: Make) -> None:
    # the means are far apart in the wrong direction: one round was disturbed, both ways in it
    found = training(made, (11.0, 1.1, 100.0), (10.0, 1.0, 1000.0))
    assert of([found], TINY_BAR) == ("met", pytest.approx(1.1))


def test_a_bar_that_is_missed_is_said_to_be(made: Make) -> None:
    found = training(made, (9.0,), (10.0,))
    assert of([found], TINY_BAR) == ("**not met**", pytest.approx(0.9))


def test_what_was_measured_in_a_hurry_is_said_to_be(made: Make) -> None:
    assert of([training(made, (16.0,), (10.0,), quick=True)], TINY_BAR)[0] == "met (quick)"


def test_validation_is_judged_against_the_same_rounds_training(made: Make) -> None:
    assert of([training(made, (5.0, 50.0), (1.0, 1.0))], f"validation / training, {TINY}") == ("met", 4.0)


@pytest.mark.parametrize(
    ("measured", "judged"),
    [
        ({PLAIN: 9.0}, None),
        ({PLAIN: 1.0, HALF: 9.0}, None),
        ({PLAIN: 9.0, COMPILED: 2.0}, 2.0),
        ({PLAIN: 9.0, COMPILED: 9.0, HALF: 9.0, BOTH: 2.0}, 2.0),
    ],
    ids=["as it is", "in bfloat16 alone", "no bfloat16", "both"],
)
def test_all_means_are_compiling_and_bfloat16_where_that_was_measured(
    measured: dict[str, float], judged: float | None, made: Make
) -> None:
    series = [Series(NANO, train.SPEED, way, train.UNIT, (speed,)) for way, speed in measured.items()]
    series.append(Series(NANO, train.SPEED, train.GPT_PY, train.UNIT, (1.0,)))
    assert of([made("train", series, reference=train.GPT_PY)], NANO_BAR) == (
        "met" if judged else "not measured",
        judged,
    )


def test_a_loss_that_means_of_speed_change_is_judged_seed_by_seed(made: Make) -> None:
    losses = {PLAIN: (3.0, 2.0, 4.0), COMPILED: (9.0, 9.0, 9.0), BOTH: (3.001, 1.998, 4.003)}
    series = [Series(NANO, train.LOSS, way, train.LOSS_UNIT, values) for way, values in losses.items()]
    (verdict,) = [
        verdict
        for verdict in judge([made("train", series, reference=train.GPT_PY)])
        if verdict.bar.unit == train.LOSS_UNIT and verdict.measured
    ]
    assert verdict.in_words == "met"
    assert verdict.measured is not None
    assert verdict.measured.median == pytest.approx(0.002)


def test_figures_of_the_cpu_say_nothing_of_a_gpu(made: Make) -> None:
    name = train.FULL.name
    series = [Series(name, train.SPEED, way, train.UNIT, (1.0,)) for way in (BOTH, train.GPT_PY)]
    on = {device: made("train", series, reference=train.GPT_PY, device=device) for device in ("cpu", "cuda")}
    assert of([on["cpu"]], f"GPU: {ALL_MEANS} / gpt.py's loop, {name}") == ("not measured", None)
    assert of([on["cuda"]], f"GPU: {ALL_MEANS} / gpt.py's loop, {name}") == ("met", 1.0)


def test_help_is_judged_in_seconds_and_a_start_against_the_imports(made: Make) -> None:
    values = {startup.IMPORTS: 4.0, startup.FIRST_STEP: 5.0, startup.TRAIN_HELP: 2.0, startup.TRILAB_HELP: 0.1}
    series = [Series(startup.CASE, startup.MEASURE, way, "s", (value,)) for way, value in values.items()]
    found = made("startup", series, reference=startup.IMPORTS)
    assert of([found], f"{startup.FIRST_STEP} / bare imports") == ("met", 1.25)
    assert of([found], startup.TRAIN_HELP) == ("**not met**", 2.0)
    assert of([found], startup.TRILAB_HELP) == ("met", 0.1)
    assert of([found], "with W&B, offline / bare imports") == ("not measured", None)


def test_the_strategy_that_grows_most_is_the_one_that_is_judged(made: Make) -> None:
    grown = {"ema": 1.1, "min_gru": 1.5}
    series = [
        Series(f"at {length:,}", generate.FAR, way, "s", (seconds, seconds), size=length)
        for way, growth in grown.items()
        for length, seconds in ((256, 1.0), (4096, growth))
    ]
    found = made("generate", series, reference=generate.RECOMPUTING)
    assert of([found], "a character at 4,096 / at 256, the strategy that grows most") == ("**not met**", 1.5)


def test_all_of_reading_is_judged_against_the_loop_over_what_is_decoded(made: Make) -> None:
    speeds = {data.OURS: 12.0, data.ENCODE: 30.0, data.LOOP: 1.0, data.TRANSLATE: 20.0}
    series = [Series("ASCII", data.MEASURE, way, "MB/s", (value,)) for way, value in speeds.items()]
    found = made("data", series, reference=data.LOOP)
    assert of([found], f"reading ASCII / {data.LOOP}") == ("met", 12.0)
    assert of([found], f"reading Latin / {data.LOOP}") == ("not measured", None)

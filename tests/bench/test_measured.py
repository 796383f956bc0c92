from pathlib import Path

import pytest

from trilab.bench.measured import Series, Spread, load, merged, save, spread
from trilab.errors import BadInput

from .conftest import Make


def over_time(way: str, power: float, sizes: list[int]) -> list[Series]:
    """Seconds at a fixed number of tokens of a way whose row costs T^power."""
    return [Series(f"T = {t}", "forward", way, "s", (1e-6 * t ** (power - 1),) * 3, t) for t in sizes]


def test_a_spread_is_median_and_quartiles() -> None:
    assert spread([4.0, 1.0, 2.0, 3.0, 5.0]) == Spread(2.0, 3.0, 4.0)
    assert spread([7.0]) == Spread(7.0, 7.0, 7.0)


def test_ratios_are_taken_round_by_round(made: Make) -> None:
    series = [Series("c", "m", "a", "s", (2.0, 30.0)), Series("c", "m", "b", "s", (1.0, 10.0))]
    found = made("train", series, reference="b")
    assert found.ratios("c", "m", "a", "b") == [2.0, 3.0]
    assert found.ratios("c", "m", "a", "nobody") == []


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_the_exponent_is_that_of_a_row_though_the_number_of_tokens_is_fixed(made: Make, power: float) -> None:
    found = made("agg", over_time("w", power, [64, 128, 256, 512, 1024]), reference="copy")
    assert found.exponents("forward", "w") == pytest.approx([power] * 3)


def test_small_sizes_where_a_call_costs_more_than_its_tokens_do_not_move_the_exponent(made: Make) -> None:
    small = [Series(f"T = {t}", "forward", "w", "s", (1.0,) * 3, t) for t in (8, 16, 32)]
    found = made("agg", [*small, *over_time("w", 2.0, [64, 128, 256])], reference="copy")
    assert found.exponents("forward", "w") == pytest.approx([2.0] * 3)


def test_two_sizes_are_too_few_for_an_exponent(made: Make) -> None:
    assert made("agg", over_time("w", 2.0, [64, 128]), reference="copy").exponents("forward", "w") == []


def test_what_is_saved_is_what_is_loaded(made: Make, tmp_path: Path) -> None:
    found = [made("train", [Series("c", "m", "a", "s", (2.0, 3.0))], reference="a")]
    save(tmp_path / "b.json", found)
    assert load(tmp_path / "b.json") == found
    assert load(tmp_path / "none.json") == []


def test_what_is_measured_anew_replaces_its_kind_on_its_device_and_nothing_else(made: Make) -> None:
    old = [made(kind, [], reference="old", device=device) for kind in ("agg", "train") for device in ("cpu", "cuda")]
    new = made("train", [], reference="new")
    assert [(m.kind, m.device, m.reference) for m in merged(old, [new])] == [
        ("agg", "cpu", "old"),
        ("agg", "cuda", "old"),
        ("train", "cpu", "new"),
        ("train", "cuda", "old"),
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("nonsense", "is no JSON"),
        ("[]", "schema 1"),
        ('{"schema": 99, "measured": []}', "schema 1"),
        ('{"schema": 1, "measured": [{"kind": "train"}]}', "is damaged"),
    ],
)
def test_a_file_that_is_something_else_is_refused_in_a_line(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "b.json"
    path.write_text(content)
    with pytest.raises(BadInput, match=said):
        load(path)

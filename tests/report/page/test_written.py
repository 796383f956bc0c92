import pytest

from trilab.report.page import written


@pytest.mark.parametrize(
    ("value", "shown"),
    [(2.46, "2.4600"), (0.0, "0.0000"), (-0.5, "−0.5000"), (1e-7, "1.00e−07"), (123456.0, "1.23e+05")],
)
def test_losses_have_four_digits_unless_they_are_too_large_or_small(value: float, shown: str) -> None:
    assert written.loss(value) == shown


def test_differences_carry_their_sign() -> None:
    assert [written.difference(d) for d in (0.0123, -0.0123, 0.0, -0.0)] == ["+0.0123", "−0.0123", "0", "0"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (4257, "4.26k"), (999_999, "1M"), (1.5e9, "1.5G"), (0.25, "0.25"), (3e18, "3E"), (4e25, "4e+25")],
)
def test_amounts_are_short(value: float, shown: str) -> None:
    assert written.short(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(11.6, "11.6 s"), (0.5, "0.5 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")]
)
def test_durations_are_said_as_one_says_them(value: float, shown: str) -> None:
    assert written.seconds(value) == shown


def test_small_p_are_not_zero() -> None:
    assert [written.p_value(p) for p in (1e-9, 0.0123, 1.0)] == ["< 0.001", "0.012", "1.000"]


def test_text_keeps_line_ends_and_makes_visible_what_utf_8_or_a_reader_cannot_bear() -> None:
    assert written.text("a\n\tb\x00\x1b\x7f\x85\ud800é") == "a\n\tb␀␛␡��é"
    written.text("".join(map(chr, range(0x11000)))).encode()


def test_lists_are_spoken_and_long_ones_cut() -> None:
    assert written.listed(["a"]) == "a"
    assert written.listed(["a", "b", "c"]) == "a, b and c"
    assert written.listed(list("abcdefgh"), most=3) == "a, b and 6 more"

import random
from itertools import pairwise
from xml.etree.ElementTree import fromstring

import pytest

from trilab.report.page.costs import front
from trilab.report.page.svg import Scale, element, rounded, scale, spread, without_outliers


@pytest.mark.parametrize("low_high", [(0, 3000), (2.41, 2.57), (-0.12, 0.03), (1e-9, 3e-9), (5e11, 5.1e11)])
def test_ticks_are_round_evenly_apart_and_within(low_high: tuple[float, float]) -> None:
    axis = Scale(*low_high, 0.0, 100.0)
    ticks = axis.ticks(6)
    assert 3 <= len(ticks) <= 10
    assert all(axis.holds(tick) or tick == pytest.approx(axis.high) for tick in ticks)
    steps = [b - a for a, b in pairwise(ticks)]
    assert steps == pytest.approx([steps[0]] * len(steps))
    assert len({rounded(ticks)(tick) for tick in ticks}) == len(ticks)


def test_a_scale_over_decades_is_logarithmic_and_its_ticks_lie_on_it() -> None:
    axis = scale([1e3, 2e6], 0, 100, log=True)
    assert axis.log
    assert axis(1e3) < axis(4e4) < axis(2e6)
    assert axis(1e5) - axis(1e4) == pytest.approx(axis(1e6) - axis(1e5))
    assert 3 <= len(axis.ticks(6)) <= 8


@pytest.mark.parametrize("values", [[2.5], [2.5, 2.5], [0.0], [1e300, -1e300], [-3.0, -3.0]])
def test_a_scale_of_equal_or_huge_values_is_still_one(values: list[float]) -> None:
    axis = scale(values, 0, 100)
    assert all(0 <= axis(value) <= 100 for value in values)
    assert axis.ticks()


def test_labels_are_moved_apart_keep_their_order_and_stay_between_the_ends() -> None:
    draw = random.Random(5)
    for _ in range(200):
        places = [draw.uniform(0, 400) ** draw.choice([0.5, 1]) for _ in range(draw.randint(1, 25))]
        moved = spread(places, 0, 400, 14)
        order = sorted(range(len(places)), key=lambda k: places[k])
        in_order = [moved[k] for k in order]
        assert all(b - a >= 14 - 1e-9 for a, b in pairwise(in_order))
        assert in_order[0] >= -1e-9
        assert in_order[-1] <= 400 + 1e-9


def test_labels_that_are_far_enough_apart_stay_where_they_are() -> None:
    assert spread([300.0, 10.0, 100.0], 0, 400, 14) == [300.0, 10.0, 100.0]


def test_one_value_far_above_all_others_is_left_out_of_the_axis() -> None:
    assert without_outliers([2.4, 2.5, 2.6, 9.0, 1e6]) == 2.6
    assert without_outliers([2.4, 2.5, 2.6]) == 2.6
    assert without_outliers([2.4, 9.0]) == 9.0
    assert without_outliers([2.5, 2.5, 2.5, 2.6]) == 2.6


def test_elements_escape_what_they_hold() -> None:
    made = element("text", {"class": '"><script>', "x": 1.26, "y": None}, "a < b & \x00", element("b", {}, "c"))
    parsed = fromstring(made)
    assert parsed.attrib == {"class": '"><script>', "x": "1.3"}
    assert parsed.text == "a < b & ␀"
    assert [child.tag for child in parsed] == ["b"]


def test_the_front_is_what_no_other_point_beats() -> None:
    points = [(3.0, 1.0), (1.0, 3.0), (2.0, 2.0), (2.0, 2.5), (4.0, 1.0), (1.0, 3.0)]
    assert front(points) == [1, 2, 0]
    for k, (cost, loss) in enumerate(points):
        beaten = any(c <= cost and v <= loss and (c, v) != (cost, loss) for c, v in points)
        assert beaten == (points[k] not in [points[j] for j in front(points)])

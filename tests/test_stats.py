import pytest

from trilab.stats import paired_difference, sample_std


def test_the_paired_difference_is_the_mean_of_the_differences_seed_by_seed() -> None:
    difference = paired_difference({0: 2.5, 1: 2.75, 2: 2.0}, {0: 2.0, 1: 2.0, 2: 2.0})
    # 0.5, 0.75, 0: mean 1.25 / 3, squared deviations (1/12)² + (1/3)² + (5/12)² = 42/144, halved
    assert difference.mean == pytest.approx(1.25 / 3, rel=1e-15)
    assert difference.std == pytest.approx((21 / 144) ** 0.5, rel=1e-15)
    assert (difference.n, difference.seeds) == (3, (0, 1, 2))
    assert (difference.unpaired, difference.unpaired_baseline) == ((), ())


def test_only_common_seeds_count_and_the_others_are_named() -> None:
    difference = paired_difference({5: 100.0, 1: 2.5, 0: 2.5}, {3: -100.0, 0: 2.0, 1: 1.0})
    assert difference.mean == 1.0
    assert difference.seeds == (0, 1)
    assert difference.unpaired == (5,)
    assert difference.unpaired_baseline == (3,)


def test_without_a_common_seed_there_is_no_difference() -> None:
    difference = paired_difference({0: 2.5}, {1: 2.0})
    assert (difference.mean, difference.std, difference.n) == (None, None, 0)


def test_one_pair_has_a_difference_but_no_spread() -> None:
    difference = paired_difference({0: 2.5}, {0: 2.0})
    assert (difference.mean, difference.std) == (0.5, None)


def test_the_spread_divides_by_one_less_than_the_number_of_seeds() -> None:
    assert sample_std([1.0, 2.0, 3.0]) == 1.0
    assert sample_std([1.0]) is None


def test_equal_values_have_a_spread_and_a_difference_of_exactly_zero() -> None:
    assert sample_std([0.1, 0.1, 0.1]) == 0.0
    values = {seed: 0.1 * seed for seed in range(7)}
    assert paired_difference(values, values).mean == 0.0

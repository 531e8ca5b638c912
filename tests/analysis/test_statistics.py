import pandas
import pytest
from scipy import stats

from mtlib.analysis.statistics import (
    Difference,
    balanced_accuracy,
    interval,
    paired_difference,
    spread,
    verdict,
    wilson,
)


def runs(*correct, n=100):
    return pandas.DataFrame({"accuracy": [100 * c / n for c in correct], "correct": correct, "n": n})


def test_interval_of_several_runs_by_hand():
    """80, 82, 84: mean 82, deviation 2, and t(2 degrees) = 4.3027."""
    mean, low, high = interval(runs(80, 82, 84))
    assert mean == pytest.approx(82)
    assert high - mean == mean - low == pytest.approx(4.302653 * 2 / 3**0.5, rel=1e-6)
    expected = stats.ttest_1samp([80, 82, 84], 0).confidence_interval(0.95)
    assert (low, high) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_interval_of_one_run_is_wilson_by_hand():
    """(p + z²/2n ± z sqrt(p(1-p)/n + z²/4n²)) / (1 + z²/n) with p = 0.9, n = 100, z = 1.959964."""
    z, p, n = 1.959964, 0.9, 100
    middle, half = p + z**2 / (2 * n), z * (p * (1 - p) / n + z**2 / (4 * n**2)) ** 0.5
    mean, low, high = interval(runs(90))
    assert mean == pytest.approx(90)
    assert low == pytest.approx(100 * (middle - half) / (1 + z**2 / n), rel=1e-5)
    assert high == pytest.approx(100 * (middle + half) / (1 + z**2 / n), rel=1e-5)
    assert wilson(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)


def test_interval_stays_between_0_and_100():
    assert interval(runs(1, 2, 9))[1] == 0
    assert interval(runs(91, 92, 99))[2] == 100
    assert interval(runs(0))[1] == pytest.approx(0)
    assert interval(runs(50, 50, 50)) == (50, 50, 50)


def test_two_runs_get_no_interval():
    assert interval(runs(40, 60)) == (50, 50, 50)


def test_difference_of_one_pair_has_no_interval():
    assert paired_difference([1.5]) == Difference(1.5, None, None, 1)
    assert paired_difference([]) is None


def test_spread_and_balanced_accuracy():
    assert (spread([80.0, 82.0, 84.0]), spread([80.0])) == ("82.0 ± 2.0", "80.0")
    assert balanced_accuracy({"per_label": {"no": {"accuracy": 1.0}, "yes": {"accuracy": 0.5}}}) == 75
    assert balanced_accuracy({"accuracy": 1.0}) is None


def test_verdict_needs_three_pairs_and_an_interval_without_zero():
    differences = ([1.0, 1.1, 0.9], [-1.0, -1.1, -0.9], [1.0, -1.0, 0.5], [1.0, 1.1], [])
    words = [verdict(paired_difference(values)) for values in differences]
    assert words == ["holds here", "does not hold here", "cannot be decided", "not run", "not run"]


def test_no_verdict_where_all_seeds_have_the_same_difference():
    assert verdict(paired_difference([0.6 - 0.5, 0.7 - 0.6, 0.8 - 0.7])) == "cannot be decided"


def test_a_difference_that_would_read_0_gets_another_digit():
    assert paired_difference([-0.04]).text() == "-0.04"
    assert paired_difference([1.04]).text() == "+1.0"

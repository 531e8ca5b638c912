"""Intervals and verdicts, by hand and against scipy."""

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mtlib.analysis.intervals import (
    Difference,
    claim,
    difference,
    holm,
    is_level,
    p_value,
    t_interval,
    verdict,
)


def test_t_interval_is_scipys():
    values = [1.0, 2.0, 4.0, 4.5]
    mean, low, high = t_interval(values, 0.9)
    assert (low, high) == pytest.approx(stats.t.interval(0.9, 3, mean, stats.sem(values)))


def test_seeds_that_only_one_arm_has_do_not_count():
    first = pandas.Series({0: 5.0, 1: 6.0, 2: 90.0})
    second = pandas.Series({1: 5.0, 0: 4.5, 7: 0.0})
    assert difference(first, second) == Difference(0.75, *t_interval([0.5, 1.0])[1:], 2)


def test_one_pair_has_no_interval_and_no_verdict():
    alone = difference(pandas.Series({0: 5.0}), pandas.Series({0: 4.0}))
    assert alone == Difference(1.0, None, None, 1) and alone.text() == "+1.0"
    assert verdict(alone) == "too few seeds (1 of 3)"
    assert verdict(difference(pandas.Series({0: 5.0}), pandas.Series({1: 4.0}))) == "not run"


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((1.24, -0.26, 2.74), "+1.2 [-0.3, +2.7]"),
        ((0.04, -1.0, 1.08), "+0.04 [-1.00, +1.08]"),
        ((0.0, -1.0, 1.0), "+0.0 [-1.0, +1.0]"),
    ],
)
def test_a_number_that_is_not_0_does_not_read_0(numbers, text):
    assert Difference(*numbers, 5).text() == text


@pytest.mark.parametrize(
    ("low", "high", "effect", "word"),
    [
        (-5.5, 0.8, 3.7, "excluded"),
        (0.0, 1.5, 0.7, "open"),
        (4.0, 5.0, 3.7, "supported"),
        (-1.0, 9.0, -2.0, "excluded"),
        (-3.0, -1.0, -2.0, "open"),
        (-4.0, -2.5, -2.0, "supported"),
        (3.5, 4.5, 3.5, "supported"),  # an end of the interval at the effect itself
        (-4.5, -3.5, -3.5, "supported"),
        (2.5, 3.5, 3.5, "open"),
        (-1.0, 1.0, None, ""),
        (-1.0, 1.0, 0.0, ""),
    ],
)
def test_does_the_interval_exclude_the_papers_effect(low, high, effect, word):
    assert claim(Difference((low + high) / 2, low, high, 5), effect) == word


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [
        (-2.5, -0.5, "significantly worse"),
        (-2.5, 0.0, "not significantly different"),
        (-2.5, 0.5, "not significantly different"),
        (-0.5, 2.5, "not significantly different"),
        (0.0, 2.5, "not significantly different"),
        (0.5, 2.5, "significantly better"),
    ],
)
def test_does_the_interval_exclude_0(low, high, word):
    assert verdict(Difference((low + high) / 2, low, high, 5)) == word


def test_an_obstacle_takes_both_verdicts_away():
    clear = Difference(5.0, 4.0, 6.0, 5)
    assert (
        verdict(clear, "it did not train")
        == claim(clear, 1.0, "it did not train")
        == "no verdict (it did not train)"
    )


@pytest.mark.parametrize("paired", [True, False])
def test_a_p_value_is_that_of_the_interval(paired):
    """An interval of level 1 - p has an end at 0."""
    first, second = pandas.Series([3.0, 4.0, 6.0, 5.0]), pandas.Series([2.0, 4.5, 4.0, 2.0])
    arms = (first, second)
    p = p_value(first, second, paired)
    scipys = stats.ttest_rel(first, second) if paired else stats.ttest_ind(*arms, equal_var=False)
    assert p == pytest.approx(scipys.pvalue) and 0.05 < p < 0.2
    assert difference(first, second, paired, level=1 - p).low == pytest.approx(0, abs=1e-9)
    assert p_value(first[:1], second, paired) == 1
    assert p_value(first, first - 1, paired=True) == 1  # no spread
    nearly = pandas.Series([0.1 + 0.2, 0.3, 0.3])  # 0.1 + 0.2 is not 0.3
    assert p_value(nearly, nearly * 0, paired=True) == 1


def test_holm_by_hand():
    """3 * 0.01, 2 * 0.03, and 0.04 not below the one before it."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.7, 0.9]) == [1, 1]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=6))
def test_holm_rejects_from_the_smallest_on_until_one_is_too_large(p_values):
    rejected = set()
    for k, index in enumerate(np.argsort(p_values, kind="stable")):
        if p_values[index] * (len(p_values) - k) >= 0.05:
            break
        rejected.add(p_values[index])
    corrected = zip(p_values, holm(p_values), strict=True)
    assert {p for p, corrected_p in corrected if corrected_p < 0.05} == rejected


def test_level_is_a_90_percent_interval_within_the_margin():
    base = pandas.Series([0.0, 0.0, 0.0])
    arm = pandas.Series([0.1, 0.2, 0.3])
    # mean 0.2, standard error 0.1 / 3 ** 0.5, t of two degrees of freedom 2.920: up to 0.3686
    assert is_level(arm, base, 0.37) and not is_level(arm, base, 0.36)
    assert is_level(-arm, base, 0.37) and not is_level(-arm, base, 0.36)
    assert not is_level(arm[:2], base, 100)  # too few seeds

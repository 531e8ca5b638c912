"""Differences between arms, their confidence intervals, and the verdicts that follow from these."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import numpy as np
import pandas

FEWEST_SEEDS = 3  # that allow a verdict
BETTER, WORSE, OPEN = "significantly better", "significantly worse", "not significantly different"
_NO_SPREAD = 1e-9  # points: rounding errors of equal numbers
SUPPORTED, EXCLUDED, UNDECIDED = "supported", "excluded", "open"


@dataclass(frozen=True)
class Difference:
    """A mean difference in points, with its interval over `n` seeds or pairs of seeds.

    `low` and `high` are None where there are too few for an interval.
    """

    mean: float
    low: float | None
    high: float | None
    n: int

    def text(self) -> str:
        """ "+1.2 [-0.3, +2.7]", without the interval where there is none, or "" without a mean.

        With as many digits as it takes that no number reads 0 which is not.
        """
        values = [value for value in (self.mean, self.low, self.high) if not pandas.isna(value)]
        if not values:
            return ""
        digits = 1
        while any(value and not round(value, digits) for value in values):
            digits += 1
        mean, *ends = (f"{value:+.{digits}f}" for value in values)
        return f"{mean} [{', '.join(ends)}]" if ends else mean


def difference(
    first: pandas.Series,
    second: pandas.Series,
    paired: bool = True,
    level: float = 0.95,
) -> Difference:
    """The mean of `first` minus that of `second`, two series of scores by seed.

    Paired by seed with Student's t, or unpaired with Welch's t. The mean is NaN without any score.
    """
    mean, standard_error, degrees, n = _estimate(first, second, paired)
    if n < 2:
        return Difference(mean, None, None, n)
    half_width = _t_quantile(degrees, level) * standard_error
    return Difference(mean, mean - half_width, mean + half_width, n)


def p_value(first: pandas.Series, second: pandas.Series, paired: bool = True) -> float:
    """Two-sided, of the test whose interval `difference` gives: Student's, or Welch's.

    1 where there are too few seeds for it, or no spread.
    """
    from scipy.special import stdtr

    mean, standard_error, degrees, n = _estimate(first, second, paired)
    if n < 2 or standard_error < _NO_SPREAD:
        return 1.0
    return float(2 * stdtr(degrees, -abs(mean) / standard_error))


class _Estimate(NamedTuple):
    """A mean difference, its standard error, and the degrees of freedom of its t distribution."""

    mean: float
    standard_error: float
    degrees: float
    n: int


def _estimate(first: pandas.Series, second: pandas.Series, paired: bool) -> _Estimate:
    if not paired:
        return _welch_estimate(first.dropna(), second.dropna())
    points = (first - second).dropna()
    n = len(points)
    return _Estimate(points.mean(), points.sem(), n - 1, n)


def _welch_estimate(first: pandas.Series, second: pandas.Series) -> _Estimate:
    mean = first.mean() - second.mean()
    arms = (first, second)
    n = min(map(len, arms))
    squared_errors = [arm.sem() ** 2 for arm in arms]  # of the means
    squared_error = sum(squared_errors)
    if n < 2 or squared_error == 0:
        return _Estimate(mean, 0.0, 1, n)
    shares = [part / squared_error for part in squared_errors]
    degrees = 1 / sum(share**2 / (len(arm) - 1) for share, arm in zip(shares, arms, strict=True))
    return _Estimate(mean, math.sqrt(squared_error), degrees, n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Each p-value corrected for their number, by Holm's step-down procedure.

    The k-th smallest of m (from 0) is multiplied by m - k, and none is below a smaller one's. Below
    0.05 are those that Holm (1979) rejects at 5 %.
    """
    order = np.argsort(p_values)
    factors = len(p_values) - np.arange(len(p_values))
    in_order = np.maximum.accumulate(np.array(p_values)[order] * factors)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(in_order, 1)
    return corrected.tolist()


def is_level(
    first: pandas.Series,
    second: pandas.Series,
    margin: float,
    paired: bool = True,
) -> bool:
    """Whether two one-sided tests at 5 % place the difference within `margin` points of 0.

    That is, whether its 90 % interval lies inside.
    """
    observed = difference(first, second, paired, level=0.9)
    return observed.n >= FEWEST_SEEDS and -margin < observed.low and observed.high < margin


def verdict(observed: Difference, obstacle: str = "") -> str:
    """Whether the interval excludes 0.

    Accuracies are counts over a few hundred texts, so all differences can be equal by chance. Then
    there is no spread to make an interval of, and the question stays open.
    """
    if reason := _no_verdict(observed, obstacle):
        return reason
    if math.isclose(observed.low, observed.high, abs_tol=_NO_SPREAD):
        return OPEN
    if observed.low > 0:
        return BETTER
    if observed.high < 0:
        return WORSE
    return OPEN


def claim(observed: Difference, effect: float | None, obstacle: str = "") -> str:
    """Whether the interval excludes a claimed effect.

    "supported": the whole interval is at least as large as the effect and has its sign. "excluded":
    the whole interval falls short of the effect. "open": the interval contains it.
    """
    if effect is None or effect == 0:
        return ""
    if reason := _no_verdict(observed, obstacle):
        return reason
    # measured in the direction of the effect
    near, far = observed.low, observed.high
    if effect < 0:
        near, far = -observed.high, -observed.low
    if near >= abs(effect):
        return SUPPORTED
    if far < abs(effect):
        return EXCLUDED
    return UNDECIDED


def _no_verdict(observed: Difference, obstacle: str) -> str:
    """Why there can be no verdict, or ""."""
    if not observed.n:
        return "not run"
    if observed.n < FEWEST_SEEDS:
        return f"too few seeds ({observed.n} of {FEWEST_SEEDS})"
    return f"no verdict ({obstacle})" if obstacle else ""


def t_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """(mean, low, high) of two values or more, by Student's t."""
    mean = fmean(values)
    n = len(values)
    standard_error = np.std(values, ddof=1) / np.sqrt(n)
    half_width = float(_t_quantile(n - 1, level) * standard_error)
    return mean, mean - half_width, mean + half_width


def _t_quantile(degrees: float, level: float) -> float:
    """How many standard errors an interval of this level reaches to either side."""
    from scipy.special import stdtrit  # far quicker to import than scipy.stats

    return float(stdtrit(degrees, (1 + level) / 2))

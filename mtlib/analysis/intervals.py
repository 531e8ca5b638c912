"""Differences with their intervals, what follows from these, and the interval of a share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import pandas

FEWEST_SEEDS = 3  # of a verdict
BETTER, WORSE, OPEN = "significantly better", "significantly worse", "not significantly different"
SUPPORTED, EXCLUDED, UNDECIDED = "supported", "excluded", "open"


@dataclass(frozen=True)
class Difference:
    """A mean difference in points, with its interval over `n` seeds or pairs of them (None: too few for one)."""

    mean: float
    low: float | None
    high: float | None
    n: int

    def text(self, digits: int = 1) -> str:
        """ "+1.2 [-0.3, +2.7]", or without the interval; one digit more where a number would read 0."""
        values = [value for value in (self.mean, self.low, self.high) if not pandas.isna(value)]
        if any(value and not round(value, digits) for value in values):
            digits += 1
        mean, *ends = (f"{value:+.{digits}f}" for value in values)
        return f"{mean} [{', '.join(ends)}]" if ends else mean


def difference(first: pandas.Series, second: pandas.Series, paired: bool = True, level: float = 0.95) -> Difference:
    """Of two series of scores by seed: paired by Student's t, or unpaired by Welch's; NaN where there is nothing."""
    if paired:
        points = (first - second).dropna()
        if len(points) < 2:
            return Difference(points.mean(), None, None, len(points))
        return Difference(*t_interval(list(points), level), len(points))
    first, second = first.dropna(), second.dropna()
    mean, n = first.mean() - second.mean(), min(len(first), len(second))
    if n < 2:
        return Difference(mean, None, None, n)
    if first.var() + second.var() == 0:
        return Difference(mean, mean, mean, n)
    from scipy import stats  # takes seconds to import, and few comparisons need it

    low, high = stats.ttest_ind(first, second, equal_var=False).confidence_interval(level)
    return Difference(mean, float(low), float(high), n)


def verdict(shift: Difference, obstacle: str = "") -> str:
    """Whether the interval excludes 0.

    Accuracies are counts of a few hundred texts, so all differences can be equal by chance. There is then no spread to
    make an interval of, and the question stays open.
    """
    if none := _no_verdict(shift, obstacle):
        return none
    if math.isclose(shift.low, shift.high, abs_tol=1e-9):
        return OPEN
    return BETTER if shift.low > 0 else WORSE if shift.high < 0 else OPEN


def claim(shift: Difference, effect: float | None, obstacle: str = "") -> str:
    """Whether the interval excludes a claimed effect: it lies short of it, lies at or beyond it, or contains it."""
    if effect is None or effect == 0:
        return ""
    if none := _no_verdict(shift, obstacle):
        return none
    near, far = (shift.low, shift.high) if effect > 0 else (-shift.high, -shift.low)
    return SUPPORTED if near >= abs(effect) else EXCLUDED if far < abs(effect) else UNDECIDED


def _no_verdict(shift: Difference, obstacle: str) -> str:
    if shift.n < FEWEST_SEEDS:
        return f"too few seeds ({shift.n} of {FEWEST_SEEDS})" if shift.n else "not run"
    return f"no verdict ({obstacle})" if obstacle else ""


def t_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """(mean, low, high) of two values or more, by Student's t."""
    mean = fmean(values)
    from scipy.special import stdtrit

    n = len(values)
    half = float(stdtrit(n - 1, (1 + level) / 2) * (np.std(values, ddof=1) / np.sqrt(n)))
    return mean, mean - half, mean + half

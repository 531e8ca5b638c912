"""Means, differences and shares with their 95 % intervals."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import pandas
from scipy import stats

FEWEST_SEEDS = 3  # of a verdict
TRAINED_WITHIN = 2.0  # points below fine-tuning in distribution at which an arm still counts as trained
HOLDS, FAILS, OPEN, NOT_RUN = "holds here", "does not hold here", "cannot be decided", "not run"
# the same of a difference that nobody claimed
AS_DIFFERENCE = {HOLDS: "significantly better", FAILS: "significantly worse", OPEN: "not significantly different"}


@dataclass(frozen=True)
class Difference:
    """Mean of differences paired by seed, in points, with its interval."""

    mean: float
    low: float | None
    high: float | None
    n: int

    def text(self, digits: int = 1) -> str:
        """ "+1.2 [-0.3, +2.7]"; of a single pair without the interval. Where a number would read 0, one more digit."""
        if any(value and not round(value, digits) for value in (self.mean, self.low, self.high)):
            digits += 1
        mean, *ends = (f"{value:+.{digits}f}" for value in (self.mean, self.low, self.high) if value is not None)
        return f"{mean} [{', '.join(ends)}]" if ends else mean


def paired_difference(differences: Sequence[float], level: float = 0.95) -> Difference | None:
    """Mean with its interval by Student's t (none for a single pair); None where there is no pair."""
    n = len(differences)
    if n == 0:
        return None
    if n == 1:
        return Difference(differences[0], None, None, n)
    return Difference(*t_interval(differences, level), n)


def verdict(difference: Difference | None) -> str:
    """Whether "the difference is above 0" holds: by its interval, and with no fewer than `FEWEST_SEEDS` pairs.

    Accuracies are counts of a few hundred texts, so the differences of all seeds can be equal by chance. There is then
    no spread to make an interval of, and no verdict.
    """
    if difference is None or difference.n < FEWEST_SEEDS:
        return NOT_RUN
    if math.isclose(difference.low, difference.high, abs_tol=1e-9):
        return OPEN
    return HOLDS if difference.low > 0 else FAILS if difference.high < 0 else OPEN


def t_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float, float]:
    """(mean, low, high) of two values or more, by Student's t."""
    mean = statistics.fmean(values)
    half = float(stats.t.ppf((1 + level) / 2, len(values) - 1) * stats.sem(values))
    return mean, mean - half, mean + half


def wilson(correct: int, n: int) -> tuple[float, float]:
    """The 95 % Wilson score interval of a share."""
    return tuple(stats.binomtest(int(correct), int(n)).proportion_ci(0.95, method="wilson"))


def interval(scores: pandas.DataFrame) -> tuple[float, float, float]:
    """(mean, low, high) in per cent, 95 %: Student's t over several runs, Wilson for a single one; within 0 to 100.

    Two runs get no interval, only their mean: by Student's t it would span nearly everything. `scores` has a row per
    run with its `accuracy` in per cent, and `correct` of `n`.
    """
    if len(scores) == 1:
        (run,) = scores.itertuples()
        low, high = wilson(run.correct, run.n)
        return float(run.accuracy), 100 * low, 100 * high
    if len(scores) < FEWEST_SEEDS:
        return (float(scores["accuracy"].mean()),) * 3
    mean, low, high = t_interval(list(scores["accuracy"]))
    return mean, max(0.0, low), min(100.0, high)


def spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation as text."""
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{deviation}"


def accuracy_by_label(metrics: dict) -> dict[str, float] | None:
    """Accuracy on the examples of each gold label, in per cent; None in records from before it was kept."""
    if "per_label" not in metrics:
        return None
    return {label: 100 * scores["accuracy"] for label, scores in sorted(metrics["per_label"].items())}


def balanced_accuracy(metrics: dict) -> float | None:
    """The mean of the accuracies on each gold label, in per cent."""
    by_label = accuracy_by_label(metrics)
    return None if by_label is None else statistics.fmean(by_label.values())

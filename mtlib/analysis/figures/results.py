"""Accuracy of arms on sets."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mtlib.analysis.figures import style
from mtlib.analysis.intervals import FEWEST_SEEDS, t_interval

_LETTER = 0.075  # width in inches
_BELOW = 0.28  # rows by which single seeds stand below their mean


@style.styled
def accuracy(
    scores: pandas.DataFrame,
    title: str = "",
    families: Mapping[str, str] | None = None,
) -> tuple[Figure, str]:
    """A row for each arm and a panel for each set: mean over seeds with its 95 % interval.

    Small circles are the seeds. Intervals are Student's t over three seeds or more. A thin line
    goes down from the first arm, for comparison; a dotted one stands at the best constant answer.

    Args:
        scores: rows of `analysis.frame.frame`, or of `Comparison.frame` without settings `by`.
        title: of the figure.
        families: the family of each arm, one of `FAMILIES`, which decides its colour and marker.
            None: a colour and marker for each arm.
    """
    arms = list(dict.fromkeys(scores["arm"]))
    scores = scores.dropna(subset="accuracy")
    seeds = scores.groupby("arm")["seed"].nunique()
    labels = [f"{arm} (n = {seeds[arm]})" for arm in arms]
    height = 0.7 + 0.27 * len(arms)
    figure, axes = style.panels(id_first(scores), 2.4, height, sharex=True, sharey=True)
    figure.set_figwidth(figure.get_figwidth() + _LETTER * max(map(len, labels)))
    looks = _looks(arms, families)
    words = {arm: [] for arm in arms}
    for (name, axis), (row, arm) in itertools.product(axes.items(), enumerate(arms)):
        runs = scores.loc[(scores["set"] == name) & (scores["arm"] == arm), "accuracy"]
        if len(runs):
            mean = _draw_arm(axis, row, arm, runs, looks[arm])
            words[arm].append(f"{name} {mean:.1f} %")
    for name, axis in axes.items():
        majority = scores.loc[scores["set"] == name, "majority"].dropna()
        if len(majority):
            look = {"ls": ":", "color": "0.5", "lw": 1.5}
            axis.axvline(majority.iloc[0], label="best constant answer", **look)
        style.rows_down(axis, labels, xlabel="accuracy, %")
    style.finish(figure, title, next(iter(axes.values())))
    return figure, style.sentence("Accuracy by evaluation set with 95 % intervals", words)


def _looks(arms: Sequence[str], families: Mapping[str, str] | None) -> dict[str, dict]:
    """How each arm is drawn; the first arm of a family stands for it in the legend."""
    if families is None:
        return {arm: style.series(row) | {"linestyle": ""} for row, arm in enumerate(arms)}
    looks = {}
    labelled = set()
    for arm in arms:
        family = families[arm]
        looks[arm] = style.family(family) | {"linestyle": ""}
        if family not in labelled:
            looks[arm]["label"] = family
            labelled.add(family)
    return looks


def _draw_arm(axis: Axes, row: int, arm: str, runs: pandas.Series, look: dict) -> float:
    """Draw the mean of an arm's runs with its interval, and below it the runs; return the mean."""
    mean, low, high = mean_with_interval(runs)
    if row == 0:
        axis.axvline(mean, color=look["color"], lw=1, alpha=0.6, label=arm)
    if len(runs) > 1:
        label = "seed" if row == 0 else None  # once in the legend
        circle = {"color": look["color"], "mfc": "white", "ms": 3.5}
        axis.plot(runs, [row + _BELOW] * len(runs), "o", label=label, **circle)
    axis.errorbar(mean, row, xerr=[[mean - low], [high - mean]], capsize=3, **look)
    return mean


def mean_with_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """(mean, low, high) with the 95 % interval, cut to 0 and 100.

    With too few values for an interval all three are the mean.
    """
    if len(values) < FEWEST_SEEDS:
        mean = float(np.mean(values))
        return mean, mean, mean
    mean, low, high = t_interval(list(values))
    return mean, max(low, 0.0), min(high, 100.0)


def id_first(scores: pandas.DataFrame) -> dict[str, str]:
    """The title of each set's panel, sets in distribution first."""
    kinds = scores.drop_duplicates("set").set_index("set")["kind"]
    names = sorted(kinds.index, key=lambda name: kinds[name] != "id")
    return {name: f"{name} ({kinds[name]})" for name in names}

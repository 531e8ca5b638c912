"""What runs scored: arms on sets, and curves over a setting."""

import itertools
from collections.abc import Sequence

import numpy as np
import pandas
from matplotlib.figure import Figure

from mtlib.analysis.figures import style
from mtlib.analysis.intervals import FEWEST_SEEDS, t_interval

_LETTER = 0.075  # width in inches
_BELOW = 0.28  # of a row: where single seeds stand, below their mean


@style.styled
def accuracy(scores: pandas.DataFrame, title: str = "", measure: str = "accuracy") -> tuple[Figure, str]:
    """A row for each arm and a panel for each set: mean over seeds, its 95 % interval, and the seeds as small circles.

    Intervals are Student's t over three seeds or more. A thin line goes down from the first arm, for comparison, a
    dotted one stands at the best constant answer.

    Args:
        scores: lines of `comparisons.frame`, or of `Comparison.frame` without settings `by`.
        title: of the figure.
        measure: a column of `scores` in per cent.
    """
    arms, scores = list(dict.fromkeys(scores["arm"])), scores.dropna(subset=measure)
    seeds = scores.groupby("arm")["seed"].nunique()
    labels = [f"{arm} (n = {seeds[arm]})" for arm in arms]
    figure, axes = style.panels(_id_first(scores), 2.4, 0.7 + 0.27 * len(arms), sharex=True, sharey=True)
    figure.set_figwidth(figure.get_figwidth() + _LETTER * max(map(len, labels)))
    words = {arm: [] for arm in arms}
    for (name, axis), (row, arm) in itertools.product(axes.items(), enumerate(arms)):
        runs = scores.loc[(scores["set"] == name) & (scores["arm"] == arm), measure]
        if len(runs):
            mean, low, high = _interval(runs)
            look = style.series(row) | {"linestyle": ""}
            if row == 0:
                axis.axvline(mean, color=look["color"], lw=1, alpha=0.6, label=arm)
            if len(runs) > 1:
                below, seed = [row + _BELOW] * len(runs), "seed" if row == 0 else None
                axis.plot(runs, below, "o", color=look["color"], mfc="white", ms=3.5, label=seed)
            axis.errorbar(mean, row, xerr=[[mean - low], [high - mean]], capsize=3, **look)
            words[arm].append(f"{name} {mean:.1f} %")
    for name, axis in axes.items():
        majority = scores.loc[scores["set"] == name, "majority"].dropna()
        if len(majority) and measure == "accuracy":
            axis.axvline(majority.iloc[0], ls=":", color="0.5", lw=1.5, label="best constant answer")
        style.rows_down(axis, labels, xlabel=f"{measure}, %")
    style.finish(figure, title, next(iter(axes.values())))
    return figure, style.sentence(f"{measure.capitalize()} by evaluation set with 95 % intervals", words)


@style.styled
def curve(scores: pandas.DataFrame, x: str, title: str = "", xlabel: str = "") -> tuple[Figure, str]:
    """Accuracy against `x`, a line for each arm and a panel for each set: mean over seeds with 95 % intervals.

    The values of `x` stand at equal distances; none (NaN) stands for "all", last.
    """
    places = {value: at for at, value in enumerate(sorted(scores[x].dropna().unique()))}
    ticks = [f"{value:g}" for value in places] + (["all"] if scores[x].isna().any() else [])
    arms, seeds = list(dict.fromkeys(scores["arm"])), scores.groupby(["arm", "set", x], dropna=False).size()
    figure, axes = style.panels(_id_first(scores), 3.4, 2.9, sharey=True)
    words = {}
    for (name, axis), (number, arm) in itertools.product(axes.items(), enumerate(arms)):
        of_arm = scores[(scores["set"] == name) & (scores["arm"] == arm)].groupby(x, dropna=False)["accuracy"]
        if points := [(places.get(value, len(places)), *_interval(runs)) for value, runs in of_arm]:
            at, mean, low, high = np.array(points).T
            aside = 0.06 * (number - (len(arms) - 1) / 2)
            n = " to ".join(map(str, sorted({seeds[arm].min(), seeds[arm].max()})))
            axis.errorbar(at + aside, mean, yerr=[mean - low, high - mean], capsize=2, ms=5, **style.series(number),
                          label=f"{arm} (n = {n})")  # fmt: skip
            words[f"{arm} on {name}"] = [f"{mean[0]:.3g} at first, {mean[-1]:.3g} at last"]
        axis.set_xticks(range(len(ticks)), ticks)
        axis.set_xlabel(xlabel or x)
    first = next(iter(axes.values()))
    first.set_ylabel("accuracy, %")
    style.finish(figure, title, first)
    return figure, style.sentence(f"accuracy against {xlabel or x}", words)


def _interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and its interval within 0 and 100; without one where there are too few."""
    if len(values) < FEWEST_SEEDS:
        return (float(np.mean(values)),) * 3
    mean, low, high = t_interval(list(values))
    return mean, max(low, 0.0), min(high, 100.0)


def _id_first(scores: pandas.DataFrame) -> dict[str, str]:
    """The title of each set's panel, sets in distribution first."""
    kinds = scores.drop_duplicates("set").set_index("set")["kind"]
    return {name: f"{name} ({kinds[name]})" for name in sorted(kinds.index, key=lambda name: kinds[name] != "id")}

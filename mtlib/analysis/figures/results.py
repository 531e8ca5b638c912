"""What runs scored: arms on sets, differences with the paper's claim, curves over a setting or over training."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import pandas
from matplotlib.figure import Figure

from mtlib.analysis.comparisons import Comparison
from mtlib.analysis.figures import style
from mtlib.analysis.intervals import FEWEST_SEEDS, t_interval, wilson
from mtlib.errors import UserError

_LETTER = 0.075  # width in inches
_STAR = {"color": "black", "marker": "*", "ms": 12, "mec": "white", "ls": "", "zorder": 5}
_BELOW = 0.28  # of a row: where single seeds stand, below their mean


@style.styled
def accuracy(scores: pandas.DataFrame, title: str = "", measure: str = "accuracy") -> tuple[Figure, str]:
    """A row for each arm and a panel for each set: mean over seeds, its 95 % interval, and the seeds as small circles.

    Intervals are Student's t over three seeds or more; where every arm has one run, Wilson's over test examples. A thin
    line goes down from the first arm, for comparison, a dotted one stands at the best constant answer.

    Args:
        scores: lines of `comparisons.frame`, or of `Comparison.frame` without settings `by`.
        title: of the figure.
        measure: a column of `scores` in per cent.
    """
    arms, sets = list(dict.fromkeys(scores["arm"])), _id_first(scores)
    seeds = scores.groupby("arm")["seed"].nunique()
    labels = [f"{arm} (n = {seeds[arm]})" for arm in arms]
    figure, axes = _rows(labels, sets, sharex=True)
    single, words = (seeds == 1).all(), {arm: [] for arm in arms}
    for name, axis in axes.items():
        on_set = scores[scores["set"] == name].dropna(subset=measure)
        if on_set["majority"].notna().any() and measure == "accuracy":
            axis.axvline(on_set["majority"].iloc[0], ls=":", color="0.5", lw=1.5, label="best constant answer")
        for row, arm in enumerate(arms):
            runs = on_set[on_set["arm"] == arm]
            if runs.empty:
                continue
            mean, low, high = _interval(runs, measure, single)
            look = style.series(row) | {"linestyle": ""}
            if row == 0:
                axis.axvline(mean, color=look["color"], lw=1, alpha=0.6, label=arm)
            if len(runs) > 1:
                below = [row + _BELOW] * len(runs)
                axis.plot(runs[measure], below, "o", color=look["color"], mfc="white", ms=3.5, label=_once(row, "seed"))
            axis.errorbar(mean, row, xerr=[[mean - low], [high - mean]], capsize=3, **look)
            words[arm].append(f"{name} {mean:.1f} %")
    for axis in axes.values():
        style.rows_down(axis, labels, xlabel=f"{measure}, %")
    style.finish(figure, title, next(iter(axes.values())))
    return figure, style.sentence(f"{measure.capitalize()} by evaluation set with 95 % intervals", words)


@style.styled
def differences(
    comparison: Comparison, title: str = "", sets: Sequence[str] = (), arms: Sequence[str] = ()
) -> tuple[Figure, str]:
    """Each arm's difference to the base with the interval that decides, a panel for each set; a star: the paper's.

    Hollow where there is no verdict. Args: some of the comparison's sets and arms; default all.
    """
    shifts = comparison.differences().query("change == ''").dropna(subset="low")
    shifts = shifts[shifts["set"].isin(sets or {*shifts["set"]}) & shifts["arm"].isin(arms or {*shifts["arm"]})]
    if shifts.empty:
        raise UserError(f"comparison {comparison.name} has no difference to show; expected a base and two seeds of it.")
    shown, words = list(dict.fromkeys(shifts["arm"])), {}
    labels = [f"{arm} (n = {shifts.loc[shifts['arm'] == arm, 'n'].max()})" for arm in shown]
    figure, axes = _rows(labels, _id_first(shifts))
    for line in shifts.itertuples():
        axis, row, look = axes[line.set], shown.index(line.arm), style.series(shown.index(line.arm))
        bar = [[line.mean - line.low], [line.high - line.mean]]
        hollow = {"mfc": "white"} if line.verdict.startswith(("no verdict", "too few")) else {}
        axis.errorbar(line.mean, row, xerr=bar, capsize=3, **look | {"linestyle": ""}, **hollow)
        if not pandas.isna(line.paper):
            axis.plot(line.paper, row, **_STAR)
        claimed = "" if pandas.isna(line.paper) else f" (the paper {line.paper:+.1f}: {line.claim})"
        words.setdefault(line.arm, []).append(f"{line.set} {line.mean:+.1f}{claimed}")
    for axis in axes.values():
        axis.axvline(0, color="0.3", lw=0.8)
        style.rows_down(axis, labels, xlabel="points (right of 0: better)")
    first = next(iter(axes.values()))
    if shifts["paper"].notna().any():
        first.plot([], [], **_STAR, label="the paper's difference")
    if shifts["verdict"].str.startswith(("no verdict", "too few")).any():
        first.plot([], [], "o", color="0.3", mfc="white", ls="", label="no verdict (see the table)")
    style.finish(figure, title or f"Differences to {comparison.base}", first)
    return figure, style.sentence(f"Differences to {comparison.base} in points", words)


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
        of_arm = scores[(scores["set"] == name) & (scores["arm"] == arm)]
        points = [(places.get(value, len(places)), *_interval(runs, "accuracy"))
                  for value, runs in of_arm.groupby(x, dropna=False)]  # fmt: skip
        if points:
            at, mean, low, high = np.array(points).T
            aside = 0.06 * (number - (len(arms) - 1) / 2)
            axis.errorbar(at + aside, mean, yerr=[mean - low, high - mean], capsize=2, ms=5, **style.series(number),
                          label=f"{arm} (n = {_range(seeds[arm])})")  # fmt: skip
            words[f"{arm} on {name}"] = [f"{mean[0]:.3g} at first, {mean[-1]:.3g} at last"]
        axis.set_xticks(range(len(ticks)), ticks)
        axis.set_xlabel(xlabel or x)
    first = next(iter(axes.values()))
    first.set_ylabel("accuracy, %")
    style.finish(figure, title, first)
    return figure, style.sentence(f"accuracy against {xlabel or x}", words)


@style.styled
def _rows(labels: Sequence[str], sets: Mapping[str, str], **kwargs) -> tuple[Figure, dict]:
    """A panel for each set with room for a row for each label."""
    figure, axes = style.panels(sets, 2.4, 0.7 + 0.27 * len(labels), sharey=True, **kwargs)
    figure.set_figwidth(figure.get_figwidth() + _LETTER * max(map(len, labels)))
    return figure, axes


def _interval(runs: pandas.DataFrame, measure: str, single: bool = False) -> tuple[float, float, float]:
    values = list(runs[measure])
    if single and len(values) == 1 and measure == "accuracy":
        low, high = wilson(runs["correct"].iloc[0], runs["n"].iloc[0])
        return values[0], 100 * low, 100 * high
    if len(values) < FEWEST_SEEDS:
        return (float(np.mean(values)),) * 3
    mean, low, high = t_interval(values)
    return mean, max(low, 0.0), min(high, 100.0)


def _id_first(scores: pandas.DataFrame) -> dict[str, str]:
    """The title of each set's panel, sets in distribution first."""
    kinds = scores.drop_duplicates("set").set_index("set")["kind"]
    return {name: f"{name} ({kinds[name]})" for name in sorted(kinds.index, key=lambda name: kinds[name] != "id")}


def _range(numbers: pandas.Series) -> str:
    return " to ".join(map(str, sorted({numbers.min(), numbers.max()})))


def _once(row: int, label: str) -> str | None:
    return label if row == 0 else None

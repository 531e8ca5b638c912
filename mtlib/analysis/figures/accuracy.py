"""Accuracy by evaluation set, by group of one set, and against a setting."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas
from matplotlib.figure import Figure

from mtlib.analysis.figures import style
from mtlib.analysis.frame import common_sets, frame, frame_of_groups, in_order
from mtlib.analysis.statistics import FEWEST_SEEDS, interval
from mtlib.analysis.tables import Table
from mtlib.data.tasks import kind
from mtlib.errors import UserError
from mtlib.runs.records import examples_used


@style.styled
def gap(records: Sequence[dict], title: str = "", name: Callable[[dict], str] | None = None) -> tuple[Figure, str]:
    """Accuracy on the sets that all records have, one marker per row; in distribution first, then out of it.

    Up to five rows share a line for each set. More are named at the left, beside a panel for each set, in which a thin
    line goes down from the first row, for comparison.

    Runs that differ in more than their seed are rows of their own, and small circles are their seeds. Bars are 95 %
    intervals over three seeds or more (Student's t). If every row is a single run, they are those of its proportion
    (Wilson); beside rows with several seeds a single run has none, since a narrow Wilson interval would make it look
    the most certain.

    Args:
        name: what a run's row is called, by its configuration; rows then stand in the order of the records.
    """
    scores, sets = frame(records, name), style.id_first(common_sets(records))
    marks = _marks(scores, "set")
    if name:
        in_turn = dict.fromkeys(name(record["config"]) for record in records)
        marks["row"] = pandas.Categorical(marks["row"], [row for row in in_turn if row in {*marks["row"]}])
    constant = scores.groupby("set")["majority"].first()[sets]
    lowest = min(constant.min(), *marks["low"], *(min(seeds) for seeds in marks["seeds"]))
    shared = {"xlabel": "accuracy, %", "xlim": _PER_CENT if lowest < 42 else (40, _PER_CENT[1])}
    if marks["row"].nunique() <= _MOST_IN_A_LINE:
        figure = _lines_of_sets(marks, constant, title, shared)
    else:
        figure = _panels_of_sets(marks, constant, title, shared)
    words = {row: [f"{name} {group.loc[name, 'mean']:.1f} %" for name in sets] for row, group in _by_row(marks)}
    return figure, style.sentence("Accuracy by evaluation set with 95 % intervals", words)


@style.styled
def differences(table: Table, title: str = "") -> tuple[Figure, str]:
    """Every row's difference to fine-tuning, paired by seed, with its 95 % t interval."""
    pairs = [(row.name, column, table.difference(row, column)) for row in table.rows for column in table.columns]
    cells = [
        (row, column, pair.mean, pair.mean if pair.low is None else pair.low,
         pair.mean if pair.high is None else pair.high, pair.n, [])
        for row, column, pair in pairs if pair
    ]  # fmt: skip
    if not cells:
        raise UserError("no difference to show; expected fine-tuning and another method on the same seeds and budget.")
    marks = pandas.DataFrame(cells, columns=_MARK)
    figure, axis = _draw(marks, table.columns)
    axis.axvline(0, color="0.3", lw=0.8)
    lines = map(style.with_kind, table.columns)
    style.rows_down(axis, lines, xlabel="difference to fine-tuning, points (right of 0: better)", title=title)
    axis.margins(x=0.08)
    style.legend_below(figure, style.labelled(axis))
    words = {row: [f"{name} {mean:+.1f}" for name, mean in group["mean"].items()] for row, group in _by_row(marks)}
    return figure, style.sentence("Paired differences to fine-tuning in points", words)


@style.styled
def group_means(records: Sequence[dict], set_name: str, title: str = "") -> tuple[Figure, str]:
    """Accuracy by group of one set, a marker per row of records: mean over seeds with 95 % intervals."""
    scores = frame_of_groups(records, set_name)
    sizes, marks = scores.groupby("group", sort=False)["n"].first(), _marks(scores, "group")
    figure, axis = _draw(marks, list(sizes.index))
    labels = [f"{name} (n = {n})" for name, n in sizes.items()]
    style.rows_down(axis, labels, xlabel="accuracy, %", title=title, xlim=_PER_CENT)
    style.legend_below(figure, style.labelled(axis))
    words = {
        row: [f"{name} {means[name]:.0f} %" for name in (means.idxmin(), means.idxmax())]
        for row, means in ((row, group["mean"]) for row, group in _by_row(marks))
    }
    return figure, style.sentence(f"{set_name} by group, each method's lowest and highest", words)


@style.styled
def curve(points: Mapping[float, Sequence[dict]], name: str, title: str = "") -> tuple[Figure, str]:
    """Accuracy on the sets that all records have, against the setting `name`: mean over seeds, 95 % interval.

    Where one label of a set is common, so that accuracy rewards giving it often, balanced accuracy stands beside it.
    """
    values = sorted(points)
    sets = common_sets([record for records in points.values() for record in records])
    scores = pandas.concat([frame(points[value]).assign(value=value) for value in values])
    figure, (axis,) = style.new(7.0, 3.6)
    places, words = np.arange(len(values)), {}
    for place, of in enumerate(sets):
        on_set, look = scores[scores["set"] == of], style.look_of_place(place, style.with_kind(of))
        means, lows, highs = np.array([interval(group) for _, group in on_set.groupby("value")]).T
        style.line(axis, places, (means, lows, highs), look, place, len(sets), look.label)
        words[of] = [f"{mean:.0f} % at {value:g}" for value, mean in zip(values, means, strict=True)]
        if all(_uneven(score) for score in on_set.itertuples()):
            means = on_set.groupby("value")["balanced"].mean()
            hollow = style.series(place) | {"linestyle": ":", "markerfacecolor": "white"}
            beside = style.aside(axis, place, len(sets))
            axis.plot(places, means, **hollow, transform=beside, label=f"{of}, balanced accuracy")
            words[f"{of}, balanced"] = [f"{mean:.0f} % at {value:g}" for value, mean in means.items()]
    axis.set_xticks(places, [f"{value:g}" for value in values])  # a grid is rarely even: equal steps, true labels
    axis.set(xlim=(-0.4, len(values) - 0.6))
    axis.set(ylim=(0, 100), xlabel=f"{name} (not to scale)", ylabel="accuracy, %", title=title)
    figure.legend(loc="outside lower center", ncols=2)
    return figure, style.sentence(f"Accuracy against {name}", words)


@style.styled
def against_size(records: Sequence[dict], title: str = "") -> tuple[Figure, str]:
    """Accuracy against the number of training examples, a panel for each evaluation set, a line per arm.

    Mean over seeds with its 95 % interval by Student's t; hollow and without one where there are fewer than three
    seeds. Where every arm has one run, its interval is over test examples (Wilson). All runs have equally many epochs,
    so that the steps grow with the examples; both stand below the axis. Learning rates tell no arms apart that differ
    in their update.
    """
    by_size, steps = defaultdict(list), {}
    for record in records:
        size = examples_used(record["data"]["train"])
        by_size[size].append(record)
        steps[size] = record["cost"]["steps"]
    sizes = sorted(steps)
    scores = pandas.concat(frame(by_size[size]).assign(size=size) for size in sizes)
    sets, arms = style.id_first(common_sets(records)), style.looks(in_order(scores["row"]))
    figure, axes = style.new(3.0 * len(sets) + 0.6, 3.6, len(sets), sharey=True)
    words = {}
    few = (scores.groupby(["set", "row", "size"]).size() < FEWEST_SEEDS) & (scores["seed"].nunique() > 1)
    for axis, of in zip(axes, sets, strict=True):
        for place, (arm, look) in enumerate(arms.items()):
            of_arm = scores[(scores["set"] == of) & (scores["row"] == arm)].groupby("size")
            means, lows, highs = np.array([interval(group) for _, group in of_arm]).T
            at = np.array([sizes.index(size) for size in of_arm.groups])
            style.line(axis, at, (means, lows, highs), look, place, len(arms), look.label, few[of, arm].to_numpy())
            words[f"{arm} on {of}"] = [f"{mean:.0f} % at {n:,}" for n, mean in zip(of_arm.groups, means, strict=True)]
        axis.set_xticks(range(len(sizes)), [f"{size:,}\n({steps[size]:,})" for size in sizes])
        axis.set(xlim=(-0.4, len(sizes) - 0.6), xlabel="training examples (steps)", title=style.with_kind(of))
    if few.any():
        axes[0].plot([], [], "o", color="0.4", mfc="white", label="hollow: fewer than three seeds, no interval")
    axes[0].set_ylabel("accuracy, %")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    style.legend_below(figure, style.labelled(axes[0]))
    return figure, style.sentence("Accuracy against the number of training examples", words)


_MOST_IN_A_LINE = 5  # rows
_PER_CENT = (-2, 102)  # with room for a marker at either end
_CONSTANT = {"ls": ":", "color": "0.5", "lw": 1.5}
_MARK = ["row", "line", "mean", "low", "high", "n", "seeds"]  # seeds: single values, where they are to be drawn


def _marks(scores: pandas.DataFrame, line: str) -> pandas.DataFrame:
    """Mean and interval of every row on every line (a set or a group), over `n` seeds."""
    cells = scores.groupby(["row", line], sort=False)
    marks = pandas.DataFrame(
        [(*cell, *interval(group), len(group), list(group["accuracy"])) for cell, group in cells], columns=_MARK
    )
    single = marks["n"] == 1
    if not single.all():  # a Wilson interval says nothing about other seeds
        marks.loc[single, "low"] = marks.loc[single, "high"] = marks.loc[single, "mean"]
    return marks


def _by_row(marks: pandas.DataFrame):
    categorical = isinstance(marks["row"].dtype, pandas.CategoricalDtype)
    rows = marks["row"].cat.categories if categorical else in_order(marks["row"])
    return [(row, marks[marks["row"] == row].set_index("line")) for row in rows]


def _lines_of_sets(marks: pandas.DataFrame, constant: pandas.Series, title: str, shared: Mapping) -> Figure:
    sets = list(constant.index)
    figure, axis = _draw(marks, sets)
    for line, accuracy in enumerate(constant):
        axis.plot([accuracy, accuracy], [line - 0.35, line + 0.35], **_CONSTANT,
                  label="best constant answer" if line == 0 else None)  # fmt: skip
    axis.axhline(sum(kind(name) == "id" for name in sets) - 0.5, color="0.3", lw=0.8)
    style.rows_down(axis, map(style.with_kind, sets), title=title, **shared)
    style.legend_below(figure, style.labelled(axis))
    return figure


def _panels_of_sets(marks: pandas.DataFrame, constant: pandas.Series, title: str, shared: Mapping) -> Figure:
    by_row = _by_row(marks)
    shown = style.looks([row for row, _ in by_row])
    labels = [f"{shown[row].label} (n = {group['n'].max()})" for row, group in by_row]
    columns, lines = min(3, len(constant)), -(-len(constant) // 3)
    size = 0.07 * max(map(len, labels)) + 2.2 * columns, 0.7 + lines * (0.8 + 0.26 * len(by_row))
    figure, axes = style.new(*size, columns, lines, sharex=True, sharey=True)
    for axis in axes[len(constant) :]:
        axis.remove()
    axes = axes[: len(constant)]
    for axis, (name, accuracy) in zip(axes, constant.items(), strict=True):
        axis.axvline(accuracy, **_CONSTANT, label="best constant answer")
        (first, of_first), *_ = by_row
        axis.axvline(of_first.loc[name, "mean"], color=shown[first].colour, lw=1, alpha=0.6, label=shown[first].label)
        for line, (row, group) in enumerate(by_row):
            (mark,) = group.loc[[name]].itertuples()
            _draw_mark(axis, mark, line, shown[row], seeds_below=0.26)
        axis.set_title(f"{name}\n({kind(name)})", fontsize=9)
    for axis in axes:
        style.rows_down(axis, labels, **shared)
        axis.tick_params(labelbottom=True)  # what stands below may have been removed
    axes[0].plot([], [], "o", color="0.3", **style.OF_A_SEED, label="a single seed")
    style.legend_below(figure, style.labelled(axes[0]))
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def _draw(marks: pandas.DataFrame, lines: Sequence[str]):
    """A figure with a line for each of `lines`, 1 apart, and on it a marker and an interval for each row of `marks`."""
    by_row = _by_row(marks)
    with_seeds = any(len(seeds) > 1 for seeds in marks["seeds"])
    of_a_line = max(0.5, 0.18 * len(by_row)) if with_seeds else max(0.42, 0.1 * len(by_row))
    figure, (axis,) = style.new(7.0, 1.1 + of_a_line * len(lines) + 0.1 * len(by_row))
    apart, shown = min(0.4 if with_seeds else 0.16, 0.8 / len(by_row)), style.looks([row for row, _ in by_row])
    for place, (row, group) in enumerate(by_row):
        group, look = group[group.index.isin(lines)], shown[row]
        for mark in group.itertuples():
            at = lines.index(mark.Index) + apart * (place - (len(by_row) - 1) / 2 - 0.2 * with_seeds)
            name = f"{look.label} (n = {mark.n})" if mark.Index == group.index[0] else None
            _draw_mark(axis, mark, at, look, name, seeds_below=0.4 * apart)
    if with_seeds:
        axis.plot([], [], "o", color="0.3", **style.OF_A_SEED, label="a single seed")
    return figure, axis


def _draw_mark(axis, mark, at: float, look: style.Look, label: str | None = None, seeds_below: float = 0.0) -> None:
    """Mean and interval at this height, and below them small circles for the seeds where there are several."""
    if len(mark.seeds) > 1:
        axis.plot(mark.seeds, [at + seeds_below] * len(mark.seeds), "o", color=look.colour, **style.OF_A_SEED)
    axis.errorbar(
        mark.mean, at, capsize=3,
        xerr=[[mark.mean - mark.low], [mark.high - mark.mean]], marker=look.marker, ms=look.size, ls="",
        color=look.colour, label=label,
    )  # fmt: skip


def _uneven(score) -> bool:
    """Whether a set's commonest label is more than a fifth above an even share."""
    return isinstance(score.by_label, dict) and score.majority / 100 * len(score.by_label) > 1.2

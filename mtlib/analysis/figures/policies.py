"""What masking policies do: one sentence under each, how alike their masks are, and the gap against what they touch."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas
import seaborn
from matplotlib.figure import Figure

from mtlib.analysis.figures import style
from mtlib.analysis.masks_of_policies import most_alike
from mtlib.analysis.policies import FINE_TUNING, label, points, seeds_in_words
from mtlib.analysis.policy_names import PolicyAtRate

_ROLES = {"shortcut": (style.PALETTE[1], "//"), "cause": (style.PALETTE[0], "..")}  # colour, hatching
_ROLE_WORDS = {"shortcut": "carries the shortcut", "cause": "word of opinion"}
_LETTER = 0.072  # width in inches
_APART = 6.0  # points between markers that stand side by side
_SEEDS_RIGHT = 0.6  # marker widths


@style.styled
def sentence(
    tokens: Sequence[str], roles: Sequence[str], rows: Mapping[str, Sequence[str | None]], title: str = ""
) -> tuple[Figure, str]:
    """One sentence under several policies, a row for each: masked tokens are boxes with the word filled in.

    Args:
        tokens: of the original.
        roles: of each token, "shortcut", "cause" or "": shades its column.
        rows: for each policy and token what was filled in, None where it is not masked.
    """
    widths = [max(len(token), *(len(row[i] or "") for row in rows.values())) + 1.5 for i, token in enumerate(tokens)]
    starts = [sum(widths[:i]) for i in range(len(tokens))]
    figure, (axis,) = style.new(1.9 + _LETTER * sum(widths), 0.9 + 0.27 * (len(rows) + 1))
    for role, (colour, hatch) in _ROLES.items():
        for i in [i for i, other in enumerate(roles) if other == role]:
            axis.axvspan(starts[i] - 0.4, starts[i] + widths[i] - 0.9, color=colour, alpha=0.16, hatch=hatch, lw=0)
        axis.bar(0, 0, color=colour, alpha=0.3, hatch=hatch, label=_ROLE_WORDS[role])
    box = {"boxstyle": "round,pad=0.12", "facecolor": "black", "edgecolor": "black"}
    for line, row in enumerate([[None] * len(tokens), *rows.values()]):
        for i, filled in enumerate(row):
            look = {"color": "black" if line == 0 else "0.4"} if filled is None else {
                "color": "white", "bbox": box, "weight": "bold"}  # fmt: skip
            axis.text(starts[i], line, filled or tokens[i], va="center", fontsize=8, family="monospace", **look)
    axis.bar(0, 0, color="black", label="masked, and what was filled in")
    style.rows_down(axis, ["original", *rows], title=title, xlim=(-0.8, sum(widths)))
    axis.set_xticks([])
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)
    axis.tick_params(left=False)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    words = {
        name: [f"{tokens[i]} became {filled}" for i, filled in enumerate(row) if filled is not None]
        or ["nothing masked"]
        for name, row in rows.items()
    }
    return figure, style.sentence(f"What each policy masks in: {' '.join(tokens)}", words)


@style.styled
def masks_overlap(masks: Mapping, title: str = "") -> tuple[Figure, str]:
    """How alike the masks of each two policies are: places that both mask, in per cent of those that either does."""
    names = {name: label(name) for name in masks["policies"]}
    shares = pandas.DataFrame(np.nan, list(names.values())[1:], list(names.values())[:-1])
    for pair, share in masks["overlap"].items():
        earlier, later = pair.split()
        shares.loc[names[later], names[earlier]] = 100 * share
    figure, (axis,) = style.new(2.4 + 0.42 * len(names), 1.6 + 0.32 * len(names))
    seaborn.heatmap(shares, ax=axis, vmin=0, vmax=100, cmap="Blues", annot=True, fmt=".0f", annot_kws={"size": 8},
                    linewidths=0.5, cbar=False)  # fmt: skip
    axis.set_title(title)
    axis.grid(visible=False)
    axis.tick_params(labelsize=8, length=0)
    axis.set_xticks(axis.get_xticks(), axis.get_xticklabels(), rotation=40, ha="right", rotation_mode="anchor")
    nearest = {
        name: [f"most like {other} ({100 * share:.0f} %)"]
        for name, (other, share) in most_alike(masks).items()
        if share >= 0.1
    }
    return figure, style.sentence("Places that two policies both mask, in per cent of those that either does", nearest)


@style.styled
def gap_by_touch(
    records: Sequence[dict], masks: Mapping, title: str = "", method: str = "mask_tuning"
) -> tuple[Figure, str]:
    """The gap in accuracy against the share of examples whose shortcut was masked, a marker for each policy and rate.

    On the left the share in which some of the shortcut's tokens were masked, on the right all of them, on an axis that
    is logarithmic above 1 %. Hollow: the arm is more than two points below fine-tuning in distribution. Bars: 95 % over
    seeds by Student's t, where there are three seeds or more; small circles: the seeds. Markers that would hide each
    other stand side by side, with a line to their true place.
    """
    arms = points(records, masks, method)
    shown = arms[arms["touched"].notna()] if len(arms) else arms
    seeds = seeds_in_words(shown["n"] if len(shown) else [])
    figure, axes = style.new(8.0, 4.6, 2, sharey=True)
    looks = style.of_policies(_in_turn(masks))
    top = max(shown["gap"].max(), shown["high"].astype(float).max(skipna=True) or 0, 10)
    axes[0].set(ylim=(min(0, shown["gap"].min()) - 4, 1.08 * top), ylabel="gap: in minus out\nof distribution, points")
    moved = False
    for axis, column, words in zip(axes, ("touched", "gone"), ("some of the shortcut", "all of it"), strict=True):
        axis.set(xlim=(-6, 118), xticks=range(0, 101, 20), xlabel=f"examples with {words} masked, %")
        if column == "gone":  # most policies hide all of it in a few per cent, and one in 100
            axis.set_xscale("symlog", linthresh=1)
            axis.set(xlim=(-0.3, 150), xticks=(ticks := (0, 1, 3, 10, 30, 100)), xticklabels=ticks)
            axis.set_xlabel(f"{axis.get_xlabel()}\n(log scale above 1)")
            axis.minorticks_off()
        beside = _side_by_side(axis, shown[[column, "gap"]].to_numpy(float))
        moved = moved or any(beside)
        for (name, point), columns in zip(shown.iterrows(), beside, strict=True):
            if columns:
                axis.annotate("", (point[column], point["gap"]), (columns * _APART, 0), textcoords="offset points",
                              arrowprops={"arrowstyle": "-", "color": "0.6", "lw": 0.8})  # fmt: skip
            _mark(axis, name, point, column, looks[_policy_and_rate(name)[0]], columns)
    handles, labels = axes[0].get_legend_handles_labels()
    note = "markers that would hide each other stand side by side; a line leads to their place" if moved else None
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, title=note, title_fontsize=8)
    figure.suptitle(f"{title} ({seeds})", x=0.01, ha="left", fontsize=11)
    return figure, style.sentence("Gap by arm, in points", {label(name): _told(p) for name, p in shown.iterrows()})


def _side_by_side(axis, values: np.ndarray) -> list[int]:
    """By how many marker widths each of the points `(n, 2)` moves aside, so that none hides an earlier one."""
    figure = axis.figure
    size = 72 * axis.get_position().size * figure.get_size_inches()  # in points; the layout changes little
    places, moves = [], []
    for place in (axis.transScale + axis.transLimits).transform(values) * size:
        for move in range(len(values)):
            moved = place + np.array([move * _APART, 0])
            if all(np.abs(moved - other).max() >= _APART for other in places):
                break
        places.append(moved)
        moves.append(move)
    return moves


def _mark(axis, name: str, point: pandas.Series, column: str, look: Mapping, columns: int) -> None:
    """A marker, so many of its widths aside, and right of it its seeds."""
    bar = None if pandas.isna(point["low"]) else [[point["gap"] - point["low"]], [point["high"] - point["gap"]]]
    if len(point["gaps"]) > 1:
        at = [point[column]] * len(point["gaps"])
        right = style.aside(axis, columns + _SEEDS_RIGHT, 1, _APART)
        axis.plot(at, point["gaps"], "o", color=look["color"], mfc="none", ms=2.5, mew=0.7, transform=right)
    size = 4 + 8 * min(_policy_and_rate(name)[1], 0.3) ** 0.5
    size *= 1.5 if isinstance(look["marker"], tuple) else 1  # stars have thin points
    axis.errorbar(
        point[column], point["gap"], yerr=bar, capsize=3, ms=size, **look, ls="",
        markerfacecolor=look["color"] if point["trained"] in (True, None) else "white",
        label=f"{label(name)} (n = {point['n']:.0f})", transform=style.aside(axis, columns, 1, _APART),
    )  # fmt: skip


def _told(point: pandas.Series) -> list[str]:
    hollow = [] if point["trained"] in (True, None) else ["behind in distribution"]
    return [f"gap {point['gap']:.0f}", f"shortcut touched in {point['touched']:.0f} %, gone in {point['gone']:.0f} %",
            f"n = {point['n']:.0f}", *hollow]  # fmt: skip


def _in_turn(masks: Mapping) -> list[str]:
    """Policies in the order in which they take their looks."""
    return list(dict.fromkeys([FINE_TUNING, *(_policy_and_rate(name)[0] for name in masks["policies"])]))


def _policy_and_rate(name: str) -> tuple[str, float]:
    """Of an arm; what has no rate is drawn like 5 %."""
    policy, rate = (name, None) if name == FINE_TUNING else PolicyAtRate.parse(name)
    return policy, 0.05 if rate is None else rate

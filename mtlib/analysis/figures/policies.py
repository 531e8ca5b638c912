"""What masking policies do: one sentence under each, how alike their masks are, and the gap against what they touch."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas
import seaborn
from matplotlib.figure import Figure

from mtlib.analysis.figures import style
from mtlib.analysis.mask_tables import most_alike
from mtlib.analysis.policies import label, points, seeds_in_words

_ROLES = {"shortcut": (style.PALETTE[1], "//"), "cause": (style.PALETTE[0], "..")}  # colour, hatching
_ROLE_WORDS = {"shortcut": "carries the shortcut", "cause": "word of opinion"}
_LETTER = 0.072  # width in inches
_BELOW = 0.3  # of a row: where seeds stand, below their mean
_OF_A_SEED = style.OF_A_SEED | {"ms": 2.5}


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
    """The gap in accuracy beside the share of examples whose shortcut was masked, a row for each policy and rate.

    The more often a row touches the shortcut, the further down it stands. On the left the share of examples in which
    some, and in which all, of the shortcut's tokens were masked. On the right the gap, hollow where the arm is more
    than two points below fine-tuning in distribution. Bars: 95 % over seeds by Student's t, where there are three seeds
    or more; small circles: the seeds.
    """
    arms = points(records, masks, method)
    shown = arms[arms["touched"].notna()].sort_values(["touched", "gone"], kind="stable") if len(arms) else arms
    seeds = seeds_in_words(shown["n"] if len(shown) else [])
    figure, (touch, gap) = style.new(8.0, 1.7 + 0.25 * len(shown), 2, sharey=True)
    rows = range(len(shown))
    for column, words, look in (("touched", "some of the shortcut", style.bar(1)), ("gone", "all of it", style.bar(0))):
        touch.barh(rows, shown[column], 0.7, **look, label=f"{words} masked")
    style.rows_down(touch, [label(name) for name in shown.index], xlabel="examples, %", xlim=(0, 105))
    for row, point in zip(rows, shown.itertuples(), strict=True):
        _mark(gap, row, point)
    gap.set(xlim=(min(0, shown["gap"].min()) - 4, None), xlabel="gap: accuracy in minus\nout of distribution, points")
    gap.tick_params(left=False)
    style.legend_below(figure, style.labelled(touch) | style.labelled(gap))
    figure.suptitle(f"{title} ({seeds})", x=0.01, ha="left", fontsize=11)
    return figure, style.sentence("Gap by arm, in points", {label(name): _told(p) for name, p in shown.iterrows()})


def _mark(axis, row: int, point) -> None:
    """The gap of an arm with its interval, and its seeds a little below."""
    behind = point.trained is False
    bar = None if pandas.isna(point.low) else [[point.gap - point.low], [point.high - point.gap]]
    axis.errorbar(point.gap, row, xerr=bar, fmt="o", color="black", mfc="white" if behind else "black", ms=5.5,
                  capsize=3, label="gap; behind in distribution" if behind else "gap")  # fmt: skip
    if len(point.gaps) > 1:
        axis.plot(point.gaps, [row + _BELOW] * len(point.gaps), "o", color="0.4", **_OF_A_SEED, label="one seed")


def _told(point: pandas.Series) -> list[str]:
    hollow = [] if point["trained"] in (True, None) else ["behind in distribution"]
    return [f"gap {point['gap']:.0f}", f"shortcut touched in {point['touched']:.0f} %, gone in {point['gone']:.0f} %",
            f"n = {point['n']:.0f}", *hollow]  # fmt: skip

"""What happens over training: losses, gradients, single examples."""

from collections.abc import Mapping, Sequence
from textwrap import fill

import numpy as np
import pandas
from matplotlib.figure import Figure

from mtlib.analysis.figures import style
from mtlib.analysis.frame import by_row
from mtlib.errors import UserError


@style.styled
def learning_curves(
    records: Sequence[dict], parts: Sequence[str] = ("ft_loss",), title: str = "", labels: int = 0
) -> tuple[Figure, str]:
    """Parts of the loss over training, a line per run and a thick one for their mean, a panel per part.

    One part of more than four rows has a panel for each row. With the number of `labels` a dotted line stands at the
    classification loss of guessing, ln of that number.
    """
    rows = by_row(records)
    shown, words, lines = style.looks(list(rows)), [], {}
    curves = {(part, row): _smooth(_logged(runs, part)) for part in parts for row, runs in rows.items()}
    curves = {key: smooth for key, smooth in curves.items() if not smooth.empty}  # not every method has every part
    apart = len(parts) == 1 and len(curves) > 4
    figure, axes = _small_panels(len(curves)) if apart else style.new(7.0, 3.4, len(parts))
    for number, ((part, row), smooth) in enumerate(curves.items()):
        axis = axes[number if apart else list(parts).index(part)]
        dashes = style.LINES[0 if apart else list(rows).index(row) % 4]
        mean, name = smooth.mean(axis="columns"), f"{shown[row].label} (n = {len(rows[row])})"
        axis.plot(smooth, color=shown[row].colour, alpha=0.3, lw=0.8)
        (lines[name],) = axis.plot(mean, dashes, color=shown[row].colour, lw=2)
        if apart:
            unbroken = name.replace(" = ", "\u00a0=\u00a0")
            axis.set_title(fill(unbroken, 26), fontsize=9)
        words.append(f"{part} of {row} from {mean.iloc[0]:.2f} to {mean.iloc[-1]:.2f}")
    shown_lines = {} if apart else lines
    for axis in axes:
        axis.set(ylim=(0, None), xlabel="optimiser step")
    for axis, part in zip(axes, parts, strict=False):  # small panels share the label of the first
        axis.set_ylabel(f"{part}, nats\n(running mean)")
    if labels:
        for axis in axes if apart else axes[[part == "ft_loss" for part in parts]]:
            guessing = axis.axhline(np.log(labels), ls=":", color="0.5", lw=1.5, zorder=0)
        shown_lines = shown_lines | {f"guessing among {labels} labels (ln {labels})": guessing}
    if shown_lines:  # else no run has any of these parts
        style.legend_below(figure, shown_lines)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure, f"Training losses, running means: {'; '.join(words)}."


@style.styled
def gradients(records: Sequence[dict], title: str = "") -> tuple[Figure, str]:
    """Norms of both losses' gradients on the trunk (log scale) and their cosine, over training.

    Raises:
        UserError: a run did not log its gradients.
    """
    figure, (norms, cosine) = style.new(7.0, 3.7, 2)
    rows, words = by_row(records), []
    for place, (row, look) in enumerate(style.looks(list(rows)).items()):
        for colour, part, loss in ((0, "mlm_grad_norm", "L_MLM"), (1, "ft_grad_norm", "L_FT")):
            mean = _mean_gradient(rows[row], part, row)
            norms.plot(mean, style.LINES[place % 4], color=style.PALETTE[colour], label=f"{loss}, {look.label}")
            words.append(f"norm of {loss} ({row}) {mean.min():.2f} to {mean.max():.2f}")
        mean = _mean_gradient(rows[row], "grad_cosine", row)
        cosine.plot(mean, style.LINES[place % 4], color=style.PALETTE[(2 + place) % 10], label=look.label)
        words.append(f"cosine ({row}) {mean.min():+.2f} to {mean.max():+.2f}")
    cosine.axhline(0, color="0.3", lw=0.8)
    norms.set(yscale="log", xlabel="optimiser step", ylabel="gradient norm on the trunk")
    cosine.set(ylim=(-1, 1), xlabel="optimiser step", ylabel="cosine of the two gradients")
    figure.legend(*norms.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9)
    cosine.legend(loc="lower right", fontsize=9)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure, f"Gradients on the shared trunk: {'; '.join(words)}."


@style.styled
def loss_scatter(snapshots: Mapping[str, tuple[np.ndarray, np.ndarray]], title: str = "") -> tuple[Figure, str]:
    """Per example, `mlm_loss` against `ft_loss`, a panel per moment; the paper's scenarios are the four quadrants.

    The lines stand at ln 2, where the right token, or label of two, has probability 1/2. `snapshots` maps a title to
    `(mlm_loss, ft_loss)`, each `(n,)`.
    """
    figure, axes = style.new(2.3 * len(snapshots), 3.2, len(snapshots), sharex=True, sharey=True)
    half, words = np.log(2), {}
    largest = max(half, *(mlm.max() for mlm, _ in snapshots.values()))
    axes[0].set_xlim(-0.16 * largest, 1.05 * largest)  # at the left is room for the names of the quadrants
    for axis, (name, (mlm, ft)) in zip(axes, snapshots.items(), strict=True):
        axis.scatter(mlm, ft, s=9, alpha=0.45, color=style.PALETTE[0], linewidths=0)
        axis.axvline(half, color="0.4", lw=0.8)
        axis.axhline(half, color="0.4", lw=0.8)
        shares = {
            "I.1": np.mean((mlm <= half) & (ft <= half)),
            "I.2": np.mean((mlm <= half) & (ft > half)),
            "II, label right": np.mean((mlm > half) & (ft <= half)),
            "II, label wrong": np.mean((mlm > half) & (ft > half)),
        }
        text = "\n".join(f"{label}: {100 * share:.0f} %" for label, share in shares.items())
        axis.text(0.97, 0.97, text, transform=axis.transAxes, ha="right", va="top", fontsize=8.5,
                  bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "0.8"})  # fmt: skip
        axis.set_title(name)
        axis.set(xlabel="mlm_loss, nats")
        for quadrant, points, edge in (("I.1", -3, "top"), ("I.2", 3, "bottom")):
            beside = {"xytext": (0, points), "textcoords": "offset points", "va": edge, "fontsize": 8.5}
            axis.annotate(quadrant, (-0.14 * largest, half), **beside)
        axis.text(0.6, 0.35, "II", transform=axis.transAxes, fontsize=8.5)
        words[name] = [f"{label} {100 * share:.0f} %" for label, share in shares.items()]
    low, high = axes[0].get_ylim()
    axes[0].set(ylabel="ft_loss, nats", ylim=(low, low + 1.45 * (high - low)))  # the shares stand above the points
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure, style.sentence("Losses of single examples, by the paper's scenarios", words)


def _small_panels(number: int) -> tuple[Figure, np.ndarray]:
    """This many panels of one scale, four in a line."""
    lines = -(-number // 4)
    figure, axes = style.new(9.0, 0.6 + 1.9 * lines, 4, lines, sharex=True, sharey=True)
    for axis in axes[number:]:
        axis.remove()
    for axis in axes[:number]:
        axis.tick_params(labelbottom=True)  # what stands below may have been removed
    return figure, axes[:number]


def _mean_gradient(records: Sequence[dict], part: str, row: str) -> pandas.Series:
    values = _logged(records, part)
    if values.empty:
        raise UserError(
            f"the runs of {row} have no {part} at a common step; expected gradient diagnostics: run them with "
            "`--gradient-diagnostics-steps 10`, or leave them out."
        )
    return values.mean(axis="columns")


def _logged(records: Sequence[dict], part: str) -> pandas.DataFrame:
    """One entry of the log: a line for each step that all runs have, and a column per run."""
    by_run = [{entry["step"]: entry[part] for entry in record["history"] if part in entry} for record in records]
    return pandas.DataFrame(by_run).T.dropna().sort_index()


def _smooth(values: pandas.DataFrame) -> pandas.DataFrame:
    """Mean over a sixth of the log up to each entry. Later entries would soften where a plateau ends."""
    return values.rolling(max(1, len(values) // 6), min_periods=1).mean()

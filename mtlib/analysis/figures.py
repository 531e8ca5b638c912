"""Every plot, in one look: made from run records, shown or saved with a sentence that says what it shows.

Colours are seaborn's colour-blind palette; a second cue (marker, line style, hatching) always goes with them.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
import seaborn
from matplotlib.figure import Figure
from scipy import stats

from mtlib.analysis.tables import Table, make_tables
from mtlib.data.tasks import TASKS, kind
from mtlib.errors import UserError
from mtlib.runs.config import METHODS
from mtlib.study import plan as study
from mtlib.study.claims import Cell, balanced, by_arm, common_sets, panels
from mtlib.testbed.probes import recorded_strength, wilson

_PALETTE = seaborn.color_palette("colorblind").as_hex()
_MARKERS = "osD^vPhX<>"
_LINES = ("-", "--", "-.", ":")
_STYLE = {
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.hashsalt": "mtlib",  # the same figure gives the same file
}


_styled = matplotlib.rc_context(_STYLE)  # as a decorator: the reader's own settings stay what they are


@_styled
def new(width: float = 7.0, height: float = 3.4, columns: int = 1, **kwargs) -> tuple[Figure, np.ndarray]:
    """A figure in the house style and its axes as a flat array; no pyplot, so nothing stays open."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(1, columns, squeeze=False, **kwargs).ravel()


@_styled
def show(figure: Figure, alt: str) -> None:
    """Display in a notebook, with the sentence as alternative text and as the caption below."""
    from io import BytesIO

    from IPython.display import Markdown, display
    from PIL import Image

    drawn, png = BytesIO(), BytesIO()
    figure.savefig(drawn, format="png", dpi=_STYLE["figure.dpi"])
    # a palette of 256 is enough for a plot, and a third of the size in a notebook that keeps its outputs
    Image.open(drawn).convert("RGB").quantize(256).save(png, format="png", optimize=True)
    display({"image/png": png.getvalue(), "text/plain": alt}, raw=True, metadata={"image/png": {"alt": alt}})
    display(Markdown(f"*{alt}*"))


@_styled
def save(figure: Figure, folder: Path, name: str, alt: str) -> list[Path]:
    """`name.png` and `name.svg`, with the sentence in the files' own metadata."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    figure.savefig(paths[0], metadata={"Description": alt, "Software": None})
    figure.savefig(paths[1], metadata={"Description": alt, "Date": None, "Creator": None})
    return paths


# ------------------------------------------------------------------------------------------------ accuracy per set


@_styled
def gap(records: Sequence[dict], title: str = "", width: float = 7.0) -> tuple[Figure, str]:
    """Accuracy on the sets that all records have, one marker per method; in distribution on top, out of it below.

    Bars are 95 % intervals: over seeds (Student's t) where there are several, else of the one proportion (Wilson).
    """
    sets = sorted(common_sets(records), key=lambda name: kind(name) != "id")
    n = len(_methods(records))
    figure, (axis,) = new(width, 1.1 + max(0.42, 0.1 * n) * len(sets) + 0.1 * n)
    means = _means_by_method(axis, records, sets, lambda record: record["metrics"], 0.16)
    words = {method: [f"{name} {mean:.1f} %" for mean, name in found] for method, found in means.items()}
    for row, name in enumerate(sets):
        majority = 100 * records[0]["metrics"][name]["majority"]
        axis.plot([majority, majority], [row - 0.35, row + 0.35], ":", color="0.5", lw=1.5,
                  label="best constant answer" if row == 0 else None)  # fmt: skip
    axis.axhline(sum(kind(name) == "id" for name in sets) - 0.5, color="0.3", lw=0.8)
    _rows_of_per_cent(axis, [f"{name} ({kind(name)})" for name in sets], "accuracy, %", title)
    _legend_below(figure, axis)
    return figure, _sentence("Accuracy by evaluation set with 95 % intervals", words)


@_styled
def differences(table: Table, title: str = "") -> tuple[Figure, str]:
    """Every row's difference to fine-tuning, paired by seed, with its 95 % t interval."""
    rows = [row for row in table.rows if any(table.difference(row, column) for column in table.columns)]
    if not rows:
        raise UserError("no difference to show; expected fine-tuning and another method on the same seeds and budget.")
    figure, (axis,) = new(7.0, 1.4 + max(0.45, 0.16 * len(rows)) * len(table.columns))
    words = {}
    for place, row in enumerate(rows):
        name = row.method + (f" ({row.settings})" if row.settings else "")
        look = _look(name.replace("update ", "").replace(" (joint)", ""), place)
        for line, column in enumerate(table.columns):
            found = table.difference(row, column)
            if found is None:
                continue
            low, high = (found.mean, found.mean) if found.low is None else (found.low, found.high)
            axis.errorbar(found.mean, line + min(0.18, 0.8 / len(rows)) * (place - (len(rows) - 1) / 2),
                          xerr=[[found.mean - low], [high - found.mean]], fmt=look["marker"], capsize=3,
                          color=look["color"],
                          label=f"{name} (n = {found.n})" if line == 0 else None)  # fmt: skip
            words.setdefault(name, []).append(f"{column} {found.mean:+.1f}")
    axis.axvline(0, color="0.3", lw=0.8)
    axis.set_yticks(range(len(table.columns)), table.columns)
    axis.set_ylim(len(table.columns) - 0.5, -0.5)
    axis.margins(x=0.08)
    axis.set_xlabel("difference to fine-tuning, points (right of 0: better)")
    axis.set_title(title)
    figure.legend(loc="outside lower center", ncols=2)
    return figure, _sentence("Paired differences to fine-tuning in points", words)


@_styled
def planted(records: Sequence[dict], title: str = "") -> tuple[Figure, str]:
    """In distribution against out of it, by task and by strength of the testbed's planted shortcut (0: none)."""
    figure, (axis,) = new(7.0, 1.2 + 0.42 * len(records))
    lines, words = [], {}
    in_order = sorted(records, key=lambda record: (list(TASKS).index(record["config"]["task"]), -_strength(record)))
    for line, record in enumerate(in_order):
        task, found = record["config"]["task"], {}
        for name, metrics in record["metrics"].items():
            found.setdefault(kind(name), []).append(interval([metrics])[0])
        worst = min(found["ood"])
        axis.plot([worst, found["id"][0]], [line, line], "-", color="0.6", lw=2, zorder=1)
        for place, (of, label) in enumerate((("id", "in distribution"), ("ood", "out of distribution"))):
            axis.plot(found[of], [line] * len(found[of]), _MARKERS[place], color=_PALETTE[place], ms=8,
                      label=label if line == 0 else None)  # fmt: skip
        lines.append(f"{task}, {'no shortcut' if _strength(record) == 0 else f'shortcut {_strength(record):g}'}")
        words[lines[-1]] = [f"{found['id'][0]:.0f} % in, {worst:.0f} % worst out of distribution"]
    _rows_of_per_cent(axis, lines, "accuracy, %", title)
    figure.legend(loc="outside lower center", ncols=2)
    return figure, _sentence("Fine-tuned bundled model on the testbed", words)


@_styled
def groups(records: Sequence[dict], set_name: str, title: str = "", most: int = 16) -> tuple[Figure, str]:
    """Accuracy by group of one set (HANS heuristic and gold label, construction), worst first, mean over seeds."""
    cells: dict[str, list[dict]] = {}
    for record in records:
        for name, metrics in _flat_groups(record["metrics"][set_name]).items():
            cells.setdefault(name, []).append(metrics)
    if not cells:
        raise UserError(f"{set_name} has no groups; take a set that has some, for example testbed_overlap or hans.")
    found = sorted((interval(metrics), name) for name, metrics in cells.items())
    shown = found if len(found) <= most else [*found[: most // 2], *found[-(most // 2) :]]
    figure, (axis,) = new(7.0, 1.0 + 0.27 * len(shown))
    for line, ((mean, low, high), _) in enumerate(shown):
        axis.barh(line, mean, color=_PALETTE[0], alpha=0.75)
        axis.plot([low, high], [line, line], color="0.2", lw=1.2)
    _rows_of_per_cent(
        axis,
        [f"{name} (n = {cells[name][0]['n']})" for _, name in shown],
        "accuracy, % (line: 95 % interval)",
        title or f"{set_name} by group",
    )
    axis.grid(axis="y", visible=False)
    worst, best = shown[0], shown[-1]
    return figure, (
        f"{set_name} by group, from {worst[1]} at {worst[0][0]:.0f} % to {best[1]} at {best[0][0]:.0f} %"
        + (f"; the {most // 2} lowest and {most // 2} highest of {len(found)}." if len(found) > most else ".")
    )


@_styled
def group_means(records: Sequence[dict], set_name: str, title: str = "") -> tuple[Figure, str]:
    """Accuracy by group of one set, a marker per method: mean over seeds with 95 % intervals."""
    names = list(_flat_groups(records[0]["metrics"][set_name]))
    n = len(_methods(records))
    figure, (axis,) = new(7.0, 1.1 + max(0.5, 0.12 * n) * len(names) + 0.1 * n)
    means = _means_by_method(axis, records, names, lambda record: _flat_groups(record["metrics"][set_name]), 0.14)
    words = {
        method: [f"{name} {mean:.0f} %" for mean, name in (min(found), max(found))] for method, found in means.items()
    }
    labels = [f"{name} (n = {_flat_groups(records[0]['metrics'][set_name])[name]['n']})" for name in names]
    _rows_of_per_cent(axis, labels, "accuracy, %", title)
    _legend_below(figure, axis)
    return figure, _sentence(f"{set_name} by group, each method's lowest and highest", words)


@_styled
def curve(points: Mapping[float, Sequence[dict]], label: str, title: str = "") -> tuple[Figure, str]:
    """Accuracy on the sets that all records have, against a setting: mean over seeds, 95 % band.

    Where one label of a set is common, so that accuracy rewards giving it often, balanced accuracy stands beside it.
    """
    values = sorted(points)
    places = range(len(values))
    figure, (axis,) = new(7.0, 3.6)
    every, words = [record for records in points.values() for record in records], {}
    for place, name in enumerate(common_sets(every)):
        found = np.array([interval([record["metrics"][name] for record in points[value]]) for value in values])
        axis.plot(places, found[:, 0], _LINES[place % 4], marker=_MARKERS[place % len(_MARKERS)],
                  color=_PALETTE[place % 10], label=f"{name} ({kind(name)})")  # fmt: skip
        axis.fill_between(places, found[:, 1], found[:, 2], color=_PALETTE[place % 10], alpha=0.12, lw=0)
        words[name] = _at(values, found[:, 0])
        if all(_uneven(record["metrics"][name]) for record in every):
            means = [np.mean([balanced(record["metrics"][name]) for record in points[value]]) for value in values]
            axis.plot(places, means, ":", marker=_MARKERS[place % len(_MARKERS)], markerfacecolor="white",
                      color=_PALETTE[place % 10], label=f"{name}, balanced accuracy")  # fmt: skip
            words[f"{name}, balanced"] = _at(values, means)
    axis.set_xticks(places, [f"{value:g}" for value in values])  # a grid is rarely even: equal steps, true labels
    axis.set_ylim(0, 100)
    axis.set_xlabel(f"{label} (not to scale)")
    axis.set_ylabel("accuracy, %")
    axis.set_title(title)
    figure.legend(loc="outside lower center", ncols=2)
    return figure, _sentence(f"Accuracy against {label}", words)


def _at(values: Sequence[float], means: Sequence[float]) -> list[str]:
    return [f"{mean:.0f} % at {value:g}" for value, mean in zip(values, means, strict=True)]


def _uneven(metrics: dict) -> bool:
    """Whether a set's commonest label is more than a fifth above an even share."""
    return "per_label" in metrics and metrics["majority"] * len(metrics["per_label"]) > 1.2


def interval(metrics: Sequence[dict]) -> tuple[float, float, float]:
    """(mean, low, high) in per cent, 95 %: Student's t over several runs, Wilson for a single one; within 0 to 100."""
    values = np.array([100 * entry["accuracy"] for entry in metrics])
    if len(values) == 1:
        low, high = wilson(metrics[0]["correct"], metrics[0]["n"])
        return float(values[0]), 100 * low, 100 * high
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), max(0.0, float(values.mean() - half)), min(100.0, float(values.mean() + half))


@_styled
def probes(counts: Mapping[str, Mapping[str, tuple[int, int]]], title: str = "") -> tuple[Figure, str]:
    """Accuracy of simple rules on every evaluation set; `counts` maps rule to set to (correct, n)."""
    sets = sorted(next(iter(counts.values())), key=lambda name: kind(name) != "id")
    figure, (axis,) = new(7.0, 1.2 + 0.5 * len(sets))
    words, height = {}, 0.8 / len(counts)
    for place, (rule, found) in enumerate(counts.items()):
        for line, name in enumerate(sets):
            correct, n = found[name]
            mean, low, high = interval([{"accuracy": correct / n, "correct": correct, "n": n}])
            at = line + height * (place - (len(counts) - 1) / 2)
            axis.barh(at, mean, height * 0.9, color=_PALETTE[place], hatch=("", "//", "..", "xx")[place % 4], alpha=0.8,
                      edgecolor="white", label=rule if line == 0 else None)  # fmt: skip
            axis.plot([low, high], [at, at], color="0.2", lw=1.2)
            words.setdefault(rule, []).append(f"{name} {mean:.0f} %")
    axis.axhline(sum(kind(name) == "id" for name in sets) - 0.5, color="0.3", lw=0.8)
    _rows_of_per_cent(
        axis, [f"{name} ({kind(name)})" for name in sets], "accuracy, % (line: 95 % Wilson interval)", title
    )
    axis.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=4)
    return figure, _sentence("Accuracy of simple rules", words)


@_styled
def dial(counts: Mapping[float, Mapping[str, tuple[int, int]]], title: str = "") -> tuple[Figure, str]:
    """How often the shortcut is right, against its strength; `counts` maps strength to set to (correct, n)."""
    strengths = sorted(counts)
    figure, (axis,) = new(7.0, 3.4)
    words = {}
    for place, name in enumerate(counts[strengths[0]]):
        values = [100 * counts[s][name][0] / counts[s][name][1] for s in strengths]
        axis.plot(strengths, values, _LINES[place % 4], marker=_MARKERS[place % len(_MARKERS)], color=_PALETTE[place],
                  label=f"{name} ({kind(name)})")  # fmt: skip
        words[name] = [f"{v:.0f} % at {s:g}" for s, v in zip(strengths, values, strict=True)]
    axis.set_xticks(strengths)
    axis.set_ylim(-3, 103)
    axis.set_xlabel("strength of the planted shortcut")
    axis.set_ylabel("rows where it is right, %")
    axis.set_title(title)
    figure.legend(loc="outside lower center", ncols=2)
    return figure, _sentence("Share of rows where the shortcut is right, by its strength", words)


@_styled
def claims(found: Mapping[str, Sequence[Cell]], title: str = "") -> tuple[Figure, str]:
    """Differences of two arms, a panel per claim and a row per evaluation set, with 95 % t intervals.

    `found` maps a panel's title to the claim's cells. Hollow: both arms at chance, or one has not learned
    the task. Sets that were not run are left out.
    """
    run = {name: [cell for cell in cells if cell.difference is not None] for name, cells in found.items()}
    sets = sorted(
        dict.fromkeys(c.set_name for cells in run.values() for c in cells), key=lambda name: kind(name) != "id"
    )
    if not sets:
        raise UserError("no difference to show; expected two arms of a claim with three seeds in common.")
    columns = min(3, len(found))
    lines = -(-len(found) // columns)
    figure = Figure(figsize=(9.0, lines * (1.0 + 0.22 * len(sets)) + 0.4), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False, sharey=True, sharex=True).ravel()
    words, tasks = {}, list(TASKS)
    for axis, (name, cells) in zip(axes, run.items(), strict=False):
        for cell in cells:
            place, line, shift = tasks.index(cell.task), sets.index(cell.set_name), cell.difference
            axis.errorbar(shift.mean, line, xerr=[[shift.mean - shift.low], [shift.high - shift.mean]], capsize=2,
                          fmt=_MARKERS[place], color=_PALETTE[place], ms=5,
                          markerfacecolor="white" if cell.says_nothing else _PALETTE[place])  # fmt: skip
        words[name.replace("\n", " ")] = _sides(cells)
        axis.tick_params(labelbottom=True)
        axis.axvline(0, color="0.3", lw=0.8)
        axis.set_title(name, fontsize=9)
        axis.set_yticks(range(len(sets)), [f"{one} ({kind(one)})" for one in sets], fontsize=8)
        axis.set_ylim(len(sets) - 0.5, -0.5)
    for axis in axes[len(found) :]:
        axis.set_visible(False)
    figure.supxlabel(
        "difference, points (right of 0: the first is better); hollow: at chance or not learned", fontsize=9
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure, _sentence("Evaluation sets whose 95 % interval of the difference lies above or below 0", words)


def _sides(cells: Sequence[Cell]) -> list[str]:
    """How many 95 % intervals lie on which side of 0, for the alt text; hollow ones count by themselves."""
    parts = []
    for name, words in (("id", "in distribution"), ("ood", "out of it")):
        solid = [cell.difference for cell in cells if kind(cell.set_name) == name and not cell.says_nothing]
        if solid:
            above, below = sum(one.low > 0 for one in solid), sum(one.high < 0 for one in solid)
            parts.append(f"{words} {above} above and {below} below of {len(solid)}")
    hollow = sum(cell.says_nothing for cell in cells)
    return parts + ([f"{hollow} hollow"] if hollow else [])


# ------------------------------------------------------------------------------------------------------ over training


@_styled
def learning_curves(
    records: Sequence[dict], parts: Sequence[str] = ("ft_loss",), title: str = ""
) -> tuple[Figure, str]:
    """Parts of the loss over training, a line per run and a thick one for their mean, a panel per part."""
    figure, axes = new(7.0, 3.4, len(parts))
    words, lines = [], {}
    for axis, part in zip(axes, parts, strict=True):
        for place, method in enumerate(_methods(records)):
            runs = [record for record in records if _row(record) == method]
            steps, values = _series(runs, part)
            if not steps.size:
                continue
            look = _look(method, place)
            smooth = [_smooth(row) for row in values]
            for row in smooth:
                axis.plot(steps, row, color=look["color"], alpha=0.3, lw=0.8)
            mean = np.mean(smooth, axis=0)
            (line,) = axis.plot(steps, mean, look["linestyle"], color=look["color"], lw=2)
            lines[f"{method} (n = {len(runs)})"] = line
            words.append(f"{part} of {method} from {mean[0]:.2f} to {mean[-1]:.2f}")
        axis.set_ylim(bottom=0)
        axis.set_xlabel("optimiser step")
        axis.set_ylabel(f"{part}, nats")
    if lines:  # else no run has any of these parts
        figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=3)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure, f"Training losses, running means: {'; '.join(words)}."


@_styled
def gradients(records: Sequence[dict], title: str = "") -> tuple[Figure, str]:
    """Norms of both losses' gradients on the trunk (log scale) and their cosine, over training."""
    figure, (norms, cosine) = new(7.0, 3.7, 2)
    words = []
    for place, name in enumerate(_methods(records)):
        runs = [record for record in records if _row(record) == name]
        for part, mark in (("mlm_grad_norm", "L_MLM"), ("ft_grad_norm", "L_FT")):
            steps, values = _series(runs, part)
            mean = values.mean(axis=0)
            norms.plot(steps, mean, _LINES[place], color=_PALETTE[0 if mark == "L_MLM" else 1],
                       label=f"{mark}, {name}")  # fmt: skip
            words.append(f"norm of {mark} ({name}) {mean.min():.2f} to {mean.max():.2f}")
        steps, values = _series(runs, "grad_cosine")
        cosine.plot(steps, values.mean(axis=0), _LINES[place], color=_PALETTE[2 + place], label=name)
        words.append(f"cosine ({name}) {values.mean(axis=0).min():+.2f} to {values.mean(axis=0).max():+.2f}")
    norms.set_yscale("log")
    norms.set_ylabel("gradient norm on the trunk")
    cosine.axhline(0, color="0.3", lw=0.8)
    cosine.set_ylim(-1, 1)
    cosine.set_ylabel("cosine of the two gradients")
    for axis in (norms, cosine):
        axis.set_xlabel("optimiser step")
    figure.legend(*norms.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9)
    cosine.legend(loc="lower right", fontsize=9)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure, f"Gradients on the shared trunk: {'; '.join(words)}."


@_styled
def loss_scatter(snapshots: Mapping[str, tuple[np.ndarray, np.ndarray]], title: str = "") -> tuple[Figure, str]:
    """Per example, `mlm_loss` against `ft_loss`, a panel per moment; the paper's scenarios are the four quadrants.

    The lines stand at ln 2, where the right token, or label of two, has probability 1/2. `snapshots` maps a title to
    `(mlm_loss, ft_loss)`, each `(n,)`.
    """
    figure, axes = new(2.3 * len(snapshots), 3.2, len(snapshots), sharex=True, sharey=True)
    half, words = np.log(2), {}
    for axis, (name, (mlm, ft)) in zip(axes, snapshots.items(), strict=True):
        axis.scatter(mlm, ft, s=9, alpha=0.45, color=_PALETTE[0], linewidths=0)
        axis.axvline(half, color="0.4", lw=0.8)
        axis.axhline(half, color="0.4", lw=0.8)
        shares = {
            "I.1": np.mean((mlm <= half) & (ft <= half)),
            "I.2": np.mean((mlm <= half) & (ft > half)),
            "II, label right": np.mean((mlm > half) & (ft <= half)),
            "II, label wrong": np.mean((mlm > half) & (ft > half)),
        }
        text = "\n".join(f"{label}: {100 * share:.0f} %" for label, share in shares.items())
        axis.text(0.97, 0.97, text, transform=axis.transAxes, ha="right", va="top", fontsize=7.5,
                  bbox={"facecolor": "white", "alpha": 0.8, "edgecolor": "0.8"})  # fmt: skip
        axis.set_title(name)
        axis.set_xlabel("mlm_loss, nats")
        words[name] = [f"{label} {100 * share:.0f} %" for label, share in shares.items()]
    axes[0].set_ylabel("ft_loss, nats")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure, _sentence("Losses of single examples, by the paper's scenarios", words)


@_styled
def shares_over(series: Mapping[str, Mapping[int, tuple]], x: str, y: str, title: str = "") -> tuple[Figure, str]:
    """Shares with their intervals against a count; `series` maps a name to `{x: Share}`."""
    figure, (axis,) = new(6.0, 3.2)
    words = {}
    for place, (name, found) in enumerate(series.items()):
        values, low, high = (100 * np.array([getattr(part, end) for part in found.values()])
                             for end in ("share", "low", "high"))  # fmt: skip
        at = np.array(list(found)) + 0.06 * (place - (len(series) - 1) / 2)
        axis.errorbar(at, values, yerr=[values - low, high - values], fmt=_MARKERS[place] + _LINES[place], capsize=3,
                      color=_PALETTE[place], label=f"{name} (n = {next(iter(found.values())).n})")  # fmt: skip
        words[name] = [f"{value:.0f} % at {x} {position}" for value, position in zip(values, found, strict=True)]
    axis.set_xticks(list(next(iter(series.values()))))
    axis.set_ylim(0, 100)
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.set_title(title)
    axis.legend()
    return figure, _sentence(y, words)


@_styled
def stacked(shares: Mapping[str, Mapping[str, float]], title: str = "") -> tuple[Figure, str]:
    """Shares that add up to one, a bar per row."""
    figure, (axis,) = new(7.0, 1.0 + 0.45 * len(shares))
    names = list(next(iter(shares.values())))
    for line, found in enumerate(shares.values()):
        start = 0.0
        for place, name in enumerate(names):
            width = 100 * found[name]
            axis.barh(line, width, 0.7, left=start, color=_PALETTE[place], hatch=("", "//", "..", "xx")[place % 4],
                      edgecolor="white", label=name if line == 0 else None)  # fmt: skip
            if width >= 4:
                axis.text(start + width / 2, line, f"{width:.0f}", ha="center", va="center", fontsize=9,
                          bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1})  # fmt: skip
            start += width
    _rows_of_per_cent(axis, list(shares), "share, %", title)
    axis.grid(visible=False)
    figure.legend(loc="outside lower center", ncols=4)
    return figure, _sentence(
        title, {row: [f"{name} {100 * found[name]:.0f} %" for name in names] for row, found in shares.items()}
    )


# ------------------------------------------------------------------------------------------------------------ helpers


def _means_by_method(axis, records: Sequence[dict], names: Sequence[str], metrics_of, spread: float) -> dict:
    """A line per name, on it a marker per method with its 95 % interval: `{method: [(mean, name), ...]}`."""
    methods, found = _methods(records), {}
    spread = min(spread, 0.8 / len(methods))  # lines are 1 apart
    for place, method in enumerate(methods):
        rows, look = _of(records, method), _look(method, place)
        for line, name in enumerate(names):
            mean, low, high = interval([metrics_of(record)[name] for record in rows])
            axis.errorbar(
                mean, line + spread * (place - (len(methods) - 1) / 2), xerr=[[mean - low], [high - mean]], capsize=3,
                fmt=look["marker"], color=look["color"], label=f"{method} (n = {len(rows)})" if line == 0 else None,
            )  # fmt: skip
            found.setdefault(method, []).append((mean, name))
    return found


def _rows_of_per_cent(axis, labels: Sequence[str], x: str, title: str) -> None:
    """A row per label from the top down, 0 to 100 % across."""
    axis.set_yticks(range(len(labels)), labels)
    axis.set_ylim(len(labels) - 0.5, -0.5)
    axis.set_xlim(0, 100)
    axis.set_xlabel(x)
    axis.set_title(title)


def _legend_below(figure: Figure, axis) -> None:
    """In three columns, or in two where the labels are too long for that."""
    _, labels = axis.get_legend_handles_labels()
    width = sum(max(map(len, column), default=0) for column in np.array_split(labels, 3))  # characters
    figure.legend(loc="outside lower center", ncols=3 if width <= 66 else 2)


def _sentence(lead: str, words: Mapping[str, Sequence[str]]) -> str:
    return f"{lead}: " + "; ".join(f"{name}: {', '.join(parts)}" for name, parts in words.items()) + "."


def _methods(records: Iterable[dict]) -> list[str]:
    """The lines of a plot, in the order of the paper's tables."""
    found = {_row(record): record["config"]["method"] for record in records}
    return sorted(found, key=lambda name: (METHODS.index(found[name]), name))


def _row(record: dict) -> str:
    """What a line of a plot is called: the study's arm, else the method and the update where it is not equation 1's."""
    config = record["config"]
    return study.arm_of(config) or config["method"] + (
        " (alternating)" if config.get("update") == "alternating" else ""
    )


def _strength(record: dict) -> float:
    return recorded_strength(record["config"]["source"])


def _of(records: Iterable[dict], row: str) -> list[dict]:
    return [record for record in records if _row(record) == row]


def _look(row: str, place: int) -> dict[str, str]:
    """Colour, marker and line of a row: the same for a method in every figure, else by its place."""
    # the gaps are colours too pale for lines
    looks = [*METHODS, "", "mask_tuning (alternating)", "", "fine_tuning (6 epochs)"]
    at = looks.index(row) if row in looks else len(looks) + place
    return {"color": _PALETTE[at % 10], "marker": _MARKERS[at % len(_MARKERS)], "linestyle": _LINES[at % 4]}


def _flat_groups(metrics: dict) -> dict[str, dict]:
    """Groups of a scored set; HANS's heuristics are split by gold label."""
    flat = {}
    for name, entry in metrics.get("per_group", {}).items():
        inner = {label: cell for label, cell in entry.items() if isinstance(cell, dict)}
        flat |= {f"{name}, gold {label}": cell for label, cell in inner.items()} or {name: entry}
    return flat


def _series(records: Sequence[dict], part: str) -> tuple[np.ndarray, np.ndarray]:
    """`steps (n,)` and `values (runs, n)` of one entry of the log, at the steps all runs have it."""
    by_run = [{entry["step"]: entry[part] for entry in record["history"] if part in entry} for record in records]
    steps = sorted(set.intersection(*(set(found) for found in by_run)))
    return np.array(steps), np.array([[found[step] for step in steps] for found in by_run])


def _smooth(values: np.ndarray, window: int = 9) -> np.ndarray:
    """Running mean over `window` log entries, shorter at the ends."""
    window = min(window, len(values) - 1 + len(values) % 2)  # odd, so that it lies even to both sides
    sums = np.convolve(values, np.ones(window), mode="same")
    return sums / np.convolve(np.ones(len(values)), np.ones(window), mode="same")


# ------------------------------------------------------------------------------------------- the repository's figures


def of_study(records: Sequence[dict]) -> dict[str, tuple[Figure, str]]:
    """The figures of the reproduction study by name; those for which `records` lack the runs are left out."""
    arms, found = by_arm(records), {}
    runs = {task: [run for arm in study.ARMS for run in arms.get((task, arm.name), [])] for task in TASKS}
    if shown := panels(records):
        found["claims"] = claims(shown, "The study: differences in accuracy with 95 % intervals over seeds")
    for task in filter(runs.get, TASKS):
        found[f"gap_{task}"] = gap(runs[task], f"{task}: in distribution above the line, out of it below")
    if runs["nli"]:
        found["hans"] = group_means(runs["nli"], "hans", "HANS by heuristic and gold label")
    for name, label in (("mask_rate", "masking rate asked for"), ("alpha", "alpha, weight of the masked-LM loss")):
        for task in TASKS:
            points = study.curve(records, task, name)
            if len(points) >= 3:
                seeds = len(next(iter(points.values())))
                found[f"{name}_{task}"] = curve(points, label, f"{task}: accuracy (seeds a point: {seeds})")
    return found


def standard(results: Path) -> dict[str, tuple[Figure, str]]:
    """The figures of `python -m mtlib figures`, by name, from the records in `results`."""
    from mtlib.runs.run import read_records

    runs, sst2, testbed = (read_records([results / f"{name}.jsonl"]) for name in ("study", "sst2", "testbed"))
    return {
        **{f"study_{name}": drawn for name, drawn in of_study(runs).items()},
        "testbed_shortcut": planted(testbed, "What a planted shortcut does to a fine-tuned model"),
        "sst2_gap": gap(sst2, "SST-2 and its out-of-distribution sets, bundled model"),
        "sst2_differences": differences(make_tables(sst2)[0], "Mask-tuning against fine-tuning, SST-2"),
        "sst2_losses": learning_curves(sst2, ("mlm_loss", "ft_loss"), "Training on SST-2"),
    }

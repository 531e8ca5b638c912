"""What a shortcut does: simple rules on every set, and the testbed's planted one."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from mtlib.analysis.figures import style
from mtlib.analysis.frame import frame
from mtlib.analysis.statistics import wilson
from mtlib.data.tasks import TASKS, kind
from mtlib.testbed.probes import PROBES, recorded_strength


@style.styled
def probes(counts: Mapping[str, Mapping[str, tuple[int, int]]], title: str = "") -> tuple[Figure, str]:
    """Accuracy of simple rules on every evaluation set; `counts` maps rule to set to (correct, n)."""
    sets = style.id_first(next(iter(counts.values())))
    figure, (axis,) = style.new(7.0, 1.2 + 0.5 * len(sets))
    words, height = {}, 0.8 / len(counts)
    looks = {rule: place for place, rule in enumerate(PROBES)}  # a rule looks the same beside two others and one
    for place, (rule, by_set) in enumerate(counts.items()):
        for line, name in enumerate(sets):
            correct, n = by_set[name]
            low, high = wilson(correct, n)
            at = line + height * (place - (len(counts) - 1) / 2)
            axis.barh(at, 100 * correct / n, height * 0.9, **style.bar(looks.get(rule, place)), alpha=0.8,
                      label=rule if line == 0 else None)  # fmt: skip
            axis.plot([100 * low, 100 * high], [at, at], color="0.2", lw=1.2)
            words.setdefault(rule, []).append(f"{name} {100 * correct / n:.0f} %")
    axis.axhline(sum(kind(name) == "id" for name in sets) - 0.5, color="0.3", lw=0.8)
    axis.set(xlim=(0, 100), xlabel="accuracy, % (line: 95 % Wilson interval)", title=title)
    style.rows_down(axis, map(style.with_kind, sets))
    axis.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=4)
    return figure, style.sentence("Accuracy of simple rules", words)


@style.styled
def split(counts: Mapping[str, tuple[int, int]], title: str = "", measure: str = "accuracy") -> tuple[Figure, str]:
    """A share in each part of one set, a bar for each; `counts` maps a part's name to (correct, n)."""
    figure, (axis,) = style.new(7.0, 1.0 + 0.5 * len(counts))
    for line, (correct, n) in enumerate(counts.values()):
        low, high = wilson(correct, n)
        axis.barh(line, 100 * correct / n, 0.6, **style.bar(0), alpha=0.8)
        axis.plot([100 * low, 100 * high], [line, line], color="0.2", lw=1.2)
        axis.text(100 * high + 1.5, line, f"{100 * correct / n:.0f} %", va="center")
    axis.set(xlim=(0, 108), xticks=range(0, 101, 20))
    labels = [f"{name}\n({n} rows)" for name, (_, n) in counts.items()]
    style.rows_down(axis, labels, xlabel=f"{measure}, % (line: 95 % Wilson interval)", title=title)
    axis.grid(axis="y", visible=False)
    words = [f"{name} {100 * correct / n:.1f} % of {n}" for name, (correct, n) in counts.items()]
    return figure, f"{measure.capitalize()}: {', '.join(words)}."


@style.styled
def dial(counts: Mapping[float, Mapping[str, tuple[int, int]]], title: str = "") -> tuple[Figure, str]:
    """How often the shortcut is right, against its strength; `counts` maps strength to set to (correct, n)."""
    strengths = sorted(counts)
    figure, (axis,) = style.new(7.0, 3.4)
    words = {}
    names = list(counts[strengths[0]])
    for place, name in enumerate(names):
        values = [100 * counts[strength][name][0] / counts[strength][name][1] for strength in strengths]
        beside = style.aside(axis, place, len(names))
        axis.plot(strengths, values, **style.series(place), transform=beside, label=style.with_kind(name))
        words[name] = [f"{value:.0f} % at {strength:g}" for strength, value in zip(strengths, values, strict=True)]
    axis.set_xticks(strengths)
    room = 0.05 * (strengths[-1] - strengths[0]) or 0.5
    axis.set_xlim(strengths[0] - room, strengths[-1] + room)
    axis.set(ylim=(-3, 103), xlabel="strength of the planted shortcut", ylabel="rows where it is right, %", title=title)
    figure.legend(loc="outside lower center", ncols=2)
    return figure, style.sentence("Share of rows where the shortcut is right, by its strength", words)


@style.styled
def planted(records: Sequence[dict], title: str = "") -> tuple[Figure, str]:
    """In distribution against out of it, by task and by strength of the testbed's planted shortcut (0: none)."""
    runs = accuracy_by_strength(records)
    figure, (axis,) = style.new(7.0, 1.2 + 0.42 * len(runs))
    lines, words = [], {}
    for line, ((task, strength), accuracies) in enumerate(runs.items()):
        inside, worst = accuracies["id"][0], min(accuracies["ood"])
        axis.plot([worst, inside], [line, line], "-", color="0.6", lw=2, zorder=1)
        for place, (of, label) in enumerate((("id", "in distribution"), ("ood", "out of distribution"))):
            look = style.series(place) | {"linestyle": "", "label": label if line == 0 else None}
            values = accuracies[of]
            beside = [line + 0.22 * (i - (len(values) - 1) / 2) for i in range(len(values))]  # equal ones stay visible
            axis.plot(values, beside, **look, ms=8)
        lines.append(f"{task}, {'no shortcut' if strength == 0 else f'shortcut {strength:g}'}")
        words[lines[-1]] = [f"{inside:.0f} % in, {worst:.0f} % worst out of distribution"]
    style.rows_down(axis, lines, xlabel="accuracy, %", title=title, xlim=(-2, 102))
    figure.legend(loc="outside lower center", ncols=2)
    return figure, style.sentence("Fine-tuned bundled model on the testbed", words)


def accuracy_by_strength(records: Sequence[dict]) -> dict[tuple[str, float], Mapping[str, list[float]]]:
    """Accuracy in per cent on the sets of each kind ("id", "ood"), means over seeds, by task and planted strength.

    In the order of the tasks, the strongest shortcut of each first.
    """
    scores = frame(records)
    scores["strength"] = scores["source"].map(recorded_strength)
    means = scores.groupby(["task", "strength", "kind", "set"], as_index=False, sort=False)["accuracy"].mean()
    runs = {key: run.groupby("kind")["accuracy"].agg(list) for key, run in means.groupby(["task", "strength"])}
    return dict(sorted(runs.items(), key=lambda item: (list(TASKS).index(item[0][0]), -item[0][1])))

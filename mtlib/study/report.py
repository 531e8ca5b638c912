"""The study in tables: beside the paper's own, by gold label, the curves, the cost."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas

from mtlib.analysis.frame import common_sets, frame
from mtlib.analysis.statistics import FEWEST_SEEDS, paired_difference, spread
from mtlib.analysis.tables import pipe_table
from mtlib.data.tasks import TASKS
from mtlib.methods import METHODS
from mtlib.study import paper
from mtlib.study.arms import by_arm, by_seed, scores_of_arms
from mtlib.study.plan import points_of_curve


def beside(table: str, scores: pandas.DataFrame) -> pandas.DataFrame:
    """The paper's Table "I" or "III", ours below each method: mean ± sd (seeds) in per cent, or "not run".

    Cells that are empty in the paper are empty. A row of the paper that no method of ours answers to (GPT-3) has none
    below it. `scores` has the columns `row` (the method), `set` and `accuracy`.
    """
    printed, rows = paper.printed(table), []
    ours = scores.groupby(["row", "set"])["accuracy"].agg(lambda values: f"{spread(list(values))} ({len(values)})")
    for method in printed.index.unique("method"):
        for model in printed.xs(method, level="method").index:
            rows.append({"method": method, "model": f"paper: {model}", **printed.loc[(model, method)]})
        if method in METHODS:
            texts = {name: ours.get((method, sets[0]), "not run") for name, sets in paper.OUR_SETS.items()}
            rows.append({"method": method, "model": "here", **texts})
    return pandas.DataFrame(rows).set_index(["method", "model"])


def prompted(results: Path) -> pandas.DataFrame:
    """Accuracy in per cent of the two masked LMs that were asked without training, by how an answer is scored."""
    rows = []
    for model, file in {"base-sized": "prompting_base.json", "bundled": "prompting_mini.json"}.items():
        metrics = json.loads((results / file).read_text())["metrics"]
        for reading in next(iter(metrics.values())):
            accuracies = {name: f"{100 * of_set[reading]['accuracy']:.1f}" for name, of_set in metrics.items()}
            rows.append({"masked LM": model, "score": reading, **accuracies})
    return pandas.DataFrame(rows).set_index("masked LM")


def by_label(records: Iterable[dict], task: str) -> pandas.DataFrame:
    """Accuracy on each gold label of every set of a task, and their mean (balanced accuracy), in per cent.

    An arm that only gives one answer more often, whatever the text, gains accuracy where that answer is common; its
    balanced accuracy tends to that of a guess. With the difference to fine-tuning, paired by seed. Records from
    before it was kept are left out.
    """
    scores, rows = scores_of_arms(records).dropna(subset="by_label"), []
    for name in TASKS[task].evaluation_sets("hub"):
        on_set = scores[(scores["task"] == task) & (scores["set"] == name)]
        for arm, group in on_set.groupby("row", sort=False):
            balanced = by_seed(on_set, "balanced", arm, "fine_tuning")
            points = list((balanced[arm] - balanced["fine_tuning"]).dropna()) if arm != "fine_tuning" else []
            means = pandas.DataFrame(list(group["by_label"])).mean()
            rows.append({
                "set": name, "arm": arm, "seeds": len(group),
                "on each gold label": ", ".join(f"{label} {mean:.1f}" for label, mean in means.items()),
                "balanced": spread(list(group["balanced"])),
                "difference to fine_tuning":
                    paired_difference(points).text() if len(points) >= FEWEST_SEEDS else "",
            })  # fmt: skip
    empty = ["set", "arm", "seeds", "on each gold label", "balanced", "difference to fine_tuning"]
    return pandas.DataFrame(rows, columns=None if rows else empty).set_index("set")


def curves(records: Sequence[dict], task: str) -> pandas.DataFrame:
    """The points of a task's alpha and masking-rate curves: mean ± sd in per cent, at the seeds and sets all have.

    Balanced accuracy (`by_label`) follows the accuracy on a set where all of them have it.
    """
    rows = []
    for setting in ("alpha", "mask_rate"):
        points = points_of_curve(records, task, setting)
        if len(points) < 2:
            continue
        sets = common_sets([record for group in points.values() for record in group])
        scores = pandas.concat([frame(group).assign(value=value) for value, group in points.items()])
        measures = {
            f"{name}{suffix}": (name, measure)
            for name in sets
            for suffix, measure in (("", "accuracy"), (", balanced", "balanced"))
            if scores.loc[scores["set"] == name, measure].notna().all()
        }
        for value, group in scores.groupby("value"):
            texts = {text: spread(list(group.loc[group["set"] == name, measure]))
                     for text, (name, measure) in measures.items()}  # fmt: skip
            rows.append({"setting": setting, "value": f"{value:g}", "seeds": group["seed"].nunique(), **texts})
    return pandas.DataFrame(rows, columns=None if rows else ["setting"]).set_index("setting").fillna("not run")


def cost(records: Iterable[dict]) -> pandas.DataFrame:
    """Medians over the runs of every arm: seconds of training, peak memory, and both by fine-tuning's."""
    costs = [{"task": task, "arm": arm, **record["cost"]}
             for (task, arm), group in by_arm(records).items() for record in group]  # fmt: skip
    if not costs:
        return pandas.DataFrame(columns=["task", "arm"]).set_index(["task", "arm"])
    runs = pandas.DataFrame(costs).groupby(["task", "arm"], sort=False)
    medians = runs[["train_seconds", "peak_memory_mb"]].median()
    plain = medians[medians.index.get_level_values("arm") == "fine_tuning"].droplevel("arm")
    ratios = (medians / plain.reindex(medians.index.get_level_values("task")).set_axis(medians.index)).round(2)
    return pandas.DataFrame({
        "runs": runs.size(),
        "steps": runs["steps"].first(),
        "seconds": medians["train_seconds"].round().astype(int),
        "peak memory, MB": medians["peak_memory_mb"].round().astype(int),
        "time / fine-tuning": ratios["train_seconds"],
        "memory / fine-tuning": ratios["peak_memory_mb"],
    })  # fmt: skip


def markdown(table: pandas.DataFrame) -> str:
    """A table for a README, with its index in the first columns."""
    flat = table.reset_index()
    return pipe_table(flat.columns, flat.itertuples(index=False), words=len(flat.columns))

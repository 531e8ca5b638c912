"""What single examples say, where a run kept their probabilities: AUROC, and intervals over examples and seeds."""

import json
from collections import defaultdict

import numpy as np
import pandas

from mtlib.analysis.comparisons import Comparison
from mtlib.analysis.intervals import FEWEST_SEEDS
from mtlib.data.registry import get_set
from mtlib.data.sources import load
from mtlib.runs.inputs import HELD_OUT
from mtlib.runs.records import probabilities


def of_examples(comparison: Comparison, source: str, draws: int = 1000) -> dict[str, list[dict]]:
    """What needs the test sets, as data that does without them: `Comparison.examples`.

    Args:
        comparison: whose runs count; one without settings `by`.
        source: where the test sets lie: "testbed", "hub" or a folder of releases.
        draws: of the bootstrap.

    Returns:
        `auroc`, by run and set in per cent: of each label against the rest; in sets of pairs that of the edited halves,
        with `auroc_original` and `auroc_both`. `bootstrap`, by set and arm: the difference to the base in points, with
        its 95 % interval, over items and seeds, of accuracy (of edited halves) and of both halves.
    """
    areas, right = [], {measure: defaultdict(dict) for measure in ("accuracy", "both")}
    for arm, record in comparison.runs:
        for name, chances in probabilities(record["identity"], comparison.paths).items():
            if name != HELD_OUT:
                rows = _gold(name, source)
                areas.append({"identity": record["identity"], "set": name} | _areas(chances, rows))
                for measure, by_set in right.items():
                    by_seed = by_set[name].setdefault(arm, {})
                    by_seed[record["config"]["seed"]] = _right(name, chances, rows, measure)
    lines = []
    for measure, by_set in right.items():
        for name, arm in [(name, arm) for name, by_arm in by_set.items() for arm in by_arm]:
            first, second = by_set[name][arm], by_set[name].get(comparison.base, {})
            if comparison.paired:
                first, second = ({seed: of[seed] for seed in sorted({*first} & {*second})} for of in (first, second))
            if arm != comparison.base and (n := min(len(first), len(second))) >= FEWEST_SEEDS:
                first, second = (np.stack([*of.values()]) for of in (first, second))
                shift = bootstrap(first, second, comparison.paired, draws)
                found = dict(zip(("mean", "low", "high"), shift, strict=True))
                lines.append({"arm": arm, "base": comparison.base, "set": name, "n": n, "items": first.shape[1]}
                             | found | {"measure": measure})  # fmt: skip
    tables = {"auroc": pandas.DataFrame(areas), "bootstrap": pandas.DataFrame(lines)}
    return {name: json.loads(table.round(3).to_json(orient="records")) for name, table in tables.items()}


def bootstrap(first: np.ndarray, second: np.ndarray, paired: bool, draws: int = 1000) -> tuple[float, float, float]:
    """(mean, low, high) of a difference in points with its 95 % interval, over items and seeds drawn with replacement.

    Args:
        first, second: how right each item is `(seeds, items)`, on the same items in the same order.
        paired: the rows of both are of the same seeds, which are then drawn together.
        draws: from which the percentiles are taken.
    """
    generator = np.random.default_rng(0)

    def weights(n: int) -> np.ndarray:
        return generator.multinomial(n, np.full(n, 1 / n), size=draws) / n  # (draws, n)

    of_items, means = weights(first.shape[1]), []
    for rows in [first - second] if paired else [first, second]:
        by_seed = of_items @ rows.T  # (draws, seeds)
        means.append((weights(len(rows)) * by_seed).sum(axis=1))
    points = 100 * (means[0] if paired else means[0] - means[1])
    low, high = np.percentile(points, [2.5, 97.5])
    return 100 * (first.mean() - second.mean()), float(low), float(high)


def _gold(set_name: str, source: str) -> pandas.DataFrame:
    """The rows of a set: `label`, and in sets of pairs `pair` and `half` ("original" or "edited")."""
    rows = load(set_name, source)
    table = pandas.DataFrame({"label": rows["label"]})
    if get_set(set_name).paired:
        table[["pair", "half"]] = [group.rpartition(":")[::2] for group in rows["group"]]
    return table


def _areas(chances: np.ndarray, rows: pandas.DataFrame) -> dict[str, float]:
    if "half" not in rows:
        return {"auroc": _area(chances, rows["label"])}
    edited = (rows["half"] == "edited").to_numpy()
    parts = {"auroc": edited, "auroc_original": ~edited, "auroc_both": edited | True}
    return {name: _area(chances[part], rows["label"][part]) for name, part in parts.items()}


def _area(chances: np.ndarray, labels: pandas.Series) -> float:
    from sklearn.metrics import roc_auc_score  # takes seconds to import

    if chances.shape[1] == 2:
        return 100 * roc_auc_score(labels, chances[:, 1])
    shares = chances.astype(float)
    shares /= shares.sum(axis=1, keepdims=True)  # float16 is not exact
    return 100 * roc_auc_score(labels, shares, multi_class="ovr", labels=range(chances.shape[1]))


def _right(set_name: str, chances: np.ndarray, rows: pandas.DataFrame, measure: str) -> np.ndarray:
    """How right each item is, from 0 to 1 `(items,)`: an example, in sets of pairs its edited half or "both" halves."""
    answers = chances.argmax(axis=1)
    hits = ((answers != 0) if get_set(set_name).folded else answers) == rows["label"].to_numpy()
    if "pair" not in rows:
        return hits.astype(float)
    halves = rows.assign(hit=hits.astype(float)).pivot(index="pair", columns="half", values="hit").sort_index()
    return (halves["edited"] if measure == "accuracy" else halves.mean(axis="columns")).to_numpy()

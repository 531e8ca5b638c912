"""What the predictions on single examples say, where a run kept its probabilities.

    python -m data.examples decisive RELEASES > data/results/decisive_examples.json

AUROC, and bootstrap intervals over examples and seeds, of a comparison. RELEASES is where the test
sets are: a folder of releases, "hub" or "testbed".
"""

import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas

from mtlib.analysis.comparisons import Comparison, load
from mtlib.analysis.intervals import FEWEST_SEEDS
from mtlib.data.registry import get_set
from mtlib.data.sources import load_described
from mtlib.errors import UserError
from mtlib.runs.inputs import HELD_OUT
from mtlib.runs.records import probabilities

_MEASURES = ("accuracy", "both")

# how correct each item is, `(items,)`, by seed
BySeed = dict[int, np.ndarray]


def of_examples(comparison: Comparison, source: str, draws: int = 1000) -> dict[str, list[dict]]:
    """All results that need the test sets, in a form that can be shipped without them.

    `Comparison.examples` names the file that keeps them.

    Args:
        comparison: whose runs count.
        source: where the test sets are: "testbed", "hub" or a folder of releases.
        draws: number of bootstrap samples.

    Returns:
        `auroc`: by run and set, in per cent, each label against the rest. In sets of pairs it is
        that of the edited halves, beside `auroc_original` and `auroc_both`.
        `bootstrap`: by set and arm, the difference to the base in points with its 95 % interval,
        over items and seeds, for accuracy (of edited halves) and for both halves. None with
        settings `by`, of which an arm has several runs of each seed.

    Raises:
        UserError: a set there has other rows than those scored.
    """
    scored = [*_scored(comparison, source)]
    aurocs = []
    for one in scored:
        predicted = _of_its_labels(one.set_name, one.predicted)
        heading = {"identity": one.record["identity"], "set": one.set_name}
        aurocs.append(heading | _aurocs(predicted, one.gold))
    differences = [] if comparison.by else _bootstraps(comparison, scored, draws)
    columns = ["arm", "base", "set", "n", "items", "mean", "low", "high", "measure"]
    tables = {
        "auroc": pandas.DataFrame(aurocs),
        "bootstrap": pandas.DataFrame(differences, columns=columns),
    }
    return {name: _rounded_rows(table) for name, table in tables.items()}


class _Scored(NamedTuple):
    """A run of an arm, and what it has answered on a set: probabilities `(n, num_labels)`."""

    arm: str
    record: dict
    set_name: str
    predicted: np.ndarray
    gold: pandas.DataFrame


def _scored(comparison: Comparison, source: str) -> Iterator[_Scored]:
    """Each run and set of which probabilities were kept."""
    for arm, record in comparison.runs:
        kept = probabilities(record["identity"], comparison.paths)
        kept.pop(HELD_OUT, None)
        for set_name, predicted in kept.items():
            yield _Scored(arm, record, set_name, predicted, _gold(set_name, source, record))


def _bootstraps(comparison: Comparison, scored: list[_Scored], draws: int) -> list[dict]:
    """A line for each measure, set and arm beside the base."""
    differences = []
    for measure in _MEASURES:
        correct: dict[str, dict[str, BySeed]] = defaultdict(lambda: defaultdict(dict))
        for one in scored:
            hits = _correct(one.set_name, one.predicted, one.gold, measure)
            correct[one.set_name][one.arm][one.record["config"]["seed"]] = hits
        for set_name, by_arm in correct.items():
            rows = _differences_to_base(comparison, by_arm, draws)
            differences += [row | {"set": set_name, "measure": measure} for row in rows]
    return differences


def bootstrap(
    first: np.ndarray,
    second: np.ndarray,
    paired: bool,
    draws: int = 1000,
) -> tuple[float, float, float]:
    """A difference in points with its 95 % interval: (mean, low, high).

    Items and seeds are drawn with replacement.

    Args:
        first, second: how correct each item is, `(seeds, items)`, for the same items in one order.
        paired: the rows of both belong to the same seeds, which are then drawn together.
        draws: number of bootstrap samples, of which the percentiles are taken.
    """
    generator = np.random.default_rng(0)

    def weights(n: int) -> np.ndarray:
        return generator.multinomial(n, np.full(n, 1 / n), size=draws) / n  # (draws, n)

    item_weights = weights(first.shape[1])  # (draws, items)
    means = []
    for rows in [first - second] if paired else [first, second]:
        by_seed = item_weights @ rows.T  # (draws, seeds)
        means.append((weights(len(rows)) * by_seed).sum(axis=1))  # (draws,)
    differences = means[0] if paired else means[0] - means[1]
    low, high = np.percentile(100 * differences, [2.5, 97.5])
    return 100 * (first.mean() - second.mean()), float(low), float(high)


def _rounded_rows(table: pandas.DataFrame) -> list[dict]:
    return json.loads(table.round(3).to_json(orient="records"))


def _differences_to_base(
    comparison: Comparison,
    by_arm: dict[str, BySeed],
    draws: int,
) -> list[dict]:
    """The bootstrap of each arm that has enough seeds, on one set."""
    rows = []
    base = by_arm.get(comparison.base, {})
    for arm, by_seed in by_arm.items():
        if arm == comparison.base:
            continue
        first, second = by_seed, base
        if comparison.paired:
            common = sorted({*by_seed} & {*base})
            first = {seed: by_seed[seed] for seed in common}
            second = {seed: base[seed] for seed in common}
        n = min(len(first), len(second))
        if n < FEWEST_SEEDS:
            continue
        scores, base_scores = np.stack([*first.values()]), np.stack([*second.values()])
        mean, low, high = bootstrap(scores, base_scores, comparison.paired, draws)
        row = {"arm": arm, "base": comparison.base, "n": n, "items": scores.shape[1]}
        rows.append(row | {"mean": mean, "low": low, "high": high})
    return rows


def _gold(set_name: str, source: str, record: dict) -> pandas.DataFrame:
    """The `label` of each row that a run has scored of a set.

    In sets of pairs `pair` and `half` ("original" or "edited") too.
    """
    split = record["config"]["splits"].get(set_name)
    rows, description = load_described(set_name, source, split)
    scored = record["data"][set_name]["content_sha256"]
    if description["content_sha256"] != scored:
        raise UserError(
            f"{set_name} of {source} has other rows than the run {record['identity'][:10]} has "
            f"scored (sha256 {scored}); give the source that it read."
        )
    table = pandas.DataFrame({"label": rows["label"]})
    if get_set(set_name).paired:
        table[["pair", "half"]] = [group.rpartition(":")[::2] for group in rows["group"]]
    return table


def _of_its_labels(set_name: str, predicted: np.ndarray) -> np.ndarray:
    """The probabilities of the set's own labels: HANS tells "entailment" from all others."""
    if not get_set(set_name).folded:
        return predicted
    others = predicted[:, 1:].sum(axis=1)
    return np.stack([predicted[:, 0], others], axis=1)


def _aurocs(predicted: np.ndarray, gold: pandas.DataFrame) -> dict[str, float]:
    """AUROC in per cent of probabilities `(n, num_labels)`, in sets of pairs by half too."""
    if "half" not in gold:
        return {"auroc": _auroc(predicted, gold["label"])}
    edited = (gold["half"] == "edited").to_numpy()
    return {
        "auroc": _auroc(predicted[edited], gold["label"][edited]),
        "auroc_original": _auroc(predicted[~edited], gold["label"][~edited]),
        "auroc_both": _auroc(predicted, gold["label"]),
    }


def _auroc(predicted: np.ndarray, labels: pandas.Series) -> float:
    from sklearn.metrics import roc_auc_score  # takes seconds to import

    predicted = predicted.astype(float)
    n_labels = predicted.shape[1]
    if n_labels == 2:
        # log-odds: a probability near 1 has ties in float16, the other label's has none
        log_probabilities = np.log(predicted.clip(min=np.finfo(np.float32).tiny))
        log_odds = log_probabilities[:, 1] - log_probabilities[:, 0]
        return 100 * roc_auc_score(labels, log_odds)
    normalised = predicted / predicted.sum(axis=1, keepdims=True)  # float16 sums to about 1
    return 100 * roc_auc_score(labels, normalised, multi_class="ovr", labels=range(n_labels))


def _correct(
    set_name: str,
    predicted: np.ndarray,
    gold: pandas.DataFrame,
    measure: str,
) -> np.ndarray:
    """How correct each item is, from 0 to 1: `(items,)`.

    An item is an example. In sets of pairs it is a pair: its edited half, or with the measure
    "both" the mean of its two halves.
    """
    predictions = predicted.argmax(axis=1)
    if get_set(set_name).folded:
        predictions = predictions != 0
    hits = predictions == gold["label"].to_numpy()
    if "pair" not in gold:
        return hits.astype(float)
    halves = gold.assign(hit=hits.astype(float)).pivot(index="pair", columns="half", values="hit")
    halves = halves.sort_index()
    scores = halves["edited"] if measure == "accuracy" else halves.mean(axis="columns")
    return scores.to_numpy()


if __name__ == "__main__":
    name, source = sys.argv[1:]
    print(json.dumps(of_examples(load(name), source)))

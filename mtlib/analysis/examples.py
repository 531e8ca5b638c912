"""What single examples say, where a run kept their probabilities: AUROC, and intervals over examples and seeds."""

from functools import cache

import numpy as np
import pandas
from sklearn.metrics import roc_auc_score

from mtlib.data.registry import get_set
from mtlib.data.sources import load


@cache
def gold(set_name: str, source: str) -> pandas.DataFrame:
    """The rows of a set: `label`, and in sets of pairs `pair` and `half` ("original" or "edited")."""
    rows = load(set_name, source)
    table = pandas.DataFrame({"label": rows["label"]})
    if get_set(set_name).paired:
        table[["pair", "half"]] = [group.rpartition(":")[::2] for group in rows["group"]]
    return table


def areas(chances: np.ndarray, rows: pandas.DataFrame) -> dict[str, float]:
    """Areas under the ROC curve in per cent, of each label against the rest.

    Args:
        chances: each label's probability `(n, num_labels)`.
        rows: of the set, as `gold` has them.

    Returns:
        `auroc`; in sets of pairs that of the edited halves, and `auroc_original` and `auroc_both`.
    """
    if "half" not in rows:
        return {"auroc": _area(chances, rows["label"])}
    parts = {
        "auroc": rows["half"] == "edited",
        "auroc_original": rows["half"] == "original",
        "auroc_both": rows["half"] != "",
    }
    return {name: _area(chances[part.to_numpy()], rows["label"][part]) for name, part in parts.items()}


def right(set_name: str, chances: np.ndarray, rows: pandas.DataFrame, measure: str = "accuracy") -> np.ndarray:
    """How right each item is, from 0 to 1 `(items,)`: an example, in sets of pairs its edited half or "both" halves."""
    answers = chances.argmax(axis=1)
    hits = ((answers != 0) if get_set(set_name).folded else answers) == rows["label"].to_numpy()
    if "pair" not in rows:
        return hits.astype(float)
    halves = rows.assign(hit=hits.astype(float)).pivot(index="pair", columns="half", values="hit").sort_index()
    return (halves["edited"] if measure == "accuracy" else halves.mean(axis="columns")).to_numpy()


def bootstrap(
    first: np.ndarray, second: np.ndarray, paired: bool, draws: int = 1000, seed: int = 0
) -> tuple[float, float, float]:
    """(mean, low, high) of a difference in points with its 95 % interval, over items and seeds drawn with replacement.

    Args:
        first, second: how right each item is `(seeds, items)`, on the same items in the same order.
        paired: the rows of both are of the same seeds, which are then drawn together.
        draws: from which the percentiles are taken.
        seed: of the draws.
    """
    generator = np.random.default_rng(seed)

    def weights(n: int) -> np.ndarray:
        return generator.multinomial(n, np.full(n, 1 / n), size=draws) / n  # (draws, n)

    of_items, means = weights(first.shape[1]), []
    for rows in [first - second] if paired else [first, second]:
        by_seed = of_items @ rows.T  # (draws, seeds)
        means.append((weights(len(rows)) * by_seed).sum(axis=1))
    points = 100 * (means[0] if paired else means[0] - means[1])
    low, high = np.percentile(points, [2.5, 97.5])
    return 100 * (first.mean() - second.mean()), float(low), float(high)


def _area(chances: np.ndarray, labels: pandas.Series) -> float:
    if chances.shape[1] == 2:
        return 100 * roc_auc_score(labels, chances[:, 1])
    shares = chances.astype(float)
    shares /= shares.sum(axis=1, keepdims=True)  # float16 is not exact
    return 100 * roc_auc_score(labels, shares, multi_class="ovr", labels=range(chances.shape[1]))

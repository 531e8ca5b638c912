"""How each set is scored: a model's logits and the gold labels in, the metrics of the set out."""

from collections.abc import Sequence

import numpy as np
from datasets import Dataset

from mtlib.data.registry import SETS, DataSet
from mtlib.data.releases import pair_halves
from mtlib.errors import UserError


def score(
    set_name: str,
    logits: np.ndarray,
    labels: np.ndarray,
    groups: Sequence[str],
) -> dict:
    """Metrics of one set, ready for JSON: `n`, `correct`, `accuracy` (a fraction), `majority` and
    the set's own.

    `logits` is (n, num_labels), `labels` is (n,), `groups` is the set's `group` column. `majority`
    is the accuracy of the best constant answer on the same rows. `per_label` is the score on the
    rows of each gold label: it shows whether a model tells the labels apart or merely gives one
    answer more often.

    - HANS and `testbed_overlap`: three labels fold into two. The label with the largest logit is
      taken, then neutral and contradiction are merged (HANS README). `per_group` is the score of
      each heuristic with each of its gold labels inside.
    - Sets of pairs: `accuracy` is that of the edited halves, `original` that of the other halves.
      `consistency` is the share of pairs with both halves right. The counts are `original_correct`,
      `consistent` and `pairs`.

    Raises `UserError` if a logit is not finite, a label is out of range or a pair is incomplete.
    """
    data_set = SETS[set_name]
    logits = np.asarray(logits, dtype=np.float64)
    labels = np.asarray(labels)
    groups = np.asarray(groups, dtype=str)
    _check(data_set, logits, labels)
    if data_set.folded:
        return _folded(data_set, logits, labels, groups)
    correct = logits.argmax(axis=1) == labels  # (n,)
    if data_set.paired:
        return _paired(data_set, correct, labels, groups)
    return _metrics(data_set, correct, labels)


def score_rows(set_name: str, logits: np.ndarray, rows: Dataset) -> dict:
    """`score` of the rows of a set. Those without a column `group` are one group."""
    groups = rows["group"] if "group" in rows.column_names else [""] * len(rows)
    return score(set_name, logits, np.asarray(rows["label"]), list(groups))


def _folded(
    data_set: DataSet,
    logits: np.ndarray,
    labels: np.ndarray,
    groups: np.ndarray,
) -> dict:
    """The metrics of a set with two labels, of a model with three."""
    non_entailment = logits.argmax(axis=1) != 0
    correct = non_entailment == labels  # (n,)
    heuristics = np.array([group.partition("/")[0] for group in groups])
    per_group = _per_group(correct, heuristics)
    for heuristic, metrics in per_group.items():
        inside = heuristics == heuristic
        metrics.update(_per_label(data_set, correct[inside], labels[inside]))
    return {**_metrics(data_set, correct, labels), "per_group": per_group}


def _paired(data_set: DataSet, correct: np.ndarray, labels: np.ndarray, groups: np.ndarray) -> dict:
    """The metrics of a set of originals and their edited versions."""
    original, edited = pair_halves(data_set.name, groups.tolist())
    originals = _counts(correct[original])
    both = _counts(correct[edited] & correct[original])
    return {
        **_metrics(data_set, correct[edited], labels[edited]),
        "original": originals["accuracy"],
        "original_correct": originals["correct"],
        "consistency": both["accuracy"],
        "consistent": both["correct"],
        "pairs": both["n"],
    }


def _metrics(data_set: DataSet, correct: np.ndarray, labels: np.ndarray) -> dict:
    majority = int(np.bincount(labels).max()) / len(labels)
    per_label = _per_label(data_set, correct, labels)
    return {**_counts(correct), "majority": majority, "per_label": per_label}


def _counts(correct: np.ndarray) -> dict:
    number = int(correct.sum())
    return {"n": len(correct), "correct": number, "accuracy": number / len(correct)}


def _per_group(correct: np.ndarray, groups: np.ndarray) -> dict[str, dict]:
    names = dict.fromkeys(groups.tolist())
    return {str(name): _counts(correct[groups == name]) for name in names}


def _per_label(data_set: DataSet, correct: np.ndarray, labels: np.ndarray) -> dict[str, dict]:
    return _per_group(correct, np.array(data_set.label_names)[labels])


def _check(data_set: DataSet, logits: np.ndarray, labels: np.ndarray) -> None:
    if bad := int((~np.isfinite(logits)).any(axis=1).sum()):
        raise UserError(
            f"{data_set.name}: the logits of {bad} of {len(logits)} rows are NaN or infinite; the "
            "model has diverged: lower the learning rate"
        )
    names = data_set.label_names
    expected = 3 if data_set.folded else len(names)
    if logits.shape[1] != expected or not np.isin(labels, range(len(names))).all():
        raise UserError(
            f"{data_set.name} has the labels {', '.join(names)}: expected {expected} logits, found "
            f"{logits.shape[1]}, and gold labels {np.unique(labels).tolist()}; the model does not "
            "fit the set"
        )

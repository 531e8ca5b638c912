"""How each set is scored: a model's logits and the gold labels in, the metrics of the set out."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from datasets import Dataset

from mtlib.data.registry import HANS, NLI, get_set
from mtlib.errors import UserError
from mtlib.settings import check_choice

ROWS_OF_A_GROUP = 10  # on average; the accuracy of fewer says next to nothing, and hundreds of them fill the records


def score(set_name: str, logits: np.ndarray, labels: np.ndarray, groups: Sequence[str], hans_rule: str = "max") -> dict:
    """Metrics of one set, ready for JSON: `n`, `correct`, `accuracy` (a fraction), `majority` and the set's own.

    `logits` is (n, num_labels), `labels` is (n,), `groups` is the set's `group` column. `majority` is the accuracy of
    the best constant answer on the same rows. `per_label` is the score on the rows of each gold label: it shows whether
    a model tells the labels apart or merely gives one answer more often.

    - HANS and `testbed_overlap`: three labels fold into two by `hans_rule`. "max" takes the largest logit, then merges
      neutral and contradiction (HANS README). "sum" first adds their probabilities (Clark et al. 2019). `rule` names
      the rule of `accuracy`, and `by_rule` has the accuracy under both. `per_group` is the score of each heuristic with
      each of its gold labels inside, `per_subcase` that of each "heuristic/subcase".
    - Sets of pairs: `accuracy` is that of the edited halves, `original` that of the other halves. `consistency` is the
      share of pairs with both halves right. The counts are `original_correct`, `consistent` and `pairs`.
    - Other sets: `per_group` if there is more than one group, and ten rows or more in a group on average.

    Raises `UserError` if shapes do not fit, a logit is not finite, a label is out of range or a pair is incomplete.
    """
    data_set = get_set(set_name)
    logits, labels, groups = np.asarray(logits, dtype=np.float64), np.asarray(labels), np.asarray(groups, dtype=str)
    _check(set_name, logits, labels, groups)
    if data_set.folded:
        return _score_folded(set_name, logits, labels, groups, hans_rule)
    right = logits.argmax(axis=1) == labels  # (n,)
    if data_set.paired:
        return _score_paired(set_name, right, labels, groups)
    metrics = _metrics(set_name, right, labels)
    if 1 < len(set(groups)) <= len(groups) / ROWS_OF_A_GROUP:
        metrics["per_group"] = _per_group(right, groups)
    return metrics


def score_rows(set_name: str, logits: np.ndarray, rows: Dataset, hans_rule: str = "max") -> dict:
    """`score` of the rows of a set. Those without a column `group` are one group."""
    groups = rows["group"] if "group" in rows.column_names else [""] * len(rows)
    return score(set_name, logits, np.asarray(rows["label"]), list(groups), hans_rule)


def _score_folded(set_name: str, logits: np.ndarray, labels: np.ndarray, groups: np.ndarray, rule: str) -> dict:
    check_choice("hans_rule", rule, _FOLDS)
    right_by_rule = {name: fold(logits) == labels for name, fold in _FOLDS.items()}
    right = right_by_rule[rule]
    heuristics = np.array([group.partition("/")[0] for group in groups])
    per_group = _per_group(right, heuristics)
    for heuristic, metrics in per_group.items():
        inside = heuristics == heuristic
        metrics.update(_per_group(right[inside], np.array([HANS[label] for label in labels[inside]])))
    return {
        **_metrics(set_name, right, labels),
        "rule": rule,
        "by_rule": {name: _accuracy(right) for name, right in right_by_rule.items()},
        "per_group": per_group,
        "per_subcase": _per_group(right, groups),
    }


def _fold_max(logits: np.ndarray) -> np.ndarray:
    return (logits.argmax(axis=1) != 0).astype(int)  # (n,)


def _fold_sum(logits: np.ndarray) -> np.ndarray:
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))  # (n, 3), softmax up to its denominator
    return (odds[:, 0] < odds[:, 1:].sum(axis=1)).astype(int)  # (n,)


_FOLDS = {"max": _fold_max, "sum": _fold_sum}


def _score_paired(set_name: str, right: np.ndarray, labels: np.ndarray, groups: np.ndarray) -> dict:
    halves = {"original": {}, "edited": {}}
    for row, group in enumerate(groups.tolist()):
        pair, _, half = group.rpartition(":")
        if half not in halves or pair in halves[half]:
            raise UserError(
                f'{set_name}: expected groups "pair id:original" and "pair id:edited", each once, found {group!r}'
            )
        halves[half][pair] = row
    if halves["original"].keys() != halves["edited"].keys():
        alone = sorted(halves["original"].keys() ^ halves["edited"].keys())
        raise UserError(f"{set_name}: {len(alone)} pairs lack a half, for example {alone[0]!r}; score the whole set")
    edited = np.array(list(halves["edited"].values()))
    original = np.array([halves["original"][pair] for pair in halves["edited"]])
    both = right[edited] & right[original]
    return {
        **_metrics(set_name, right[edited], labels[edited]),
        "original": _accuracy(right[original]),
        "original_correct": int(right[original].sum()),
        "consistency": _accuracy(both),
        "consistent": int(both.sum()),
        "pairs": len(both),
    }


def _metrics(set_name: str, right: np.ndarray, labels: np.ndarray) -> dict:
    most_frequent = Counter(labels.tolist()).most_common(1)[0][1]
    names = np.array(get_set(set_name).label_names)
    return {**_counts(right), "majority": most_frequent / len(labels), "per_label": _per_group(right, names[labels])}


def _counts(right: np.ndarray) -> dict:
    return {"n": len(right), "correct": int(right.sum()), "accuracy": _accuracy(right)}


def _accuracy(right: np.ndarray) -> float:
    return int(right.sum()) / len(right)


def _per_group(right: np.ndarray, groups: np.ndarray) -> dict[str, dict]:
    return {str(group): _counts(right[groups == group]) for group in dict.fromkeys(groups.tolist())}


def _check(set_name: str, logits: np.ndarray, labels: np.ndarray, groups: np.ndarray) -> None:
    if logits.ndim != 2 or labels.ndim != 1 or not len(logits) == len(labels) == len(groups) or len(labels) == 0:
        raise UserError(
            f"{set_name}: expected logits (n, num_labels), labels (n,) and n groups with n > 0, found logits "
            f"{logits.shape}, labels {labels.shape} and {len(groups)} groups"
        )
    if not np.isfinite(logits).all():
        bad = int((~np.isfinite(logits)).any(axis=1).sum())
        raise UserError(
            f"{set_name}: the logits of {bad} of {len(logits)} rows are NaN or infinite; the model has diverged: "
            f"lower the learning rate"
        )
    folded = get_set(set_name).folded
    if folded and logits.shape[1] != len(NLI):
        raise UserError(
            f"{set_name}: expected logits for {len(NLI)} labels ({', '.join(NLI)}), found {logits.shape[1]}"
        )
    highest = len(HANS) if folded else logits.shape[1]
    outside = sorted(set(labels.tolist()) - set(range(highest)))
    if outside:
        raise UserError(
            f"{set_name}: expected labels 0 to {highest - 1}, found {outside}; the model's number of labels does "
            f"not fit the set"
        )

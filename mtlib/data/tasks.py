"""The three tasks, the sets they are trained and tested on, and how each set is scored."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtlib.data.registry import HANS, NLI, PARAPHRASE, SENTIMENT, get_set
from mtlib.data.sources import is_testbed
from mtlib.errors import UserError


@dataclass(frozen=True)
class TaskSets:
    """Names of the sets of one task from one kind of source."""

    train: str
    id: tuple[str, ...]
    ood: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    """One of the paper's tasks. `alpha` and `batch_size` are the paper's (Section IV), the same for all its models."""

    name: str
    labels: tuple[str, ...]
    pair: bool
    alpha: float
    batch_size: int
    real: TaskSets
    testbed: TaskSets

    def train_set(self, source: str) -> str:
        return self._sets(source).train

    def id_sets(self, source: str) -> tuple[str, ...]:
        """In-distribution evaluation sets."""
        return self._sets(source).id

    def ood_sets(self, source: str) -> tuple[str, ...]:
        """Out-of-distribution evaluation sets: for reporting only, never for choosing anything."""
        return self._sets(source).ood

    def evaluation_sets(self, source: str) -> tuple[str, ...]:
        return (*self.id_sets(source), *self.ood_sets(source))

    def dev_set(self, source: str) -> str:
        """The one set that settings may be chosen on."""
        return self._sets(source).id[0]

    def _sets(self, source: str) -> TaskSets:
        return self.testbed if is_testbed(source) else self.real


TASKS: dict[str, Task] = {
    "sentiment": Task(
        "sentiment",
        SENTIMENT,
        pair=False,
        alpha=0.6,
        batch_size=16,
        real=TaskSets("sst2_train", ("sst2",), ("imdb_contrast", "imdb_cad")),
        testbed=TaskSets(
            "testbed_sentiment_train", ("testbed_sentiment",), ("testbed_contrast", "testbed_counterfactual")
        ),
    ),
    "nli": Task(
        "nli",
        NLI,
        pair=True,
        alpha=0.7,
        batch_size=32,
        real=TaskSets("mnli_train", ("mnli_m", "mnli_mm"), ("hans", "anli_r1", "anli_r2", "anli_r3")),
        testbed=TaskSets(
            "testbed_nli_train",
            ("testbed_nli_m", "testbed_nli_mm"),
            ("testbed_overlap", "testbed_adversarial"),
        ),
    ),
    "paraphrase": Task(
        "paraphrase",
        PARAPHRASE,
        pair=True,
        alpha=0.8,
        batch_size=32,
        real=TaskSets("qqp_train", ("qqp",), ("paws_qqp", "paws_wiki")),
        testbed=TaskSets("testbed_paraphrase_train", ("testbed_paraphrase",), ("testbed_scramble",)),
    ),
}

# Sets with two labels, entailment or not, that a model with three labels is tested on.
FOLDED_SETS = ("hans", "testbed_overlap")
# Sets of pairs: an original and its edited version, whose gold labels differ.
CONTRAST_SETS = ("imdb_contrast", "imdb_cad", "testbed_contrast")


def get_task(name: str) -> Task:
    if name not in TASKS:
        raise UserError(f"unknown task {name!r}; expected one of {', '.join(TASKS)}")
    return TASKS[name]


def kind(set_name: str) -> str:
    """What a set is for: "train", "id" (in distribution) or "ood"."""
    for task in TASKS.values():
        for sets in (task.real, task.testbed):
            if set_name == sets.train:
                return "train"
            if set_name in sets.id:
                return "id"
            if set_name in sets.ood:
                return "ood"
    raise UserError(f"set {set_name!r} belongs to no task; expected one of {', '.join(_all_sets())}")


def score(set_name: str, logits: np.ndarray, labels: np.ndarray, groups: Sequence[str], hans_rule: str = "max") -> dict:
    """Metrics of one set, ready for JSON: `n`, `correct`, `accuracy` (a fraction), `majority` and the set's own.

    `logits` is (n, num_labels), `labels` is (n,), `groups` the set's `group` column. `majority` is the accuracy of
    the best constant answer on the same rows; `per_label` the score on the rows of each gold label, which tells an arm
    that has learned to tell them apart from one that merely gives one answer more often.

    - HANS and its likes: three labels fold into two by `hans_rule`. "max" takes the largest logit, then merges
      neutral and contradiction (HANS README); "sum" first adds their probabilities (Clark et al. 2019). `rule` is the
      headline's, `by_rule` has the accuracy under both, `per_group` the score of each heuristic with each of its gold
      labels inside, `per_subcase` that of each "heuristic/subcase".
    - Contrast sets and IMDB-CAD: the headline is the edited halves; `original` is the accuracy on the other halves,
      `consistency` the share of pairs with both halves right; in counts `original_correct`, `consistent`, of `pairs`.
    - The rest: `per_group` if there is more than one group, and not one for every row.

    Raises `UserError` if shapes do not fit, a logit is not finite, a label is out of range or a pair incomplete.
    """
    logits, labels, groups = (
        np.asarray(logits, dtype=np.float64),
        np.asarray(labels),
        np.asarray(groups, dtype=str),
    )
    _check(set_name, logits, labels, groups)
    if set_name in FOLDED_SETS:
        return _score_folded(set_name, logits, labels, groups, hans_rule)
    right = logits.argmax(axis=1) == labels  # (n,)
    if set_name in CONTRAST_SETS:
        return _score_contrast(set_name, right, labels, groups)
    metrics = _metrics(set_name, right, labels)
    if 1 < len(set(groups)) < len(groups):
        metrics["per_group"] = _per_group(right, groups)
    return metrics


def _score_folded(set_name: str, logits: np.ndarray, labels: np.ndarray, groups: np.ndarray, rule: str) -> dict:
    if rule not in _FOLDS:
        raise UserError(f"unknown hans_rule {rule!r}; expected one of {', '.join(_FOLDS)}")
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


def _score_contrast(set_name: str, right: np.ndarray, labels: np.ndarray, groups: np.ndarray) -> dict:
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
    return {
        **_counts(right),
        "majority": most_frequent / len(labels),
        "per_label": _per_group(right, names[labels]),
    }


def _counts(right: np.ndarray) -> dict:
    return {"n": len(right), "correct": int(right.sum()), "accuracy": _accuracy(right)}


def _accuracy(right: np.ndarray) -> float:
    return int(right.sum()) / len(right)


def _per_group(right: np.ndarray, groups: np.ndarray) -> dict[str, dict]:
    return {str(group): _counts(right[groups == group]) for group in dict.fromkeys(groups.tolist())}


def _check(set_name: str, logits: np.ndarray, labels: np.ndarray, groups: np.ndarray) -> None:
    kind(set_name)  # an unknown set is an error here already
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
    folded = set_name in FOLDED_SETS
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


def _all_sets() -> list[str]:
    return [
        name
        for task in TASKS.values()
        for sets in (task.real, task.testbed)
        for name in (sets.train, *sets.id, *sets.ood)
    ]

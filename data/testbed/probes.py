"""Probes of the testbed: how far does each easy rule get, without any understanding of the
sentences?

make_datasheet.py measures the bundled files with them.
"""

from collections.abc import Callable

from mtlib.data.registry import get_set
from mtlib.data.tasks import get_task
from mtlib.testbed.grammar import tokens

Rows = list[dict]
# (task, train rows, evaluation sets by name) -> predicted labels by name
Probe = Callable[[str, Rows, dict[str, Rows]], dict[str, list[int]]]


def evaluation_sets(task: str) -> list[str]:
    """Dev sets first."""
    return list(get_task(task).evaluation_sets("testbed"))


def run_probe(
    probe: Probe, task: str, train: Rows, evaluation: dict[str, Rows]
) -> dict[str, tuple[int, int]]:
    """(correct, n) of a probe by evaluation set.

    A probe returns labels of the task: 0 to 2 for nli, also for a set that has only entailment and
    non-entailment.
    """
    counts = {}
    for name, predicted in probe(task, train, evaluation).items():
        gold = [row["label"] for row in evaluation[name]]
        if get_set(name).folded:
            predicted = [min(label, 1) for label in predicted]
        counts[name] = (sum(p == g for p, g in zip(predicted, gold, strict=True)), len(gold))
    return counts


def bag_of_words(task: str, train: Rows, sets: dict[str, Rows]) -> dict[str, list[int]]:
    """Logistic regression on the words of either text; those of the second are features of their
    own.
    """
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    def words(row: dict) -> list[str]:
        first, second = texts(row)
        return tokens(first) + ["2:" + word for word in tokens(second or "")]

    model = make_pipeline(
        CountVectorizer(analyzer=words, binary=True), LogisticRegression(max_iter=1000)
    )
    model.fit(train, [row["label"] for row in train])
    return {name: model.predict(rows).tolist() for name, rows in sets.items()}


def texts(row: dict) -> tuple[str, str | None]:
    return row["text"], row.get("text_pair")

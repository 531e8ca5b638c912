"""How well each arm predicts the labels, and where the words mislead."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
import pandas
from datasets import Dataset
from sklearn.metrics import f1_score

from mtlib.encoding import predict
from mtlib.own_data.conflicts import most_voted, pointed_labels, votes_of_words
from mtlib.own_data.leans import leans, wilson_interval
from mtlib.own_data.preparing import LABEL, OwnSets, Report, label_names
from mtlib.own_data.suspects import suspects
from mtlib.own_data.training import BASELINE
from mtlib.plm import SharedPLM
from mtlib.rows.folding import folded_word

HIDDEN = "fine_tuning, words masked"  # the same model, when it reads
_RESAMPLES = 2000

Predictions = Mapping[str, Mapping[str, np.ndarray]]  # set, arm -> class numbers (n,)


def predict_sets(
    models: Mapping[str, SharedPLM],
    sets: OwnSets,
    words: Sequence[str],
    max_length: int | None,
) -> Predictions:
    """What each arm answers on each set but the training set.

    Args:
        models: by arm, in the order of `arms_of`; fine-tuning, which it puts last, comes first
            here.
        sets: what is scored.
        words: hidden from the fine-tuned model when it reads, as a further arm.
        max_length: texts are cut to so many tokens, see `predict`.
    """
    predictions: dict[str, dict[str, np.ndarray]] = {}
    for name, rows in sets.scored.items():
        predictions[name] = {
            arm: predict(models[arm], rows, max_length).argmax(1) for arm in reversed(models)
        }
        if words and BASELINE in models:
            logits = predict(models[BASELINE], rows, max_length, hide=words)
            predictions[name][HIDDEN] = logits.argmax(1)
    return predictions


def score(
    predictions: Predictions,
    sets: OwnSets,
    words: pandas.DataFrame,
    report: Report,
) -> pandas.DataFrame:
    """A line for each set but the training set, part of its rows and arm.

    `words` is a table of `suspects`: which labels the words point to. `report` is told of an arm
    that has hardly learned.
    """
    lines = []
    for set_name, rows in sets.scored.items():
        labels = np.array(rows[LABEL])  # (n,)
        for arm, predicted in predictions[set_name].items():
            advice = "give more epochs, or another rate or seed"
            if label := _overused(labels, predicted, sets.label_names):
                report(f"{arm} calls nearly all of {set_name} {label}; {advice}.")
            elif set_name == "dev" and _hardly_learned(labels, predicted):
                report(f"{arm} is hardly better on dev than the commonest label; {advice}.")
        for part, chosen in parts_of(rows, words).items():
            for arm, predicted in predictions[set_name].items():
                measured = scores_of(labels[chosen], predicted[chosen])
                lines.append({"set": set_name, "rows": part, "arm": arm, **measured})
    return pandas.DataFrame(lines)


def score_words(
    predictions: Predictions, sets: OwnSets, words: pandas.DataFrame
) -> pandas.DataFrame:
    """A line for each word, set and arm: the rows in which the word points elsewhere."""
    lines = []
    conflicting = {name: _conflicting_rows(rows, words) for name, rows in sets.scored.items()}
    gold = {name: np.array(rows[LABEL]) for name, rows in sets.scored.items()}
    for word, word_lines in words.groupby("word", sort=False):
        label = ", ".join(dict.fromkeys(word_lines["label"]))
        for set_name, labels in gold.items():
            chosen = conflicting[set_name].get(folded_word(word), [])
            for arm, predicted in predictions[set_name].items():
                accuracy = 100 * float((labels == predicted)[chosen].mean()) if chosen else np.nan
                lines.append((word, label, set_name, arm, len(chosen), accuracy))
    return pandas.DataFrame(lines, columns=["word", "label", "set", "arm", "n", "accuracy"])


def _conflicting_rows(rows: Dataset, words: pandas.DataFrame) -> dict[str, list[int]]:
    """By folded word: the rows in which it points to another label than their own."""
    conflicting: dict[str, list[int]] = defaultdict(list)
    labels = label_names(rows)
    for number, votes in enumerate(votes_of_words(rows, words)):
        for word, of_word in votes.items():
            if most_voted(of_word) != labels[number]:
                conflicting[word].append(number)
    return conflicting


def leans_of_words(
    models: Mapping[str, SharedPLM],
    sets: OwnSets,
    words: pandas.DataFrame,
    max_length: int | None,
    report: Report,
) -> pandas.DataFrame:
    """How much each model leans on each word on dev, with its interval, in per cent."""
    options = {
        "partners": suspects(sets.train, kinds={*words["kind"], "word"}),
        "max_length": max_length,
    }
    tables = []
    say = report
    for arm in reversed(models):
        found = leans(models[arm], sets.dev, words, report=say, **options)
        found = found.rename(columns={"suspect": "word"}).assign(set="dev", arm=arm)
        tables.append(found[["word", "set", "arm", "leans", "low", "high"]])
        say = _silent  # both models have the same words and texts
    return pandas.concat(tables)


def _silent(sentence: str) -> None:
    pass


def _overused(labels: np.ndarray, predicted: np.ndarray, names: Sequence[str]) -> str | None:
    """The label that nearly all rows are given, and that far fewer have."""
    label = np.bincount(predicted).argmax()
    if (predicted == label).mean() > 0.95 and (labels == label).mean() < 0.8:
        return names[label]
    return None


def _hardly_learned(labels: np.ndarray, predicted: np.ndarray) -> bool:
    """Whether it makes nine tenths of the errors or more that the commonest label would make."""
    errors = (predicted != labels).mean()
    return errors > 0.9 * (1 - np.bincount(labels).max() / len(labels))


def parts_of(rows: Dataset, words: pandas.DataFrame) -> dict[str, np.ndarray]:
    """Which rows are in each part of a set, bool `(n,)`; parts without rows are left out.

    Args:
        rows: with numbered labels that have names.
        words: a table of `suspects`.
    """
    parts = {"all": np.ones(len(rows), dtype=bool)}
    pointed = np.array(pointed_labels(rows, words), dtype=object)  # (n,), None: no word
    has_word = np.array([label is not None for label in pointed], dtype=bool)
    agrees = np.array(pointed == np.array(label_names(rows), dtype=object), dtype=bool)
    for name, chosen in (("agreeing", agrees), ("conflicting", has_word & ~agrees)):
        if chosen.any():
            parts[name] = chosen
    return parts


def scores_of(labels: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """`n`, and accuracy and macro F1 in per cent with 95 % intervals.

    Macro F1 is the mean over the labels that are gold or predicted.

    Args:
        labels: gold class numbers, `(n,)`.
        predicted: class numbers, `(n,)`.
    """
    correct = labels == predicted  # (n,)
    accuracy_low, accuracy_high = wilson_interval(correct)
    low, high = _macro_f1_interval(labels, predicted)
    shares = {
        "accuracy": correct.mean(),
        "accuracy_low": accuracy_low,
        "accuracy_high": accuracy_high,
        "macro_f1": f1_score(labels, predicted, average="macro"),
        "macro_f1_low": low,
        "macro_f1_high": high,
    }
    return {"n": len(labels)} | {name: 100 * float(share) for name, share in shares.items()}


def _macro_f1_interval(labels: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Low and high of the 95 % bootstrap interval.

    To draw n rows with replacement is to draw the counts of the confusion matrix, so that all
    resamples are scored in one go. (scikit-learn would read n rows two thousand times.)
    """
    k = 1 + max(labels.max(), predicted.max())
    confusion = np.bincount(labels * k + predicted, minlength=k * k)  # (k * k,), gold by predicted
    generator = np.random.default_rng(0)
    resamples = generator.multinomial(len(labels), confusion / len(labels), _RESAMPLES)
    macro_f1 = _macro_f1(resamples.reshape(-1, k, k))  # (resamples,)
    return np.percentile(macro_f1, [2.5, 97.5])


def _macro_f1(matrices: np.ndarray) -> np.ndarray:
    """Of confusion matrices `(resamples, k, k)`, gold by predicted: `(resamples,)`."""
    gold_and_predicted = matrices.sum(1) + matrices.sum(2)  # (resamples, k)
    correct = np.diagonal(matrices, axis1=1, axis2=2)  # (resamples, k)
    f1 = 2 * correct / np.maximum(gold_and_predicted, 1)
    return f1.sum(1) / (gold_and_predicted > 0).sum(1)

"""Bias-only models: what a classifier learns that may look at a shortcut and at nothing else.

A bias model is fitted on the training set and says, for each example, how likely each label is by the shortcut alone.
`AddBias` puts that beside the examples, where product of experts, Learned-Mixin, Reweight and confidence regularization
read it.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from datasets import Dataset

from mtlib.encoding import check_labels
from mtlib.errors import UserError
from mtlib.method import Prepared, Preparer, check_labelled, check_texts, with_column
from mtlib.plm import SharedPLM

SMALLEST = 1e-6  # probability that a bias model gives, so that its logarithm is finite


class BiasModel(ABC):
    """What a bias model looks at, and the classifier on top of it. It never sees more than one training set's texts."""

    pair: bool | None = None  # the kind of task it is for: pairs of texts, single texts; None: both

    @abstractmethod
    def features(self, plm: SharedPLM, texts: Sequence[str], pairs: Sequence[str] | None) -> np.ndarray:
        """What its classifier reads: one row an example, numbers `(n, features)` or words `(n,)`."""

    def classifier(self):
        """A new scikit-learn classifier on the features."""
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(C=100.0, max_iter=1000)

    def probabilities(self, classifier, features: np.ndarray, n_labels: int) -> np.ndarray:
        """The fitted classifier's probabilities, `(n, n_labels)`; 0 for a label that it has not seen."""
        probabilities = np.zeros((len(features), n_labels))
        probabilities[:, classifier.classes_] = classifier.predict_proba(features)
        return probabilities

    def labels(self, labels: np.ndarray) -> np.ndarray:
        """What the classifier is fitted to tell apart; by default the labels as they are."""
        return labels


@dataclass(frozen=True)
class AddBias(Preparer):
    """Puts `bias_log_probabilities` (one number a label) and `bias_features` beside each training example.

    Models on words have no features of their own for a bias network to read: it gets their log-probabilities.

    Counts, for the record: the bias model's accuracy on the training set, the mean probability that it gives to the
    gold label, and its calibration error (ten equally wide bins of its confidence).

    Args:
        model: the bias model.
        folds: each example is predicted by a model that was fitted without it, on the other `folds` - 1 parts. 1: one
            model is fitted on all and predicts its own training data, as in the released code of all these methods.
    """

    model: BiasModel
    folds: int = 5
    reads = ("text", "text_pair")

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        check_texts(examples, self)
        check_labelled(examples, self)
        check_labels("the training set", examples, plm.config.num_labels)
        if self.model.pair is not None and self.model.pair != ("text_pair" in examples.column_names):
            kind = "pairs of texts" if self.model.pair else "single texts"
            raise UserError(
                f"the bias model {type(self.model).__name__} is for {kind}, and the examples have the columns "
                f"{', '.join(examples.column_names)}; take another model, or keep `text_pair` when tokenising."
            )
        pairs = examples["text_pair"][:] if "text_pair" in examples.column_names else None
        features = self.model.features(plm, examples["text"][:], pairs)
        labels = np.array(examples["labels"][:])
        probabilities = predict_out_of_fold(self.model, features, labels, plm.config.num_labels, self.folds, seed)
        logs = np.log(probabilities)
        shown = logs if features.dtype == object else features
        for name, values in (("bias_log_probabilities", logs), ("bias_features", shown)):
            examples = with_column(examples, name, values.astype(np.float32).tolist())
        return Prepared(examples, bias_quality(probabilities, labels))


def check_probabilities(examples: Dataset | None, name: str, n_labels: int, logarithms: bool = False) -> None:
    """Raise `UserError` where a row of the column `name` does not add up to 1: the loss could then be 0, or anything.

    Without examples, and where they are made on the fly, nothing is checked.
    """
    if not isinstance(examples, Dataset) or name not in examples.column_names:
        return

    def holds(row: object) -> bool:
        if not isinstance(row, list) or len(row) != n_labels:
            return False
        total = sum(math.exp(min(value, 1)) for value in row) if logarithms else sum(row)  # no overflow
        return abs(total - 1) < 0.01  # room for rounded numbers; False for NaN

    for number, row in enumerate(examples.with_format(None)[name][:]):
        if not holds(row):
            what = "logarithms of probabilities" if logarithms else "probabilities"
            raise UserError(
                f"row {number} of the training set has {row} for {name}; expected the {what} of {n_labels} labels, "
                "which add up to 1."
            )


def predict_out_of_fold(
    model: BiasModel, features: np.ndarray, labels: np.ndarray, n_labels: int, folds: int, seed: int = 0
) -> np.ndarray:
    """Each example's probabilities by a model fitted on the other folds, or on all where `folds` is 1: `(n, n_labels)`.

    Where the other folds lack a label, fitting sees all examples.
    """
    fold_of = np.random.default_rng(seed).permutation(len(labels)) % min(folds, len(labels))
    classes, probabilities = model.labels(labels), np.empty((len(labels), n_labels))
    for fold in range(fold_of.max() + 1):
        left_out = fold_of == fold
        seen = ~left_out if set(classes[~left_out]) == set(classes) else np.ones_like(left_out)
        if len(set(classes[seen])) < 2:
            raise UserError("the training set has one label only; a bias model needs two to tell apart.")
        classifier = model.classifier().fit(features[seen], classes[seen])
        probabilities[left_out] = model.probabilities(classifier, features[left_out], n_labels)
    probabilities = probabilities.clip(SMALLEST)
    return probabilities / probabilities.sum(axis=1, keepdims=True)


def bias_quality(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Accuracy, mean probability of the gold label, and expected calibration error over ten bins."""
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    bins = np.minimum((confidence * 10).astype(int), 9)
    gaps = [abs((confidence - right)[bins == number].sum()) for number in range(10)]
    return {
        "bias_accuracy": round(float(right.mean()), 4),
        "bias_gold_probability": round(float(probabilities[np.arange(len(labels)), labels].mean()), 4),
        "bias_calibration_error": round(float(sum(gaps) / len(labels)), 4),
    }


def words(text: str) -> list[str]:
    """The words of a text in lower case, punctuation left out."""
    return re.findall(r"\w+(?:'\w+)?", text.lower())

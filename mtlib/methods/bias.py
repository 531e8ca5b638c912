"""Bias-only models: what a classifier learns that may look at a shortcut and at nothing else.

A bias model is fitted on the training set and says, for each example, how likely each label is by the shortcut alone.
`AddBias` puts that beside the examples, where product of experts, Learned-Mixin, Reweight and confidence regularization
read it. `mtlib.methods.bias_models` has the models by name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from datasets import Dataset
from torch import Tensor

from mtlib.encoding import check_labels
from mtlib.errors import UserError
from mtlib.method import Prepared, Preparer, require_columns, with_column
from mtlib.objectives import Objective, ObjectiveOutput
from mtlib.plm import SharedPLM

SMALLEST = 1e-6  # probability that a bias model gives, so that its logarithm is finite


def logistic_regression():
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=100.0, max_iter=1000)


class BiasModel(NamedTuple):
    """What a bias model looks at, and the classifier on top of it.

    Args:
        name: in messages.
        features: `(plm, texts, second texts or None)` -> what the classifier reads: one row an example, numbers
            `(n, features)` or texts `(n,)`.
        classifier: makes a new one, of scikit-learn.
        pair: the kind of task it is for: pairs of texts, single texts; None: both.
        entailment: it tells entailment (label 0, in GLUE's order) from the rest, of which the other labels get equal
            parts, as in the code of Clark et al.
    """

    name: str
    features: Callable[[SharedPLM, Sequence[str], Sequence[str] | None], np.ndarray]
    classifier: Callable[[], object] = logistic_regression
    pair: bool | None = None
    entailment: bool = False


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
        require_columns(examples, self, "text", "labels")
        check_labels("the training set", examples, plm.config.num_labels)
        pairs = examples["text_pair"][:] if "text_pair" in examples.column_names else None
        features, labels = self.model.features(plm, examples["text"][:], pairs), np.array(examples["labels"][:])
        probabilities = predict_out_of_fold(self.model, features, labels, plm.config.num_labels, self.folds, seed)
        logs = np.log(probabilities)
        shown = logs if features.dtype == object else features
        for name, values in (("bias_log_probabilities", logs), ("bias_features", shown)):
            examples = with_column(examples, name, values.astype(np.float32).tolist())
        return Prepared(examples, bias_quality(probabilities, labels))


def predict_out_of_fold(
    model: BiasModel, features: np.ndarray, labels: np.ndarray, n_labels: int, folds: int, seed: int = 0
) -> np.ndarray:
    """Each example's probabilities by a model fitted on the other folds, or on all where `folds` is 1: `(n, n_labels)`.

    Where the other folds lack a label, fitting sees all examples.
    """
    means = np.eye(n_labels)  # (classes, n_labels): how a class of the classifier is shared out among the labels
    if model.entailment:
        labels = (labels != 0).astype(int)
        means = np.stack([means[0], (1 - means[0]) / (n_labels - 1)])
    fold_of = np.random.default_rng(seed).permutation(len(labels)) % min(folds, len(labels))
    probabilities = np.empty((len(labels), n_labels))
    for fold in range(fold_of.max() + 1):
        left_out = fold_of == fold
        seen = ~left_out if set(labels[~left_out]) == set(labels) else np.ones_like(left_out)
        classifier = model.classifier().fit(features[seen], labels[seen])
        probabilities[left_out] = classifier.predict_proba(features[left_out]) @ means[classifier.classes_]
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


class ReadsBias(Objective):
    """A loss that reads `bias_log_probabilities`, `(batch, classes)`, which `AddBias` puts beside each example.

    A class below it has a `loss`, or a `forward` of its own.
    """

    loss: Callable[[Tensor, dict], Tensor]  # of class logits `(batch, classes)` and the batch: scalar
    columns = {"bias_log_probabilities": 0.0}
    prepared_by = "mtlib.methods.bias.AddBias"

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        for name in self.columns if isinstance(examples, Dataset) else ():
            if name in examples.column_names:
                check_distributions(name, examples.with_format(None)[name][:], plm.config.num_labels)

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        logits = plm.classify(batch)  # (batch, classes)
        return ObjectiveOutput({"ft_loss": self.loss(logits, batch)}, {"ft_loss": 1.0}, logits)


def check_distributions(name: str, rows: Sequence, n_labels: int) -> None:
    """Raise `UserError` where a row does not add up to 1: the loss could then be 0, or anything.

    The rows of a column named `..._log_probabilities` are logarithms.
    """
    what = "logarithms of probabilities" if name.endswith("log_probabilities") else "probabilities"
    for number, row in enumerate(rows):
        values = np.asarray(row, dtype=float)
        total = (np.exp(values.clip(max=1)) if what.startswith("log") else values).sum()  # no overflow
        if values.shape != (n_labels,) or not abs(total - 1) < 0.01:  # room for rounded numbers; NaN is not less
            raise UserError(
                f"row {number} of the training set has {row} for {name}; expected the {what} of {n_labels} labels, "
                "which add up to 1."
            )

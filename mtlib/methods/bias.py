"""Bias-only models: what a classifier learns that may look at a shortcut and at nothing else.

A bias model is fitted on the training set and says, for each example, how likely each label is by the shortcut alone.
`AddBias` puts that beside the examples, where product of experts, Learned-Mixin, Reweight and confidence regularization
read it. To add one, write what it looks at, a line in `BIAS_MODELS`, and its name in
`mtlib.methods.settings`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from torch.nn.functional import normalize

from mtlib.contexts import evaluating
from mtlib.encoding import check_labels
from mtlib.objectives import Objective, ObjectiveOutput
from mtlib.plm import SharedPLM
from mtlib.preparing import Prepared, Preparer, require_columns, with_column
from mtlib.testbed.generator import shortcut_label
from mtlib.testbed.grammar import LABELS, load_grammar
from mtlib.tokens import text_reader

FOLDS = 5
SMALLEST = 1e-6  # probability that a bias model gives, so that its logarithm is finite
_LONGEST, _BATCH = 64, 64  # tokens of a text, special ones included, as in the code of Karimi Mahabadi et al.; pairs
_BALANCED = {"C": 100.0, "class_weight": "balanced", "solver": "liblinear"}  # Clark et al.


class BiasModel(NamedTuple):
    """What a bias model looks at, and the logistic regression on top of it.

    Args:
        features: `(plm, texts, second texts or None)` -> numbers `(n, features)`, or texts `(n,)` of which the
            regression sees which words there are.
        options: of scikit-learn's `LogisticRegression`.
        entailment: it tells entailment (label 0, in GLUE's order) from the rest, of which the other labels get equal
            parts, as in the code of Clark et al.
    """

    features: Callable[[SharedPLM, Sequence[str], Sequence[str] | None], np.ndarray]
    options: Mapping[str, object] = {"C": 100.0, "max_iter": 1000}
    entailment: bool = False


@dataclass(frozen=True)
class AddBias(Preparer):
    """Puts `bias_log_probabilities` (one number a label) and `bias_features` beside each training example.

    Each example is predicted by a model that was fitted on the other four fifths. (In the released code of all these
    methods one model predicts its own training data.) Models on words have no features of their own for a bias network
    to read: it gets their log-probabilities.

    Counts, for the record, the bias model's accuracy on the training set, and the mean probability of the gold label.
    """

    model: BiasModel
    reads = ("text", "text_pair")

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        require_columns(examples, self, "text", "labels")
        check_labels("the training set", examples, plm.config.num_labels)
        pairs = examples["text_pair"][:] if "text_pair" in examples.column_names else None
        features, labels = self.model.features(plm, examples["text"][:], pairs), np.array(examples["labels"][:])
        probabilities = predict_out_of_fold(self.model, features, labels, plm.config.num_labels, seed)
        logs = np.log(probabilities)
        for name, values in (
            ("bias_log_probabilities", logs), ("bias_features", logs if features.dtype == object else features),
        ):  # fmt: skip
            examples = with_column(examples, name, values.astype(np.float32).tolist())
        gold, right = probabilities[np.arange(len(labels)), labels], probabilities.argmax(axis=1) == labels
        numbers = {"bias_accuracy": right.mean(), "bias_gold_probability": gold.mean()}
        return Prepared(examples, {name: round(float(number), 4) for name, number in numbers.items()})


def predict_out_of_fold(
    model: BiasModel, features: np.ndarray, labels: np.ndarray, n_labels: int, seed: int = 0
) -> np.ndarray:
    """Each example's probabilities by a model that was fitted on the other folds: `(n, n_labels)`."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import PredefinedSplit, cross_val_predict
    from sklearn.pipeline import make_pipeline

    means = np.eye(n_labels)  # (classes, n_labels): how a class of the regression is shared out among the labels
    if model.entailment:
        labels = (labels != 0).astype(int)
        means = np.stack([means[0], (1 - means[0]) / (n_labels - 1)])
    bag = (
        CountVectorizer(tokenizer=words, token_pattern=None, binary=True) if features.dtype == object else "passthrough"
    )
    folds = PredefinedSplit(np.random.default_rng(seed).permutation(len(labels)) % FOLDS)
    regression = make_pipeline(bag, LogisticRegression(**model.options))
    probabilities = cross_val_predict(regression, features, labels, cv=folds, method="predict_proba")  # (n, classes)
    probabilities = (probabilities @ means[np.unique(labels)]).clip(SMALLEST)
    return probabilities / probabilities.sum(axis=1, keepdims=True)


def unexplained(bias_log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """1 - b_y, `(batch,)`: how little the bias knows of the gold label."""
    return -bias_log_probabilities.float().gather(1, labels[:, None]).squeeze(1).expm1()


class ReadsBias(Objective):
    """A loss that reads `bias_log_probabilities`, `(batch, classes)`, which `AddBias` puts beside each example.

    A class below it has a `loss` of the class logits `(batch, classes)`, its columns and the labels `(batch,)`, or a
    `forward` of its own.
    """

    loss: Callable[..., Tensor]
    columns = {"bias_log_probabilities": 0.0}

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        logits = plm.classify(batch)  # (batch, classes)
        loss = self.loss(logits, *(batch[name] for name in self.columns), batch["labels"])
        return ObjectiveOutput({"ft_loss": loss}, {"ft_loss": 1.0}, logits)


# --- what bias models look at ---


def words(text: str) -> list[str]:
    """The words of a text in lower case, punctuation left out."""
    return re.findall(r"\w+(?:'\w+)?", text.lower())


def lexical_overlap(plm, texts, pairs) -> np.ndarray:
    """The share of words that both texts have, of all, of the first's, of the second's."""
    rows = []
    for a, b in zip(texts, pairs, strict=True):
        first, second = set(words(a)), set(words(b))
        rows.append([len(first & second) / max(len(part), 1) for part in (first | second, first, second)])
    return np.array(rows)


def overlap(plm: SharedPLM, texts, pairs) -> np.ndarray:
    """Clark et al. 2019: seven features of how the hypothesis's words stand in the premise.

    They are: the hypothesis is a contiguous part of the premise; all its words are in the premise; the share of them
    that are; log max(|P| - |H|, 1), in words; and over the words of the hypothesis the mean, the smallest and the
    second smallest of the best cosine with a word of the premise.

    A word's vector is the mean of its pieces' input embeddings in the trunk, where Clark et al. take fastText's; words
    are looked up in lower case.
    """
    table = plm.trunk.get_input_embeddings().weight.detach().float().cpu()  # (vocab, hidden)

    @cache
    def vector(word: str) -> Tensor:
        return normalize(table[plm.tokenizer(f" {word}", add_special_tokens=False)["input_ids"]].mean(0), dim=0)

    def read(text: str) -> _Words:
        of_text = words(text)
        return _Words(of_text, torch.stack([*map(vector, of_text)]) if of_text else table[:0])

    def row(premise: _Words, hypothesis: _Words) -> list[float]:
        inside, best = [word in premise.words for word in hypothesis.words], _best_cosines(hypothesis, premise)
        smallest, length = best.sort().values, max(len(premise.words) - len(hypothesis.words), 1)
        return [
            is_part(hypothesis.words, premise.words), all(inside), sum(inside) / max(len(inside), 1), np.log(length),
            best.mean(), smallest[0], smallest[min(1, len(smallest) - 1)],
        ]  # fmt: skip

    return np.array([row(read(a), read(b)) for a, b in zip(texts, pairs, strict=True)], dtype=float)


def token_overlap(plm: SharedPLM, texts, pairs) -> np.ndarray:
    """Karimi Mahabadi et al. 2020: six of their seven features, on the model's own tokens.

    They are: all tokens of the hypothesis are in the premise; the share of its distinct tokens that are; it is a
    contiguous part of the premise; and over its tokens the mean, the largest and the smallest of the best cosine with a
    token of the premise. The seventh, whether the hypothesis is a constituent of the premise, takes a parse of it. In
    their code that feature is always false, for it reads a parse of another format than it expects.

    The cosines are of the states of the trunk's last layer, each text read by itself. Unlike in their code, they are
    those of the pretrained model, computed once and without dropout, and each is multiplied by its own padding.
    """

    def row(premise: _Words, hypothesis: _Words) -> list[float]:
        inside = [piece in premise.words for piece in {*hypothesis.words}]
        best = _best_cosines(hypothesis, premise)
        return [
            all(inside), sum(inside) / max(len(inside), 1), is_part(hypothesis.words, premise.words),
            best.mean(), best.max(), best.min(),
        ]  # fmt: skip

    rows = []
    with torch.no_grad(), evaluating(plm), torch.autocast(plm.device.type, enabled=False):
        for first in range(0, len(texts), _BATCH):
            some = slice(first, first + _BATCH)
            rows += map(row, _tokens(plm, texts[some]), _tokens(plm, pairs[some]))
    return np.array(rows, dtype=float)


def shortcut(plm: SharedPLM, texts, pairs) -> np.ndarray:
    """The label that the testbed's shortcut suggests; how often it is right, the regression learns from the data.

    The task is told from the number of labels and from whether there are pairs.
    """
    n_labels = plm.config.num_labels
    task = "sentiment" if pairs is None else "nli" if n_labels == LABELS["nli"] else "paraphrase"
    grammar = load_grammar(task)
    rows = [(text,) for text in texts] if pairs is None else zip(texts, pairs, strict=True)
    return np.eye(n_labels)[[shortcut_label(grammar, *row) for row in rows]]


class _Words(NamedTuple):
    words: list[str]
    vectors: Tensor  # (words, hidden), each of length 1


def _best_cosines(hypothesis: _Words, premise: _Words) -> Tensor:
    """Of each word of the hypothesis with a word of the premise; 0 where one of them has none."""
    if not (hypothesis.words and premise.words):
        return torch.zeros(1)
    return (hypothesis.vectors @ premise.vectors.T).amax(1)  # (words of the hypothesis,)


def _tokens(plm: SharedPLM, texts: Sequence[str]) -> list[_Words]:
    # byte-level tokenizers have another token for a word at the very beginning, hence the blank
    batch = text_reader(plm.tokenizer)(
        [f" {text}" for text in texts], truncation=True, max_length=_LONGEST, padding=True, padding_side="right",
        return_tensors="pt", return_special_tokens_mask=True,
    )  # fmt: skip
    own = ~batch.pop("special_tokens_mask").bool()  # (batch, seq): of the texts, not special and no padding
    output = plm.trunk(**plm.inputs(batch.to(plm.device)), return_dict=True)
    states = normalize(output.last_hidden_state.float(), dim=-1).cpu()  # (batch, seq, hidden)
    return [
        _Words(plm.tokenizer.convert_ids_to_tokens(ids[kept].tolist()), vectors[kept])
        for ids, vectors, kept in zip(batch["input_ids"].cpu(), states, own, strict=True)
    ]


def is_part(inner: list[str], outer: list[str]) -> bool:
    """Whether the words of `inner` stand in `outer` one after the other."""
    return any(outer[start : start + len(inner)] == inner for start in range(len(outer) - len(inner) + 1))


# --- by name ---


BIAS_MODELS = {
    "overlap": BiasModel(overlap, _BALANCED, entailment=True),
    "token_overlap": BiasModel(token_overlap, _BALANCED, entailment=True),
    "lexical_overlap": BiasModel(lexical_overlap),
    "bag_of_words": BiasModel(lambda plm, texts, pairs: np.array(texts, dtype=object), options={}),
    "shortcut": BiasModel(shortcut),
}

"""Bias-only models: what a classifier learns that may look at a shortcut and at nothing else.

A bias model is fitted on the training set and predicts each label's probability from the shortcut
alone. `AddBias` adds these to the examples; product of experts, Learned-Mixin, Reweight and
confidence regularization read them. To add one, write what it looks at, a line in `BIAS_MODELS`,
and its name in `mtlib.methods.settings`.
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
from mtlib.objectives import Objective, ObjectiveOutput
from mtlib.plm import SharedPLM
from mtlib.preparing import Prepared, Transform, require_columns, with_column
from mtlib.testbed.generator import shortcut_label
from mtlib.testbed.grammar import N_LABELS, load_grammar
from mtlib.tokens import text_reader

FOLDS = 5
SMALLEST = 1e-6  # probability that a bias model gives, so that its logarithm is finite
# tokens of a text, special ones included, as in the code of Karimi Mahabadi et al.
_MAX_TOKENS = 64
_BATCH_SIZE = 64  # in pairs
_SENTENCE_ENDS = (".", "?", "!")
_BLANKS = "Ġ▁"  # how tokens begin that have a blank before them
_BALANCED = {"C": 100.0, "class_weight": "balanced", "solver": "liblinear"}  # Clark et al.


class BiasModel(NamedTuple):
    """What a bias model looks at, and the logistic regression on top of it.

    Args:
        features: `(plm, texts, second texts or None)` -> numbers `(n, features)`; or texts `(n,)`,
            of which the regression sees which words they contain.
        options: of scikit-learn's `LogisticRegression`; those of the recorded runs, so that words
            are regularised more (C = 1) than features.
        entailment: it distinguishes entailment (label 0, in GLUE's order) from the rest, which the
            other labels share equally, as in the code of Clark et al.
    """

    features: Callable[[SharedPLM, Sequence[str], Sequence[str] | None], np.ndarray]
    options: Mapping[str, object] = {"C": 100.0, "max_iter": 1000}
    entailment: bool = False


@dataclass(frozen=True)
class AddBias(Transform):
    """Adds `bias_log_probabilities` (one number per label) and `bias_features` to each example.

    Each example is predicted by a model that was fitted on the other four fifths. (In the released
    code of all these methods, one model predicts its own training data.) Models on words have no
    features of their own for a bias network to read; it gets their log-probabilities.

    The record gets the bias model's accuracy on the training set, and its mean probability of the
    gold label.
    """

    model: BiasModel
    reads = ("text", "text_pair")

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        require_columns(examples, self, "text", "labels")
        labels = np.array(examples["labels"][:])
        pairs = examples["text_pair"][:] if "text_pair" in examples.column_names else None
        with torch.autocast(plm.device.type, enabled=False):  # in float32 where training is in bf16
            features = self.model.features(plm, examples["text"][:], pairs)
        n_labels = plm.config.num_labels
        probabilities = predict_out_of_fold(self.model, features, labels, n_labels, seed)
        logs = np.log(probabilities)
        if features.dtype == object:
            features = logs
        for name, values in (("bias_log_probabilities", logs), ("bias_features", features)):
            examples = with_column(examples, name, values.astype(np.float32).tolist())
        accuracy = (probabilities.argmax(axis=1) == labels).mean()
        gold_probability = probabilities[np.arange(len(labels)), labels].mean()
        counts = {
            "bias_accuracy": round(float(accuracy), 4),
            "bias_gold_probability": round(float(gold_probability), 4),
        }
        return Prepared(examples, counts)


def predict_out_of_fold(
    model: BiasModel,
    features: np.ndarray,
    labels: np.ndarray,
    n_labels: int,
    seed: int = 0,
) -> np.ndarray:
    """Each example's probabilities, by a model fitted on the other folds: `(n, n_labels)`."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import PredefinedSplit, cross_val_predict
    from sklearn.pipeline import make_pipeline

    # how the labels share a class of the regression: (classes, n_labels)
    shares = np.eye(n_labels)
    if model.entailment:
        labels = (labels != 0).astype(int)
        entailment = shares[0]
        shares = np.stack([entailment, (1 - entailment) / (n_labels - 1)])
    bag = "passthrough"
    if features.dtype == object:
        bag = CountVectorizer(tokenizer=words, token_pattern=None, binary=True)
    regression = make_pipeline(bag, LogisticRegression(**model.options))
    fold_of_example = np.random.default_rng(seed).permutation(len(labels)) % FOLDS
    probabilities = cross_val_predict(
        regression,
        features,
        labels,
        cv=PredefinedSplit(fold_of_example),
        method="predict_proba",
    )  # (n, classes)
    probabilities = (probabilities @ shares[np.unique(labels)]).clip(SMALLEST)
    return probabilities / probabilities.sum(axis=1, keepdims=True)


def unexplained(bias_log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """1 - b_y, `(batch,)`: how little the bias knows of the gold label."""
    return -bias_log_probabilities.float().gather(1, labels[:, None]).squeeze(1).expm1()


class ReadsBias(Objective):
    """A loss that reads `bias_log_probabilities`, `(batch, classes)`, which `AddBias` adds.

    A subclass has a `loss` of the class logits `(batch, classes)`, its columns and the labels
    `(batch,)`, or a `forward` of its own.
    """

    loss: Callable[..., Tensor]
    columns = {"bias_log_probabilities": 0.0}

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        logits = plm.classify(batch)  # (batch, classes)
        columns = [batch[name] for name in self.columns]
        loss = self.loss(logits, *columns, batch["labels"])
        return ObjectiveOutput({"ft_loss": loss}, {"ft_loss": 1.0}, logits)


# --- what bias models look at ---


def words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation."""
    return re.findall(r"\w+(?:'\w+)?", text.lower())


def bag_of_words(plm, texts, pairs) -> np.ndarray:
    """The texts, of pairs both in one.

    Words of the second text are marked (`second_good`), so that they are told from the first's.
    """
    rows = list(texts)
    for row, pair in enumerate(pairs or ()):
        marked = [f"second_{word}" for word in words(pair)]
        rows[row] = " ".join([rows[row], *marked])
    return np.array(rows, dtype=object)


def lexical_overlap(plm, texts, pairs) -> np.ndarray:
    """The number of words in both texts, as a share of all words, the first's, the second's."""
    rows = []
    for text, pair in zip(texts, pairs, strict=True):
        first = set(words(text))
        second = set(words(pair))
        n_shared = len(first & second)
        rows.append([n_shared / max(len(part), 1) for part in (first | second, first, second)])
    return np.array(rows)


def overlap(plm: SharedPLM, texts, pairs) -> np.ndarray:
    """Seven features of how the words of the hypothesis occur in the premise (Clark et al. 2019).

    They are: whether the hypothesis is a contiguous part of the premise; whether all its words are
    in the premise; the share of them that are; log max(|P| - |H|, 1), in words; and over the words
    of the hypothesis the mean, the smallest and the second smallest of the best cosine with a word
    of the premise. A hypothesis of one word has no second smallest, and the smallest stands there
    again (Clark et al.: 0). Punctuation is no word. (Clark et al. count it.)

    A word's vector is the mean of its pieces' input embeddings in the trunk. (Clark et al. take
    fastText's.) Words are looked up in lower case.
    """
    table = plm.trunk.get_input_embeddings().weight.detach().float().cpu()  # (vocab, hidden)

    @cache
    def vector(word: str) -> Tensor:
        pieces = plm.tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
        return normalize(table[pieces].mean(0), dim=0)

    def embedded(text: str) -> _Embedded:
        found = words(text)
        vectors = torch.stack([*map(vector, found)]) if found else table[:0]
        return _Embedded(found, vectors)

    rows = []
    for premise, hypothesis in zip(texts, pairs, strict=True):
        rows.append(_overlap_features(embedded(premise), embedded(hypothesis)))
    return np.array(rows, dtype=float)


def _overlap_features(premise: "_Embedded", hypothesis: "_Embedded") -> list[float]:
    """The seven features of `overlap` for one pair."""
    in_premise = [word in premise.words for word in hypothesis.words]
    difference = len(premise.words) - len(hypothesis.words)
    best = _best_cosines(hypothesis, premise)
    ascending = best.sort().values
    second = min(1, len(ascending) - 1)
    return [
        is_part(hypothesis.words, premise.words),
        all(in_premise),
        sum(in_premise) / max(len(in_premise), 1),
        np.log(max(difference, 1)),
        best.mean(),
        ascending[0],
        ascending[second],
    ]


def token_overlap(plm: SharedPLM, texts, pairs) -> np.ndarray:
    """Six of the seven features of Karimi Mahabadi et al. (2020), on the model's own tokens.

    They are: whether all tokens of the hypothesis are in the premise; the share of its distinct
    tokens that are; whether it is a contiguous part of the premise; and over its tokens the mean,
    the largest and the smallest of the best cosine with a token of the premise. For the first three
    tokens are in lower case, and what ends a sentence is left out (`.`, `?`, `!`). The seventh,
    whether the hypothesis is a constituent of the premise, needs a parse. In their code that
    feature is always false, because it reads a parse of another format than it expects.

    The cosines are of the states of the trunk's last layer, with each text read by itself. Unlike
    in their code, they are those of the pretrained model, computed once and without dropout, and
    each is multiplied by its own padding.
    """
    rows = []
    with torch.no_grad(), evaluating(plm):
        for first in range(0, len(texts), _BATCH_SIZE):
            batch = slice(first, first + _BATCH_SIZE)
            premises = _embedded_tokens(plm, texts[batch])
            hypotheses = _embedded_tokens(plm, pairs[batch])
            rows += map(_token_overlap_features, premises, hypotheses)
    return np.array(rows, dtype=float)


def _token_overlap_features(premise: "_Embedded", hypothesis: "_Embedded") -> list[float]:
    """The six features of `token_overlap` for one pair."""
    premise_tokens = _without_sentence_ends(premise.words)
    hypothesis_tokens = _without_sentence_ends(hypothesis.words)
    in_premise = [token in premise_tokens for token in {*hypothesis_tokens}]
    best = _best_cosines(hypothesis, premise)
    return [
        all(in_premise),
        sum(in_premise) / max(len(in_premise), 1),
        is_part(hypothesis_tokens, premise_tokens),
        best.mean(),
        best.max(),
        best.min(),
    ]


def _without_sentence_ends(tokens: list[str]) -> list[str]:
    """The tokens in lower case, without those that end a sentence."""
    return [token.lower() for token in tokens if token.lstrip(_BLANKS) not in _SENTENCE_ENDS]


def shortcut(plm: SharedPLM, texts, pairs) -> np.ndarray:
    """The label that the testbed's shortcut suggests, one-hot.

    The regression learns from the data how often it is correct. The number of labels, and whether
    there are pairs, determine the task.
    """
    n_labels = plm.config.num_labels
    if pairs is None:
        grammar = load_grammar("sentiment")
        labels = [shortcut_label(grammar, text) for text in texts]
    else:
        grammar = load_grammar("nli" if n_labels == N_LABELS["nli"] else "paraphrase")
        labels = [shortcut_label(grammar, *row) for row in zip(texts, pairs, strict=True)]
    return np.eye(n_labels)[labels]


class _Embedded(NamedTuple):
    """The words of a text, or its tokens, each with its vector."""

    words: list[str]
    vectors: Tensor  # (words, hidden), each of length 1


def _best_cosines(hypothesis: _Embedded, premise: _Embedded) -> Tensor:
    """The best cosine of each word of the hypothesis with a word of the premise.

    A single 0 if one of the two has no words.
    """
    if not (hypothesis.words and premise.words):
        return torch.zeros(1)
    return (hypothesis.vectors @ premise.vectors.T).amax(1)  # (words of the hypothesis,)


def _embedded_tokens(plm: SharedPLM, texts: Sequence[str]) -> list[_Embedded]:
    """The tokens of each text, with their states in the trunk's last layer."""
    read = text_reader(plm.tokenizer)
    batch = read(
        # byte-level tokenizers have another token for a word at the very beginning, hence the blank
        [f" {text}" for text in texts],
        truncation=True,
        max_length=_MAX_TOKENS,
        padding=True,
        padding_side="right",
        return_tensors="pt",
        return_special_tokens_mask=True,
    )
    ordinary = ~batch.pop("special_tokens_mask").bool()  # (batch, seq): no padding either
    output = plm.trunk(**plm.inputs(batch.to(plm.device)), return_dict=True)
    states = normalize(output.last_hidden_state.float(), dim=-1).cpu()  # (batch, seq, hidden)
    embedded = []
    for ids, vectors, kept in zip(batch["input_ids"].cpu(), states, ordinary, strict=True):
        tokens = plm.tokenizer.convert_ids_to_tokens(ids[kept].tolist())
        embedded.append(_Embedded(tokens, vectors[kept]))
    return embedded


def is_part(inner: list[str], outer: list[str]) -> bool:
    """Whether the words of `inner` occur in `outer` one after the other."""
    n = len(inner)
    return any(outer[start : start + n] == inner for start in range(len(outer) - n + 1))


# --- by name ---


BIAS_MODELS = {
    "overlap": BiasModel(overlap, _BALANCED, entailment=True),
    "token_overlap": BiasModel(token_overlap, _BALANCED, entailment=True),
    "lexical_overlap": BiasModel(lexical_overlap),
    "bag_of_words": BiasModel(bag_of_words, options={}),
    "shortcut": BiasModel(shortcut),
}

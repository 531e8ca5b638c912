"""The bias models, by name: words, the overlap of two texts, and the testbed's planted shortcut."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import normalize

from mtlib.contexts import evaluating
from mtlib.methods.bias import AddBias, BiasModel
from mtlib.plm import SharedPLM
from mtlib.settings import Settings, check_choice
from mtlib.testbed.generator import shortcut_label
from mtlib.testbed.grammar import LABELS, load_grammar
from mtlib.tokens import text_reader

_LONGEST, _BATCH = 64, 64  # tokens of a text, special ones included, as in the code of Karimi Mahabadi et al.; pairs


def words(text: str) -> list[str]:
    """The words of a text in lower case, punctuation left out."""
    return re.findall(r"\w+(?:'\w+)?", text.lower())


# --- words ---


def all_words(plm, texts, pairs) -> np.ndarray:
    return _with_words(texts)


def hypothesis_words(plm, texts, pairs) -> np.ndarray:
    """The second text alone, which by itself should tell nothing."""
    return _with_words(pairs)


def _with_words(texts) -> np.ndarray:
    return np.array(texts, dtype=object)


def bag_of_words():
    """Logistic regression on which words there are."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    return make_pipeline(CountVectorizer(tokenizer=words, token_pattern=None, binary=True), LogisticRegression())


# --- overlap of two texts ---


def lexical_overlap(plm, texts, pairs) -> np.ndarray:
    """The share of words that both texts have, of all, of the first's, of the second's."""
    rows = []
    for a, b in zip(texts, pairs, strict=True):
        first, second = set(words(a)), set(words(b))
        rows.append([len(first & second) / max(len(part), 1) for part in (first | second, first, second)])
    return np.array(rows)


def balanced():
    """Logistic regression with balanced classes, as in the code of Clark et al."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=100.0, class_weight="balanced", solver="liblinear")


def overlap(plm: SharedPLM, texts, pairs) -> np.ndarray:
    """Clark et al. 2019: seven features of how the hypothesis's words stand in the premise.

    They are: the hypothesis is a contiguous part of the premise; all its words are in the premise; the share of them
    that are; log max(|P| - |H|, 1), in words; and over the words of the hypothesis the mean, the smallest and the
    second smallest of the best cosine with a word of the premise.

    A word's vector is the mean of its pieces' input embeddings in the trunk, where Clark et al. take fastText's; words
    are looked up in lower case.
    """
    table = plm.trunk.get_input_embeddings().weight.detach().float().cpu().numpy()  # (vocab, hidden)

    @cache
    def unit(word: str) -> np.ndarray:
        ids = plm.tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
        vector = table[ids].mean(axis=0) if ids else np.zeros(table.shape[1])
        return vector / max(np.linalg.norm(vector), 1e-12)

    def row(premise: list[str], hypothesis: list[str]) -> list[float]:
        inside, best = [word in premise for word in hypothesis], np.zeros(max(len(hypothesis), 1))
        if premise and hypothesis:
            cosines = np.stack([*map(unit, hypothesis)]) @ np.stack([*map(unit, premise)]).T
            best = np.where(inside, 1.0, cosines.max(axis=1))
        smallest, length = np.sort(best), max(len(premise) - len(hypothesis), 1)
        return [
            is_part(hypothesis, premise), all(inside), sum(inside) / max(len(inside), 1), np.log(length),
            best.mean(), smallest[0], smallest[min(1, len(smallest) - 1)],
        ]  # fmt: skip

    return np.array([row(words(a), words(b)) for a, b in zip(texts, pairs, strict=True)], dtype=float)


def token_overlap(plm: SharedPLM, texts, pairs) -> np.ndarray:
    """Karimi Mahabadi et al. 2020: six of their seven features, on the model's own tokens.

    They are: all tokens of the hypothesis are in the premise; the share of its distinct tokens that are; it is a
    contiguous part of the premise; and over its tokens the mean, the largest and the smallest of the best cosine with a
    token of the premise. The seventh, whether the hypothesis is a constituent of the premise, takes a parse of it. In
    their code that feature is always false, for it reads a parse of another format than it expects.

    The cosines are of the states of the trunk's last layer, each text read by itself. Unlike in their code, they are
    those of the pretrained model, computed once and without dropout, and each is multiplied by its own padding.
    """

    def row(premise: _Tokens, hypothesis: _Tokens) -> list[float]:
        inside = {piece: piece in premise.pieces for piece in hypothesis.pieces}
        best = torch.zeros(1)  # of a text without tokens
        if premise.pieces and hypothesis.pieces:
            best = (hypothesis.states @ premise.states.T).amax(1)  # (pieces of the hypothesis,)
        return [
            all(inside.values()), sum(inside.values()) / max(len(inside), 1),
            is_part(hypothesis.pieces, premise.pieces), best.mean().item(), best.max().item(), best.min().item(),
        ]  # fmt: skip

    rows = []
    with torch.no_grad(), evaluating(plm), torch.autocast(plm.device.type, enabled=False):
        for first in range(0, len(texts), _BATCH):
            some = slice(first, first + _BATCH)
            rows += map(row, _read(plm, texts[some]), _read(plm, pairs[some]))
    return np.array(rows, dtype=float)


class _Tokens(NamedTuple):
    pieces: list[str]  # without special tokens
    states: Tensor  # (pieces, hidden), each of length 1


def _read(plm: SharedPLM, texts: Sequence[str]) -> list[_Tokens]:
    # byte-level tokenizers have another token for a word at the very beginning, hence the blank
    batch = text_reader(plm.tokenizer)(
        [f" {text}" for text in texts], truncation=True, max_length=_LONGEST, padding=True, padding_side="right",
        return_tensors="pt", return_special_tokens_mask=True,
    )  # fmt: skip
    own = ~batch.pop("special_tokens_mask").bool()  # (batch, seq): of the texts, not special and no padding
    states = normalize(plm.final_states(batch.to(plm.device)).float(), dim=-1).cpu()  # (batch, seq, hidden)
    ids = batch["input_ids"].cpu()
    return [
        _Tokens(plm.tokenizer.convert_ids_to_tokens(row[kept].tolist()), vectors[kept])
        for row, vectors, kept in zip(ids, states, own, strict=True)
    ]


def is_part(inner: list[str], outer: list[str]) -> bool:
    """Whether the words of `inner` stand in `outer` one after the other."""
    return any(outer[start : start + len(inner)] == inner for start in range(len(outer) - len(inner) + 1))


# --- the testbed ---


def shortcut(plm: SharedPLM, texts, pairs) -> np.ndarray:
    """The label that the testbed's shortcut suggests; how often it is right, the classifier learns from the data.

    The task is told from the number of labels and from whether there are pairs.
    """
    n_labels = plm.config.num_labels
    task = "sentiment" if pairs is None else "nli" if n_labels == LABELS["nli"] else "paraphrase"
    grammar = load_grammar(task)
    rows = [(text,) for text in texts] if pairs is None else zip(texts, pairs, strict=True)
    return np.eye(n_labels)[[shortcut_label(grammar, *row) for row in rows]]


# --- by name ---


BIAS_MODELS = {
    model.name: model
    for model in (
        BiasModel("overlap", overlap, balanced, pair=True, entailment=True),
        BiasModel("token_overlap", token_overlap, balanced, pair=True, entailment=True),
        BiasModel("lexical_overlap", lexical_overlap, pair=True),
        BiasModel("hypothesis_only", hypothesis_words, bag_of_words, pair=True),
        BiasModel("bag_of_words", all_words, bag_of_words, pair=False),
        BiasModel("shortcut", shortcut),
    )
}
# those that fit a task; the first is its default
BIAS_OF_TASK = {
    "sentiment": ("bag_of_words", "shortcut"),
    "nli": ("overlap", "token_overlap", "lexical_overlap", "hypothesis_only", "shortcut"),
    "paraphrase": ("lexical_overlap", "overlap", "hypothesis_only", "shortcut"),
}
Bias = Literal["by_task", *BIAS_MODELS]


class BiasSettings(Settings):
    bias: Annotated[
        Bias, Field(description="what the bias model looks at (by_task: words for sentiment, else overlap)")
    ] = "by_task"


def bias_for(task: str, bias: str) -> str:
    """The bias model that `bias` names: with "by_task", the task's default."""
    return BIAS_OF_TASK[task][0] if bias == "by_task" else bias


def add_bias(settings: BiasSettings) -> AddBias:
    """The preparer of a run, whose task has decided the bias model."""
    check_choice("bias", settings.bias, BIAS_MODELS)
    return AddBias(BIAS_MODELS[settings.bias])

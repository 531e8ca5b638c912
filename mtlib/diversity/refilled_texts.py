"""What refilling did to training texts: to their tokens; on the testbed also to their labels and their shortcut."""

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np

from mtlib.diversity.masked_tokens import Marked, flat, rounded_share
from mtlib.methods.bias_models import LexicalOverlap
from mtlib.plm import SharedPLM
from mtlib.testbed.generator import shortcut_label
from mtlib.testbed.grammar import Grammar, tokens
from mtlib.testbed.labels import label_by_rules


def what_is_refilled(
    plm: SharedPLM, marked: Marked, mask: np.ndarray, refilled: Sequence[Sequence[int]], grammar: Grammar
) -> dict:
    """What came back, and whether the shortcut can still be told; for single texts also what became of the label.

    On data whose shortcut is not known, only how many of the masked tokens changed.
    In a pair the shortcut is sought in how many words the refilled texts share, and in how much of the pair was masked.
    """
    examples, original = marked.examples, flat(marked.examples["input_ids"])
    came_back = (flat(refilled) == original)[mask]
    line = {"tokens_changed": rounded_share(~came_back)}
    if marked.shortcut is None:
        return line
    line["shortcut_came_back"] = rounded_share(came_back[marked.shortcut[mask]])
    labels, groups = list(examples["labels"]), list(examples["group"])
    if grammar.task != "sentiment":
        lures = [shortcut_label(grammar, *pair) for pair in zip(examples["text"], examples["text_pair"], strict=True)]
        pairs = [decode_texts(plm.tokenizer, ids) for ids in refilled]
        masked = np.bincount(marked.row, mask) / np.bincount(marked.row, marked.ordinary)  # (n,)
        return line | {
            "shortcut_probe": shortcut_probe(pair_features(pairs, grammar), labels, lures, share_probe()),
            "masked_share_probe": shortcut_probe(masked[:, None], labels, lures, share_probe()),
        }
    texts = plm.tokenizer.batch_decode(list(map(list, refilled)), skip_special_tokens=True)
    lures = [shortcut_label(grammar, text) for text in examples["text"]]
    return line | {
        "label": kept_labels(texts, groups, labels),
        "put_in": put_in(list(examples["text"]), texts, labels, grammar),
        "shortcut_after": shortcut_after(texts, labels, grammar),
        "shortcut_probe": shortcut_probe(texts, labels, lures, word_probe()),
    }


def kept_labels(texts: Iterable[str], templates: Iterable[str], labels: Iterable[int]) -> dict[str, float]:
    """The shares of texts whose label by the grammar's rules (`testbed.labels`) is kept, turned, or undecided."""
    new_and_old = [(label_by_rules(text, template), label) for text, template, label in
                   zip(texts, templates, labels, strict=True)]  # fmt: skip
    return {
        "kept": rounded_share([new == old for new, old in new_and_old]),
        "turned": rounded_share([new == 1 - old for new, old in new_and_old]),
        "undecided": rounded_share([new is None for new, _ in new_and_old]),
    }


def put_in(originals: Iterable[str], texts: Iterable[str], labels: Iterable[int], grammar: Grammar) -> dict:
    """Of the shortcut's words (topics and surnames) that refilling has put in, how many are of the label's side."""
    words = agree = 0
    for original, text, label in zip(originals, texts, labels, strict=True):
        new = {*tokens(text)} - {*tokens(original)}
        agree += len(new & grammar.lure_words[label])
        words += len(new & (grammar.lure_words[0] | grammar.lure_words[1]))
    return {"words": words, "agree": agree / words if words else None}


def shortcut_after(texts: Sequence[str], labels: Sequence[int], grammar: Grammar) -> dict[str, float]:
    """The shares of refilled texts with words of the shortcut on the label's side, the other, both, neither."""
    there = [tuple(bool({*tokens(text)} & grammar.lure_words[side]) for side in (label, 1 - label))
             for text, label in zip(texts, labels, strict=True)]  # fmt: skip
    kinds = {"agrees": (True, False), "disagrees": (False, True), "both": (True, True), "neither": (False, False)}
    return {name: rounded_share([which == kind for which in there]) for name, kind in kinds.items()}


def decode_texts(tokenizer, ids: Iterable[int]) -> list[str]:
    """The texts of an example: one, or the two of a pair, which special tokens divide."""
    dividers = {*tokenizer.all_special_ids} - {tokenizer.unk_token_id}
    return [tokenizer.decode(list(run)) for divides, run in groupby(ids, key=dividers.__contains__) if not divides]


def pair_features(pairs: Sequence[Sequence[str]], grammar: Grammar) -> np.ndarray:
    """What a pair's shortcut is read from: three shares of shared words, and whether the second has a negation."""
    firsts, seconds = zip(*pairs, strict=True)
    negations = {*grammar.shortcut.get("negation", ())}
    negated = [[bool({*tokens(second)} & negations)] for second in seconds]
    return np.hstack([LexicalOverlap().features(None, firsts, seconds), negated])  # (n, 4)


def shortcut_probe(
    inputs: Sequence, labels: Sequence[int], lures: Sequence[int], probe, folds: int = 5, least: int = 25
) -> float | None:
    """How well a probe tells from `inputs` which label the shortcut suggests in the original: chance is 1 / labels.

    Balanced accuracy, out of fold, for the examples of each label by themselves (what decides the label then says
    nothing about the shortcut); the mean over labels. None where the shortcut suggests a label to fewer than `least`
    of these examples, too few to learn from.

    Args:
        inputs: what the probe reads of each example: its text, or a row of numbers.
        labels: gold labels.
        lures: the labels that the shortcut suggests.
        probe: a classifier of scikit-learn.
    """
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    scores = []
    for label in sorted({*labels}):
        of_label = [i for i, other in enumerate(labels) if other == label]
        sides = np.array(lures)[of_label]
        if np.bincount(sides, minlength=max(lures) + 1).min() < least:
            return None
        split = StratifiedKFold(folds, shuffle=True, random_state=0)
        guessed = cross_val_predict(probe, [inputs[i] for i in of_label], sides, cv=split)
        scores.append(balanced_accuracy_score(sides, guessed))
    return round(float(np.mean(scores)), 4)


def word_probe():
    """The probe of single texts: logistic regression on which words there are."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    words = CountVectorizer(analyzer=tokens, binary=True)
    return make_pipeline(words, LogisticRegression(class_weight="balanced", max_iter=1000))


def share_probe():
    """The probe of pairs: a decision tree, since shares may tell a label without being in proportion to it."""
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(class_weight="balanced", max_depth=5, min_samples_leaf=20, random_state=0)

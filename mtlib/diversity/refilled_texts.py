"""What refilling did to the testbed's training texts: to their tokens, their labels and their shortcut."""

from collections.abc import Iterable, Sequence

import numpy as np

from mtlib.diversity.masked_tokens import Marked, flat, rounded_share
from mtlib.plm import SharedPLM
from mtlib.testbed.generator import shortcut_label
from mtlib.testbed.grammar import Grammar, tokens
from mtlib.testbed.labels import label_by_rules


def what_is_refilled(
    plm: SharedPLM, marked: Marked, mask: np.ndarray, refilled: Sequence[Sequence[int]], grammar: Grammar
) -> dict:
    """What came back, and what it did to label and shortcut; the latter for the task sentiment alone."""
    examples, original = marked.examples, flat(marked.examples["input_ids"])
    came_back = (flat(refilled) == original)[mask]
    line = {
        "tokens_changed": rounded_share(~came_back),
        "shortcut_came_back": rounded_share(came_back[marked.shortcut[mask]]),
    }
    if grammar.task != "sentiment":
        return line
    texts = plm.tokenizer.batch_decode(list(map(list, refilled)), skip_special_tokens=True)
    labels, groups = list(examples["labels"]), list(examples["group"])
    lures = [shortcut_label(grammar, text) for text in examples["text"]]
    return line | {
        "label": kept_labels(texts, groups, labels),
        "put_in": put_in(list(examples["text"]), texts, labels, grammar),
        "shortcut_after": shortcut_after(texts, labels, grammar),
        "shortcut_probe": shortcut_probe(texts, labels, lures),
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


def shortcut_probe(
    texts: Sequence[str], labels: Sequence[int], lures: Sequence[int], folds: int = 5, least: int = 25
) -> float | None:
    """How well a bag of words tells the shortcut's side in the original from the refilled text: 0.5 is chance.

    Balanced accuracy of logistic regression on words, out of fold, for the examples of each label by themselves (words
    of opinion then say nothing about the side); the mean over labels. None where a side has fewer than `least`
    examples, too few to learn its words from.
    """
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline

    scores = []
    for label in sorted({*labels}):
        of_label = [i for i, other in enumerate(labels) if other == label]
        sides = np.array(lures)[of_label]
        if np.bincount(sides, minlength=2).min() < least:
            return None
        probe = make_pipeline(
            CountVectorizer(analyzer=tokens, binary=True), LogisticRegression(class_weight="balanced", max_iter=1000)
        )
        split = StratifiedKFold(folds, shuffle=True, random_state=0)
        guessed = cross_val_predict(probe, [texts[i] for i in of_label], sides, cv=split)
        scores.append(balanced_accuracy_score(sides, guessed))
    return round(float(np.mean(scores)), 4)

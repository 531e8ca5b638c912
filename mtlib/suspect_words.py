"""Which words predict the label beyond chance, and on which rows they point the wrong way.

A word whose presence goes with a label is a *suspect*: a classifier may learn to read it in place of the text. Whether
it should is for a person to say; an opinion word is a suspect too. The test is that of Gardner et al. (2021),
"Competency Problems: On Finding and Removing Artifacts in Language Data", with each label's own base rate.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import NormalDist

import numpy as np
import pandas
from datasets import ClassLabel, Dataset

from mtlib.errors import UserError

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_BATCH = 10_000  # rows that are held at once


def words_of(text: str) -> set[str]:
    """The words of a text, in lower case; a hyphen or an apostrophe inside a word belongs to it."""
    return set(_WORD.findall(text.lower()))


def suspects(
    dataset: Dataset, top: int | None = 50, min_count: int = 20, significance: float = 0.01
) -> pandas.DataFrame:
    """The words whose presence predicts a label beyond chance, the surest first.

    For a word in n rows, of which a share p has the label, and a label with the share p0 of all rows,

        z = (p - p0) / sqrt(p0 (1 - p0) / n)

    is about standard normal if word and label have nothing to do with each other. A word is kept if z exceeds the
    normal quantile of 1 - significance / (number of words x labels tested), Bonferroni's threshold
    (`table.attrs["threshold"]`).

    Args:
        dataset: `text` (and `text_pair`), and class numbers in `label` or `labels`; a `ClassLabel` gives them names.
            Read in batches, so that memory grows with the number of different words alone.
        top: at most so many words; None: all above the threshold.
        min_count: words in fewer rows are not tested.
        significance: chance of a single false find among all words tested.

    Returns:
        A table with `word`, `where` (`text`; in pairs also `text_pair` and `both`, for words that stand in both texts),
        `rows` (n), `label`, `share` (p), `base_rate` (p0), `z`, and a text with the word on either side: `example`
        with that label, `counterexample` with another ("": there is none).

    Raises:
        UserError: no column of texts or of labels, or a single label.
    """
    column = _label_column(dataset)
    rows_of, with_label, labels = Counter(), Counter(), Counter()
    examples: dict[tuple, str] = {}
    for rows, label in _rows(dataset, column):
        labels[label] += 1
        for feature in _features(rows):
            rows_of[feature] += 1
            with_label[feature, label] += 1
            examples.setdefault((feature, label), " / ".join(rows))
    if len(labels) < 2:
        raise UserError(f"all {labels.total()} rows have the label {next(iter(labels), None)!r}; expected two or more.")
    tested = [feature for feature, n in rows_of.items() if n >= min_count]
    threshold = NormalDist().inv_cdf(1 - significance / max(1, len(tested) * len(labels)))
    lines = []
    for feature in tested:
        n = rows_of[feature]
        for label, count in labels.items():
            p, p0 = with_label[feature, label] / n, count / labels.total()
            z = (p - p0) / np.sqrt(p0 * (1 - p0) / n)
            if z > threshold:
                others = (
                    examples[feature, other] for other in labels if other != label and (feature, other) in examples
                )
                lines.append((*feature, n, label, p, p0, z, examples[feature, label], next(others, "")))
    names = ["word", "where", "rows", "label", "share", "base_rate", "z", "example", "counterexample"]
    table = pandas.DataFrame(lines, columns=names)
    table = table.sort_values(["z", "word"], ascending=[False, True])[:top].reset_index(drop=True)
    feature = dataset.features[column]
    if isinstance(feature, ClassLabel):
        table["label"] = [feature.int2str(int(label)) for label in table["label"]]
    table.attrs |= {"threshold": threshold, "tested": len(tested)}
    return table


def pointed_labels(dataset: Dataset, words: pandas.DataFrame) -> list:
    """The label that the suspect words of each row point to (the largest sum of z), None for a row without any.

    `words` is a table of `suspects`, or the part of it that you distrust.
    """
    by_feature: dict[tuple, list] = {}
    for line in words.itertuples():
        by_feature.setdefault((line.word, line.where), []).append((line.label, line.z))
    pointed = []
    for rows, _ in _rows(dataset, None):
        votes: Counter = Counter()
        for feature in _features(rows):
            for label, z in by_feature.get(feature, ()):
                votes[label] += z
        pointed.append(max(votes, key=votes.__getitem__) if votes else None)
    return pointed


def conflicts(dataset: Dataset, words: pandas.DataFrame) -> np.ndarray:
    """True for the rows whose suspect words point to another label than their own, bool `(n,)`.

    Accuracy on these rows beside that on the others tells how much a classifier leans on the words, without a test set
    made for it. `words` is as for `pointed_labels`.
    """
    column = _label_column(dataset)
    feature, own = dataset.features[column], dataset.with_format(None)[column][:]
    if isinstance(feature, ClassLabel):
        own = [feature.int2str(label) for label in own]
    pairs = zip(pointed_labels(dataset, words), own, strict=True)
    return np.array([pointed is not None and pointed != label for pointed, label in pairs], dtype=bool)


def _features(texts: Sequence[str]) -> Iterable[tuple[str, str]]:
    """The words of a row, each with where it stands."""
    if len(texts) == 1:
        return [(word, "text") for word in words_of(texts[0])]
    first, second = map(words_of, texts)
    return [
        (word, where)
        for where, words in (("text", first), ("text_pair", second), ("both", first & second))
        for word in words
    ]


def _rows(dataset: Dataset, label: str | None) -> Iterable[tuple[tuple[str, ...], object]]:
    texts = [name for name in ("text", "text_pair") if name in dataset.column_names]
    if "text" not in texts:
        columns = ", ".join(dataset.column_names)
        raise UserError(f"the dataset has no column `text`, but {columns}; rename the one that holds the texts.")
    for batch in dataset.with_format(None).iter(_BATCH):
        columns = [batch[name] for name in texts]
        for *row, own in zip(*columns, batch[label] if label else columns[0], strict=True):
            yield tuple(row), own


def _label_column(dataset: Dataset) -> str:
    for name in ("label", "labels"):
        if name in dataset.column_names:
            return name
    columns = ", ".join(dataset.column_names)
    raise UserError(f"the dataset has no column `label`, but {columns}; rename the one that holds the labels.")

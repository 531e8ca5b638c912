"""The rows on which suspect words point the wrong way."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas

from mtlib.errors import UserError
from mtlib.own_data.reading import label_feature, named_labels, texts_and_labels
from mtlib.rows.folding import Finder, folded_word
from mtlib.rows.forms import NOT_HIDDEN, kind_of
from mtlib.rows.labels import label_name

if TYPE_CHECKING:
    from datasets import Dataset


def conflicts(
    rows: "Dataset | pandas.DataFrame | Sequence[pandas.DataFrame]", words: pandas.DataFrame
) -> np.ndarray:
    """True for the rows whose suspect words point to another label than their own, bool `(n,)`.

    Accuracy on these rows beside that on the others tells how much a classifier leans on the words,
    without a test set made for it. `words` is the table of `suspects` of the training rows, or the
    part of it that you distrust.

    Raises:
        UserError: no texts; a row without a label; labels or words that do not fit one another.
    """
    _check_table(words)
    labels = [label for _, label in texts_and_labels(rows)]
    if n_missing := labels.count(None):
        raise UserError(f"{n_missing:,} of {len(labels):,} rows have no label; drop them.")
    labels = named_labels(labels, label_feature(rows))
    _check_same_names(labels, words["label"])
    wrong = []
    for pointed, label in zip(pointed_labels(rows, words), labels, strict=True):
        wrong.append(pointed is not None and label_name(pointed) != label_name(label))
    return np.array(wrong, dtype=bool)


def pointed_labels(rows: "Dataset | Iterable[pandas.DataFrame]", words: pandas.DataFrame) -> list:
    """The label that the suspect words of each row point to; None for a row without any.

    Each word votes for its labels with its z, and the label with the largest sum wins.

    `words` is a table of `suspects`, or the part of it that you distrust.
    """
    pointed = []
    for by_word in votes_of_words(rows, words):
        votes: Counter = Counter()
        for votes_of_word in by_word.values():
            votes.update(votes_of_word)
        pointed.append(most_voted(votes))
    return pointed


def votes_of_words(
    rows: "Dataset | Iterable[pandas.DataFrame]", words: pandas.DataFrame
) -> Iterator[dict[str, Counter]]:
    """The votes of the suspect words of each row: z by label, by folded word.

    Capitals and length stand in no place of a text and have no vote.
    """
    by_place: dict[tuple, list] = defaultdict(list)
    words = words[~words["word"].map(kind_of).isin(NOT_HIDDEN)]
    for line in words.itertuples():
        for where in line.where.split(", "):  # the command names a word once, with all places
            by_place[folded_word(line.word), where].append((line.label, line.z))
    finder = Finder(words["word"])
    for texts, _ in texts_and_labels(rows):
        votes: dict[str, Counter] = defaultdict(Counter)
        for where, found in _found(texts, finder):
            for word in found:
                for label, z in by_place.get((word, where), ()):
                    votes[word][label] += z
        yield votes


def most_voted(votes: Counter) -> object:
    """The label with the most votes, None where there is no vote."""
    return max(votes, key=votes.__getitem__) if votes else None


def _found(texts: Sequence[str], finder: Finder) -> list[tuple[str, set[str]]]:
    """The words of a row by where they stand."""
    if len(texts) == 1:
        return [("text", finder.found(texts[0]))]
    first, second = map(finder.found, texts)
    return [("text", first), ("text_pair", second), ("both", first & second)]


def _check_table(words: object) -> None:
    needed = {"word", "where", "label", "z"}
    given = repr(words)
    if isinstance(words, pandas.DataFrame):
        if needed <= {*words.columns}:
            return
        given = f"a table with {', '.join(map(str, words))}"
    raise UserError(
        f"words is {given}; expected a table that knows their labels: "
        "suspects(training rows, None, 1, words=...)"
    )


def _check_same_names(labels: Sequence[object], pointed: Iterable[object]) -> None:
    """Raise `UserError` where the rows have class numbers and the words names, or the reverse."""
    names = {str(label) for label in pointed}
    if labels and names and _are_numbers(labels) != _are_numbers(names):
        raise UserError(
            f"the words point to labels such as {min(names)!r}, and the rows have {labels[0]!r}; "
            "expected the same names. A ClassLabel column gives class numbers their names."
        )


def _are_numbers(labels: Iterable[object]) -> bool:
    return all(str(label).lstrip("-").replace(".", "", 1).isdigit() for label in labels)

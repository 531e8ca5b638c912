"""Which words predict the label beyond chance, and on which rows they point the wrong way.

A word whose presence goes with a label is a *suspect*: a classifier may learn to read it in place
of the text. Whether it should is for a person to say; an opinion word is a suspect too. The test is
that of Gardner et al. (2021), "Competency Problems: On Finding and Removing Artifacts in Language
Data", with each label's own base rate.
"""

import itertools
import sys
import warnings
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import pandas

from mtlib.errors import UserError
from mtlib.folding import Finder, spelling
from mtlib.folding import words_of as words_of  # where it stood before, for notebooks and scripts
from mtlib.labels import check_look_alike, known_labels, label_column

if TYPE_CHECKING:
    from datasets import Dataset

_BATCH = 10_000  # rows that are held at once
_MOST_LABELS = 500
_COLUMNS = ["word", "where", "rows", "label", "share", "base_rate", "z"]


def suspects(
    rows: "Dataset | pandas.DataFrame | Iterable[pandas.DataFrame]",
    top: int | None = 50,
    min_count: int = 20,
    significance: float = 0.01,
    words: str | Iterable[str] | None = None,
) -> pandas.DataFrame:
    """The words whose presence predicts a label beyond chance, the surest first.

    For a word in n rows, of which a share p has the label, and a label with the share p0 of all
    rows,

        z = (p - p0) / sqrt(p0 (1 - p0) / n)

    is about standard normal if word and label have nothing to do with each other, and the rows
    nothing with one another: copies of a text are counted (`table.attrs["copies"]`), not left out.
    A word is kept if z exceeds the normal quantile of 1 - significance / (number of words x labels
    tested), Bonferroni's threshold (`table.attrs["threshold"]`).

    Words are runs of letters and digits, so numbers are words too. Two spellings are one word if
    they differ in case, in Unicode's form or in invisible signs (`mtlib.folding`).

    Args:
        rows: `text` (and `text_pair`), and `label` or `labels`: a `Dataset`, whose `ClassLabel`
            gives class numbers their names, or a table with these columns, or several, such as a
            `TableFile`. Read in batches, twice; memory grows with the number of different words,
            and by eight bytes a row.
        top: at most so many words, a tenth of them at least of each label; None: all above the
            threshold.
        min_count: words in fewer rows are not tested.
        significance: chance of a single false find among all words tested.
        words: look for these words and phrases alone, also as parts of others ("acme's",
            "acme-like").

    Returns:
        A table with `word`, `where` (`text`; in pairs also `text_pair` and `both`, for words that
        stand in both texts), `rows` (n), `label`, `share` (p), `base_rate` (p0), `z`, and a text
        with the word on either side: `example` with that label, `counterexample` with another ("":
        there is none). Its `attrs`: `threshold`, the numbers of words `tested` and `above` it and
        of `rows`, how many rows are `copies` of an earlier text, and the words that stand
        `everywhere`. Rows without a label are left out, with a warning.

    Raises:
        UserError: a single label, or none, or more than 500; labels that look alike; no column of
            texts.
    """
    if isinstance(rows, Iterator):
        raise UserError(
            "the rows can be read only once; expected a list of tables, for they are read twice."
        )
    finder = Finder(words)
    counted = _counted(rows, finder)
    _check_labels(counted)
    n_rows = counted.labels.total()
    rows_of = counted.rows_of_words(min_count)
    threshold = NormalDist().inv_cdf(1 - significance / max(1, len(rows_of) * len(counted.labels)))
    table = pandas.DataFrame(_lines_above(threshold, rows_of, counted), columns=_COLUMNS)
    above = table["word"].nunique()
    table = table.sort_values(["z", "word"], ascending=[False, True]).reset_index(drop=True)
    table = dealt_out(table, top)
    table["example"], table["counterexample"] = _examples(rows, table, finder)
    table["word"] = _spellings(table, finder)
    table["label"] = _named(table["label"], _label_feature(rows))
    table.attrs |= {
        "threshold": threshold,
        "tested": len(rows_of),
        "above": above,
        "everywhere": sorted({word for (word, _), n in rows_of.items() if n == n_rows}),
        "rows": n_rows,
        "copies": counted.copies,
    }
    return table


def dealt_out(table: pandas.DataFrame, top: int | None) -> pandas.DataFrame:
    """The first lines of a table of suspects, at least a tenth of them for each label.

    A label with fewer lines has all of them. Where labels are unbalanced, the largest z are all of
    the rare one.
    """
    if top is None or len(table) <= top:
        return table
    in_label = table.groupby("label", sort=False).cumcount()
    reserved = in_label < max(1, top // 10)
    chosen = [*table.index[reserved], *table.index[~reserved]][:top]
    return table.loc[sorted(chosen)].reset_index(drop=True)


def pointed_labels(rows: "Dataset | Iterable[pandas.DataFrame]", words: pandas.DataFrame) -> list:
    """The label that the suspect words of each row point to; None for a row without any.

    Each word votes for its labels with its z, and the label with the largest sum wins.

    `words` is a table of `suspects`, or the part of it that you distrust.
    """
    by_feature: dict[tuple, list] = defaultdict(list)
    for line in words.itertuples():
        for word in Finder(line.word).found(line.word):
            by_feature[word, line.where].append((line.label, line.z))
    finder = Finder(words["word"])
    pointed = []
    for texts, _ in _rows(rows):
        votes: Counter = Counter()
        for where, found in _found(texts, finder):
            for word in found:
                for label, z in by_feature.get((word, where), ()):
                    votes[label] += z
        pointed.append(max(votes, key=votes.__getitem__) if votes else None)
    return pointed


def conflicts(dataset: "Dataset", words: pandas.DataFrame) -> np.ndarray:
    """True for the rows whose suspect words point to another label than their own, bool `(n,)`.

    Accuracy on these rows beside that on the others tells how much a classifier leans on the words,
    without a test set made for it. `words` is the table of `suspects` of the training rows, or the
    part of it that you distrust.

    Raises:
        UserError: no `Dataset`; a row without a label; labels or words that do not fit one another.
    """
    _check_table(words)
    labels = _all_labels(dataset)
    _check_same_names(labels, words["label"])
    wrong = []
    for pointed, label in zip(pointed_labels(dataset, words), labels, strict=True):
        wrong.append(pointed is not None and str(pointed) != str(label))
    return np.array(wrong, dtype=bool)


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


def _all_labels(dataset: object) -> list:
    """The labels of a dataset of which every row has one, by name where the classes have names."""
    if not _is_dataset(dataset):
        kind = type(dataset).__name__
        raise UserError(f"the rows are a {kind}; expected a Dataset, as read_table makes it.")
    column = label_column(dataset.column_names)
    if column is None:
        columns = ", ".join(dataset.column_names)
        raise UserError(f"the rows have no column label; they have {columns}.")
    feature = _label_feature(dataset)
    labels = known_labels("the dataset", dataset.with_format(None)[column][:], feature)
    if n_missing := labels.count(None):
        raise UserError(f"{n_missing:,} of {len(labels):,} rows have no label; drop them.")
    return _named(labels, feature)


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


def _is_dataset(rows: object) -> bool:
    """Whether these rows are a `Dataset`; none can be there where `datasets` is not yet imported.

    Importing it takes a second, which a file of one's own does not need.
    """
    datasets = sys.modules.get("datasets")
    return datasets is not None and isinstance(rows, datasets.Dataset)


def _label_feature(rows: object) -> object:
    """The feature of a dataset's labels, which may know the names of classes; else None."""
    return rows.features.get(label_column(rows.column_names)) if _is_dataset(rows) else None


def _named(labels: Iterable, feature: object) -> list:
    """The labels, by name where their feature is a `ClassLabel`."""
    if not hasattr(feature, "int2str"):
        return list(labels)
    return [feature.int2str(int(label)) for label in labels]


# --- counting ---


@dataclass
class _Counted:
    """How many rows each label has, and for each (where, label) in how many each word stands."""

    labels: Counter = field(default_factory=Counter)
    words: dict[tuple, Counter] = field(default_factory=lambda: defaultdict(Counter))
    unlabelled: int = 0
    text_hashes: array = field(default_factory=lambda: array("q"))

    @property
    def copies(self) -> int:
        """Rows whose text, or pair of texts, an earlier row has too."""
        return len(self.text_hashes) - len(np.unique(np.array(self.text_hashes, dtype=np.int64)))

    def rows_of_words(self, least: int) -> dict[tuple[str, str], int]:
        """In how many rows each (word, where) stands, if in so many at least."""
        rows_of = {}
        for where in dict.fromkeys(where for where, _ in self.words):
            together = sum((self.words[where, label] for label in self.labels), Counter())
            rows_of |= {(word, where): n for word, n in together.items() if n >= least}
        return rows_of


def _counted(rows, finder: Finder) -> _Counted:
    counted = _Counted()
    for texts, label in _rows(rows):
        if label is None:
            counted.unlabelled += 1
            continue
        counted.labels[label] += 1
        if len(counted.labels) > _MOST_LABELS:
            raise UserError(
                f"there are more than {_MOST_LABELS} labels, such as {label!r}; "
                "is it the right column?"
            )
        counted.text_hashes.append(hash(texts))
        for where, found in _found(texts, finder):
            counted.words[where, label].update(found)
    return counted


def _check_labels(counted: _Counted) -> None:
    labels, unlabelled = counted.labels, counted.unlabelled
    if len(labels) < 2:
        without = f", and {unlabelled:,} have none" if unlabelled else ""
        raise UserError(
            f"{labels.total()} rows have the labels {[*labels]}{without}; expected a column "
            "`label` and rows with two labels or more."
        )
    check_look_alike(labels)
    if unlabelled:
        total = unlabelled + labels.total()
        message = f"{unlabelled:,} of {total:,} rows have no label and are left out."
        warnings.warn(message, stacklevel=3)


def _lines_above(
    threshold: float, rows_of: dict[tuple[str, str], int], counted: _Counted
) -> list[tuple]:
    """A line for each word and label with a z above the threshold."""
    lines = []
    n_rows = counted.labels.total()
    for (word, where), n in rows_of.items():
        for label, n_label in counted.labels.items():
            share = counted.words[where, label][word] / n
            base_rate = n_label / n_rows
            z = (share - base_rate) / sqrt(base_rate * (1 - base_rate) / n)
            if z > threshold:
                lines.append((word, where, n, label, share, base_rate, z))
    return lines


def _spellings(table: pandas.DataFrame, finder: Finder) -> list[str]:
    """The words as their first examples write them, each in one way."""
    shown: dict[str, str] = {}
    for word, example in zip(table["word"], table["example"], strict=True):
        if word not in shown:
            shown[word] = word if example.isascii() else _spelling(word, example, finder)
    return [shown[word] for word in table["word"]]


def _spelling(word: str, example: str, finder: Finder) -> str:
    for place in finder.places(example):
        if place.folded == word:
            return spelling(example[place.start : place.end])
    return word


def _found(texts: Sequence[str], finder: Finder) -> list[tuple[str, set[str]]]:
    """The words of a row by where they stand."""
    if len(texts) == 1:
        return [("text", finder.found(texts[0]))]
    first, second = map(finder.found, texts)
    return [("text", first), ("text_pair", second), ("both", first & second)]


def _examples(rows, table: pandas.DataFrame, finder: Finder) -> tuple[list[str], list[str]]:
    """For each line the first text with its word and label, and the first with another label."""
    lines = [(line.word, line.where, line.label) for line in table.itertuples()]
    examples: dict[tuple, str] = {}
    counterexamples: dict[tuple, str] = {}
    n_there = len(lines) + (table["share"] < 1).sum()
    for line, texts, label in _occurrences(rows, lines, finder):
        first_texts = examples if label == line[-1] else counterexamples
        if line not in first_texts:
            first_texts[line] = " / ".join(texts)
        if len(examples) + len(counterexamples) == n_there:
            break
    return (
        [examples.get(line, "") for line in lines],
        [counterexamples.get(line, "") for line in lines],
    )


def _occurrences(rows, lines: list[tuple], finder: Finder) -> Iterator[tuple]:
    """The lines of a table whose word stands in a row, with the texts and the label of that row."""
    if not lines:
        return
    lines_of = defaultdict(list)
    for word, where, label in lines:
        lines_of[word, where].append((word, where, label))
    words = {word for word, *_ in lines}
    for texts, label in _rows(rows):
        if label is None:
            continue
        for where, found in _found(texts, finder):
            for word in found & words:
                for line in lines_of.get((word, where), ()):
                    yield line, texts, label


def _rows(rows: "Dataset | Iterable[pandas.DataFrame]") -> Iterator[tuple[tuple[str, ...], object]]:
    """The text or the pair of texts of each row, and its label, None where there is none."""
    feature = _label_feature(rows)
    for batch in _batches(rows):
        column = label_column(batch)
        names = [name for name in ("text", "text_pair") if name in batch]
        for text in itertools.chain(*(batch[name] for name in names)):
            if not isinstance(text, str):
                raise UserError(
                    f"a row has {text!r} for a text; drop such rows, or read them with read_table."
                )
        texts = zip(*(batch[name] for name in names), strict=True)
        if column is None:
            yield from zip(texts, itertools.repeat(None), strict=False)
        else:
            labels = known_labels("a row", batch[column], feature)
            yield from zip(texts, labels, strict=True)


def _batches(rows: "Dataset | Iterable[pandas.DataFrame]") -> Iterator:
    """The rows in tables, or in dictionaries of columns."""
    if _is_dataset(rows):
        batches = rows.with_format(None).iter(_BATCH)
    else:
        batches = [rows] if isinstance(rows, pandas.DataFrame | str) else rows
    for batch in batches:
        if isinstance(batch, str):
            given = repr(batch)
        elif "text" not in batch:
            given = f"columns {', '.join(map(str, batch))}"
        else:
            yield batch
            continue
        raise UserError(
            f"the rows are {given}; expected text and label, as read_table(path, text, label) "
            "makes them."
        )

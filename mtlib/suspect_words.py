"""Which words predict the label beyond chance, and on which rows they point the wrong way.

A word whose presence goes with a label is a *suspect*: a classifier may learn to read it in place of the text. Whether
it should is for a person to say; an opinion word is a suspect too. The test is that of Gardner et al. (2021),
"Competency Problems: On Finding and Removing Artifacts in Language Data", with each label's own base rate.
"""

import itertools
import warnings
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import NormalDist

import numpy as np
import pandas
from datasets import ClassLabel, Dataset

from mtlib.errors import UserError
from mtlib.folding import Finder, spelling
from mtlib.labels import check_look_alike, known_labels, label_column

_BATCH = 10_000  # rows that are held at once
_MOST_LABELS = 500
_COLUMNS = ["word", "where", "rows", "label", "share", "base_rate", "z"]


def suspects(
    rows: Dataset | pandas.DataFrame | Iterable[pandas.DataFrame],
    top: int | None = 50,
    min_count: int = 20,
    significance: float = 0.01,
    words: str | Iterable[str] | None = None,
) -> pandas.DataFrame:
    """The words whose presence predicts a label beyond chance, the surest first.

    For a word in n rows, of which a share p has the label, and a label with the share p0 of all rows,

        z = (p - p0) / sqrt(p0 (1 - p0) / n)

    is about standard normal if word and label have nothing to do with each other, and the rows nothing with one
    another: copies of a text are counted (`table.attrs["copies"]`), not left out. A word is kept if z exceeds the
    normal quantile of 1 - significance / (number of words x labels tested), Bonferroni's threshold
    (`table.attrs["threshold"]`).

    Words are runs of letters and digits, so numbers are words too. Two spellings are one word if they differ in case,
    in Unicode's form or in signs that nobody sees (`mtlib.folding`).

    Args:
        rows: `text` (and `text_pair`), and `label` or `labels`: a `Dataset`, whose `ClassLabel` gives class numbers
            their names, or a table with these columns, or several, such as a `TableFile`. Read in batches, twice;
            memory grows with the number of different words, and by eight bytes a row.
        top: at most so many words, a tenth of them at least of each label; None: all above the threshold.
        min_count: words in fewer rows are not tested.
        significance: chance of a single false find among all words tested.
        words: look for these words and phrases alone, also as parts of others ("acme's", "acme-like").

    Returns:
        A table with `word`, `where` (`text`; in pairs also `text_pair` and `both`, for words that stand in both texts),
        `rows` (n), `label`, `share` (p), `base_rate` (p0), `z`, and a text with the word on either side: `example`
        with that label, `counterexample` with another ("": there is none). Its `attrs`: `threshold`, the numbers of
        words `tested` and `above` it and of `rows`, how many rows are `copies` of an earlier text, and the words that
        stand `everywhere`. Rows without a label are left out, with a warning.

    Raises:
        UserError: a single label, or none, or more than 500; labels that look alike; no column of texts.
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
    names = rows.features[label_column(rows.column_names)] if isinstance(rows, Dataset) else None
    if isinstance(names, ClassLabel):
        table["label"] = [names.int2str(int(label)) for label in table["label"]]
    everywhere = sorted({word for (word, _), n in rows_of.items() if n == n_rows})
    table.attrs |= {
        "threshold": threshold,
        "tested": len(rows_of),
        "above": above,
        "everywhere": everywhere,
    }
    table.attrs |= {"rows": n_rows, "copies": counted.copies}
    return table


def dealt_out(table: pandas.DataFrame, top: int | None) -> pandas.DataFrame:
    """The first lines of a table of suspects, of each label a tenth of them at least, if there are so many.

    Where labels are unbalanced, the largest z are all of the rare one.
    """
    if top is None or len(table) <= top:
        return table
    in_label = table.groupby("label", sort=False).cumcount()
    reserved = in_label < max(1, top // 10)
    chosen = [*table.index[reserved], *table.index[~reserved]][:top]
    return table.loc[sorted(chosen)].reset_index(drop=True)


def pointed_labels(rows: Dataset | Iterable[pandas.DataFrame], words: pandas.DataFrame) -> list:
    """The label that the suspect words of each row point to (the largest sum of z), None for a row without any.

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


def conflicts(dataset: Dataset, words: pandas.DataFrame) -> np.ndarray:
    """True for the rows whose suspect words point to another label than their own, bool `(n,)`.

    Accuracy on these rows beside that on the others tells how much a classifier leans on the words, without a test set
    made for it. `words` is the table of `suspects` of the training rows, or the part of it that you distrust.

    Raises:
        UserError: no `Dataset`; a row without a label; labels or words that do not fit one another.
    """
    _check_table(words)
    if not isinstance(dataset, Dataset):
        raise UserError(
            f"the rows are a {type(dataset).__name__}; expected a Dataset, as read_table makes it."
        )
    column = label_column(dataset.column_names)
    if column is None:
        raise UserError(
            f"the rows have no column label; they have {', '.join(dataset.column_names)}."
        )
    feature = dataset.features[column]
    labels = known_labels("the dataset", dataset.with_format(None)[column][:], feature)
    if n := labels.count(None):
        raise UserError(f"{n:,} of {len(labels):,} rows have no label; drop them.")
    if isinstance(feature, ClassLabel):
        labels = [feature.int2str(label) for label in labels]
    names = {str(label) for label in words["label"]}
    if labels and names and _are_numbers(labels) != _are_numbers(names):
        raise UserError(
            f"the words point to labels such as {min(names)!r}, and the rows have {labels[0]!r}; expected the same "
            "names. A ClassLabel column gives class numbers their names."
        )
    pairs = zip(pointed_labels(dataset, words), labels, strict=True)
    return np.array(
        [pointed is not None and str(pointed) != str(label) for pointed, label in pairs], dtype=bool
    )


def _check_table(words: object) -> None:
    needed = ("word", "where", "label", "z")
    if not isinstance(words, pandas.DataFrame) or not {*needed} <= {*words.columns}:
        given = (
            f"a table with {', '.join(map(str, words))}"
            if isinstance(words, pandas.DataFrame)
            else repr(words)
        )
        raise UserError(
            f"words is {given}; expected a table that knows their labels: suspects(training rows, None, 1, words=...)"
        )


def _are_numbers(labels: Iterable[object]) -> bool:
    return all(str(label).lstrip("-").replace(".", "", 1).isdigit() for label in labels)


# --- counting ---


@dataclass
class _Counted:
    """What the rows hold: the rows of each label, and for each (where, label) in how many rows each word stands."""

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
                f"there are more than {_MOST_LABELS} labels, such as {label!r}; is it the right column?"
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
            f"{labels.total()} rows have the labels {[*labels]}{without}; expected a column `label` and rows with two "
            "labels or more."
        )
    check_look_alike(labels)
    if unlabelled:
        told = f"{unlabelled:,} of {unlabelled + labels.total():,} rows have no label and are left out."
        warnings.warn(told, stacklevel=3)


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
    """A text with each word and its label, and one with the word and another label, the first that there are."""
    lines = [(line.word, line.where, line.label) for line in table.itertuples()]
    missing = {(*line, True) for line in lines} | {
        (*lines[i], False) for i in np.flatnonzero(table["share"] < 1)
    }
    labels_of, words, texts_with = defaultdict(list), {word for word, *_ in lines}, {}
    for word, where, label in lines:
        labels_of[word, where].append(label)
    for texts, label in _rows(rows):
        if not missing:
            break
        if label is None:
            continue
        for where, found in _found(texts, finder):
            for word in found & words:
                for pointed in labels_of[word, where]:
                    side = word, where, pointed, pointed == label
                    if side in missing:
                        missing.remove(side)
                        texts_with[side] = " / ".join(texts)
    return tuple([texts_with.get((*line, same), "") for line in lines] for same in (True, False))


def _rows(rows: Dataset | Iterable[pandas.DataFrame]) -> Iterator[tuple[tuple[str, ...], object]]:
    """The text or the pair of texts of each row, and its label, None where there is none."""
    features = rows.features if isinstance(rows, Dataset) else {}
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
            yield from zip(
                texts, known_labels("a row", batch[column], features.get(column)), strict=True
            )


def _batches(rows: Dataset | Iterable[pandas.DataFrame]) -> Iterator:
    if isinstance(rows, Dataset):
        rows = rows.with_format(None).iter(_BATCH)
    for batch in [rows] if isinstance(rows, pandas.DataFrame | str) else rows:
        if isinstance(batch, str) or "text" not in batch:
            told = (
                repr(batch) if isinstance(batch, str) else f"columns {', '.join(map(str, batch))}"
            )
            raise UserError(
                f"the rows are {told}; expected text and label, as read_table(path, text, label) makes them."
            )
        yield batch

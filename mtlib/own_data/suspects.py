"""Which words predict the label beyond chance.

A word whose presence goes with a label is a *suspect*: a classifier may learn to read it in place
of the text. Whether it should is for a person to say; an opinion word is a suspect too. So are
phrases, addresses, numbers and other forms (`KINDS`). The test is that of Gardner et al. (2021),
"Competency Problems: On Finding and Removing Artifacts in Language Data", with each label's own
base rate.
"""

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import pandas
from scipy.special import bdtrc

from mtlib.errors import UserError, one_of
from mtlib.own_data.counts import Corpus, Counts, FinderReader, Reader, count
from mtlib.own_data.reading import label_feature, named_labels, texts_and_labels
from mtlib.rows.folding import Finder, spelling
from mtlib.rows.forms import KINDS as KINDS
from mtlib.rows.forms import kind_of
from mtlib.rows.labels import check_look_alike

if TYPE_CHECKING:
    from datasets import Dataset

_MOST_LABELS = 500
_NO_ROW = 2**62  # above all numbers of rows
_COLUMNS = ["word", "kind", "where", "rows", "label", "share", "base_rate", "z"]
_COLUMNS += ["example", "counterexample"]


def suspects(
    rows: "Dataset | pandas.DataFrame | Iterable[pandas.DataFrame]",
    top: int | None = 50,
    min_count: int = 20,
    significance: float = 0.01,
    words: str | Iterable[str] | None = None,
    kinds: Iterable[str] = ("word",),
) -> pandas.DataFrame:
    """The words whose presence predicts a label beyond chance, the surest first.

    For a word in n rows, of which a share p has the label, and a label with the share p0 of all
    rows,

        z = (p - p0) / sqrt(p0 (1 - p0) / n)

    is about standard normal if word and label have nothing to do with each other, and the rows
    nothing with one another: copies of a text are counted (`table.attrs["copies"]`), not left out.
    A word is kept if z exceeds the normal quantile of 1 - significance / (number of words x labels
    tested), Bonferroni's threshold (`table.attrs["threshold"]`), which all kinds share; and if the
    exact chance of so many rows with the label, by the binomial distribution, is as small, since z
    is far from normal where few rows of a rare label are expected.

    Words are runs of letters and digits, so numbers are words too. Two spellings are one word if
    they differ in case, in Unicode's form or in invisible signs (`mtlib.rows.folding`).

    Other kinds (`KINDS`): phrases of two or three words; addresses, handles and hashtags, which
    then are not cut into words, each by itself, by its site and all together (`<address>`); numbers
    and prices; emoji and signs; runs of punctuation; a word in capitals; the shortest and the
    longest tenth of the texts. A phrase is kept where its share exceeds those of its parts by the
    same threshold, and so is an address or a number beside its site or `<number>`. Where a part
    stands in the very same rows, the whole is listed in its place.

    Args:
        rows: `text` (and `text_pair`), and `label` or `labels`: a `Dataset`, whose `ClassLabel`
            gives class numbers their names, or a table with these columns, or several, such as a
            `TableFile`. Read in batches, twice; memory grows with the number of different words,
            and by four bytes a word.
        top: at most so many words of each label; None: all above the threshold.
        min_count: words in fewer rows are not tested.
        significance: chance of a single false find among all words tested.
        words: look for these words, phrases and forms alone, also as parts of others ("acme's",
            "acme-like").
        kinds: which of `KINDS` to look for; not read where `words` are given.

    Returns:
        A table with `word`, `kind`, `where` (`text`; in pairs also `text_pair` and `both`, for
        words that stand in both texts), `rows` (n), `label`, `share` (p), `base_rate` (p0), `z`,
        and a text with the word on either side: `example` with that label, `counterexample` with
        another ("": there is none). Its `attrs`: `threshold`, the numbers of words `tested` and
        `above` it and of `rows`, and how many rows are `copies` of an earlier text. Rows without a
        label are left out, with a warning.

    Raises:
        UserError: a single label, or none, or more than 500; labels that look alike; no column of
            texts; an unknown kind.
    """
    if isinstance(rows, Iterator):
        raise UserError(
            "the rows can be read only once; expected a list of tables, for they are read twice."
        )
    if words is None:
        kinds = _known_kinds(kinds)
        reader = Reader(kinds)
    else:
        kinds = KINDS
        reader = FinderReader(Finder(words))
    corpus = _corpus(rows, reader)
    tables = count(corpus, reader.kinds, min_count)
    tested = [_tested(counts, kinds, min_count) for counts in tables]
    n_tested = sum(int(chosen.sum()) for chosen in tested)
    most_chance = significance / max(1, n_tested * len(corpus.labels))
    threshold = NormalDist().inv_cdf(1 - most_chance)
    found = _found_above(threshold, most_chance, zip(tables, tested, strict=True), corpus)
    table = _with_texts(first_of_labels(found, top), rows)
    table.attrs |= {
        "threshold": threshold,
        "tested": n_tested,
        "above": found["word"].nunique(),
        "rows": corpus.n_rows,
        "copies": corpus.copies,
    }
    return table


def _known_kinds(kinds: str | Iterable[str]) -> tuple[str, ...]:
    """The kinds in one order, on which it depends which of two a sign is."""
    kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    for kind in kinds:
        if kind not in KINDS:
            raise UserError(f"kinds has {kind!r}; {one_of(kind, KINDS)}")
    return tuple(kind for kind in KINDS if kind in kinds)


def first_of_labels(table: pandas.DataFrame, top: int | None) -> pandas.DataFrame:
    """The lines of the first `top` words of each label in a table of suspects.

    In unbalanced data the largest z are all of the rare label.
    """
    if top is None:
        return table
    rank = table.groupby("label", sort=False)["word"].transform(lambda words: words.factorize()[0])
    return table[rank < top].reset_index(drop=True)


# --- counting ---


def _corpus(rows: object, reader: Reader | FinderReader) -> Corpus:
    """The rows that have a label. Warns of those that have none."""
    corpus = Corpus(reader)
    n_unlabelled = 0
    for texts, label in texts_and_labels(rows):
        if label is None:
            n_unlabelled += 1
            continue
        corpus.add(texts, label)
        if len(corpus.labels) > _MOST_LABELS:
            raise UserError(
                f"there are more than {_MOST_LABELS} labels, such as {label!r}; "
                "is it the right column?"
            )
    _check_labels(corpus.labels, n_unlabelled)
    return corpus


def _check_labels(labels: Counter, n_unlabelled: int) -> None:
    if len(labels) < 2:
        without = f", and {n_unlabelled:,} have none" if n_unlabelled else ""
        raise UserError(
            f"{labels.total()} rows have the labels {[*labels]}{without}; expected a column "
            "`label` and rows with two labels or more."
        )
    check_look_alike(labels)
    if n_unlabelled:
        total = n_unlabelled + labels.total()
        message = f"{n_unlabelled:,} of {total:,} rows have no label and are left out."
        warnings.warn(message, stacklevel=4)


def _tested(counts: Counts, kinds: Sequence[str], min_count: int) -> np.ndarray:
    """The names that are tested, bool `(names,)`; others are parts of some."""
    return (counts.rows >= min_count) & np.isin(counts.kinds, kinds)


def _z(share: np.ndarray, base_rates: np.ndarray, n_rows: np.ndarray) -> np.ndarray:
    """How many standard deviations a share lies above a base rate."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return (share - base_rates) / np.sqrt(base_rates * (1 - base_rates) / n_rows)


def _found_above(
    threshold: float,
    most_chance: float,
    tables: Iterable[tuple[Counts, np.ndarray]],
    corpus: Corpus,
) -> pandas.DataFrame:
    """A line for each name and label that are beyond chance, the largest z first.

    Args:
        threshold: of z.
        most_chance: of so many rows with the label, or more.
        tables: with the names that are tested, bool `(names,)`.
        corpus: the rows.
    """
    lines = []
    for counts, tested in tables:
        z = _z(counts.shares, corpus.base_rates, counts.rows[:, None])  # (names, labels)
        cells = np.argwhere((z > threshold) & tested[:, None])  # (n, 2)
        numbers, labels = cells.T
        n_with_label = counts.by_label[numbers, labels]
        chance = bdtrc(n_with_label - 1, counts.rows[numbers], corpus.base_rates[labels])
        found = [
            (number, label)
            for number, label in cells[chance <= most_chance].tolist()
            if _says_more_than_its_parts(counts, number, label, threshold)
        ]
        covered = {part for number, _ in found for part in _in_the_same_rows(counts, number)}
        for number, label in found:
            if number not in covered:
                lines.append(_line(counts, number, label, z[number, label], corpus))
    table = pandas.DataFrame(lines, columns=_COLUMNS)
    return table.sort_values(["z", "word"], ascending=[False, True]).reset_index(drop=True)


def _in_the_same_rows(counts: Counts, number: int) -> list[int]:
    """The parts that stand in no other rows than the whole, so that the whole says it all."""
    n_rows = counts.rows[number]
    return [part for part in counts.parts[number] if counts.rows[part] == n_rows]


def _says_more_than_its_parts(counts: Counts, number: int, label: int, threshold: float) -> bool:
    """Whether its z is above the threshold beside the rows of each part, too."""
    same = _in_the_same_rows(counts, number)
    parts = [part for part in counts.parts[number] if part not in same]
    z = _z(counts.shares[number, label], counts.shares[parts, label], counts.rows[number])
    return bool((z > threshold).all())


def _line(counts: Counts, number: int, label: int, z: float, corpus: Corpus) -> tuple:
    """A line of the table; its examples are the numbers of their rows."""
    first_rows = counts.first[number]
    others = np.delete(first_rows, label)
    return (
        counts.names[number],
        counts.kinds[number],
        counts.where,
        int(counts.rows[number]),
        [*corpus.labels][label],
        float(counts.shares[number, label]),
        float(corpus.base_rates[label]),
        float(z),
        int(first_rows[label]),
        int(others[others >= 0].min(initial=_NO_ROW)),
    )


def _with_texts(table: pandas.DataFrame, rows: object) -> pandas.DataFrame:
    """The table with the texts of its examples, its words and labels as they are written."""
    texts = _texts_of(rows, {*table["example"], *table["counterexample"]} - {_NO_ROW})
    examples = {
        column: [texts.get(number, "") for number in table[column]]
        for column in ("example", "counterexample")
    }
    table = table.assign(**examples)
    labels = named_labels(table["label"], label_feature(rows))
    return table.assign(word=_spellings(table), label=labels)


def _texts_of(rows: object, wanted: set[int]) -> dict[int, str]:
    """The texts of some of the rows with a label, by their numbers."""
    labelled = (texts for texts, label in texts_and_labels(rows) if label is not None)
    found: dict[int, str] = {}
    for number, texts in enumerate(labelled):
        if len(found) == len(wanted):
            break
        if number in wanted:
            found[number] = " / ".join(texts)
    return found


def _spellings(table: pandas.DataFrame) -> list[str]:
    """The words as their first examples write them, each in one way."""
    shown: dict[str, str] = {}
    for word, example in zip(table["word"], table["example"], strict=True):
        if word not in shown:
            shown[word] = word if example.isascii() else _spelling(word, example)
    return [shown[word] for word in table["word"]]


def _spelling(word: str, example: str) -> str:
    if kind_of(word) not in ("word", "phrase"):
        return word
    for place in Finder(word).places(example):
        return spelling(example[place.start : place.end])
    return word

"""Which words predict the label beyond chance, and on which rows they point the wrong way.

A word whose presence goes with a label is a *suspect*: a classifier may learn to read it in place of the text. Whether
it should is for a person to say; an opinion word is a suspect too. The test is that of Gardner et al. (2021),
"Competency Problems: On Finding and Removing Artifacts in Language Data", with each label's own base rate.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import sqrt
from statistics import NormalDist

import numpy as np
import pandas
from datasets import ClassLabel, Dataset

from mtlib.encoding import label_column
from mtlib.errors import UserError
from mtlib.marking import UNSPACED, plain, words_pattern

_LETTER = rf"[^\W_{UNSPACED}]"  # in scripts without spaces every sign counts as a word
_WORD = re.compile(rf"{_LETTER}+(?:['-]{_LETTER}+)*|(?=\w)[{UNSPACED}]")
_BATCH = 10_000  # rows that are held at once
_MOST_LABELS = 500


def words_of(text: str) -> set[str]:
    """The words of a text, in lower case and with plain apostrophes; one inside a word belongs to it, as a hyphen."""
    return set(_WORD.findall(plain(text)))


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

    is about standard normal if word and label have nothing to do with each other. A word is kept if z exceeds the
    normal quantile of 1 - significance / (number of words x labels tested), Bonferroni's threshold
    (`table.attrs["threshold"]`).

    Args:
        rows: `text` (and `text_pair`), and `label` or `labels`: a `Dataset`, whose `ClassLabel` gives class numbers
            their names, or a table with these columns, or several, such as a `TableFile`. Read in batches, twice;
            memory grows with the number of different words alone.
        top: at most so many words; None: all above the threshold.
        min_count: words in fewer rows are not tested.
        significance: chance of a single false find among all words tested.
        words: look for these words and phrases alone, also as parts of others ("acme's", "acme-like").

    Returns:
        A table with `word`, `where` (`text`; in pairs also `text_pair` and `both`, for words that stand in both texts),
        `rows` (n), `label`, `share` (p), `base_rate` (p0), `z`, and a text with the word on either side: `example`
        with that label, `counterexample` with another ("": there is none). Its `attrs`: `threshold`, the numbers of
        words `tested` and `above` it and of `rows`, and the words that stand `everywhere`.

    Raises:
        UserError: a single label, or none, or more than 500; no column of texts.
    """
    find = words_of if words is None else _finder(words)
    labels, counts = _counted(rows, find)
    if len(labels) < 2:
        raise UserError(f"{labels.total()} rows have the labels {[*labels]}; expected rows with two labels or more.")
    rows_of = {
        (word, where): n
        for where in dict.fromkeys(where for where, _ in counts)
        for word, n in sum((counts[where, label] for label in labels), Counter()).items()
        if n >= min_count
    }
    threshold = NormalDist().inv_cdf(1 - significance / max(1, len(rows_of) * len(labels)))
    lines = []
    for (word, where), n in rows_of.items():
        for label, count in labels.items():
            p, p0 = counts[where, label][word] / n, count / labels.total()
            z = (p - p0) / sqrt(p0 * (1 - p0) / n)
            if z > threshold:
                lines.append((word, where, n, label, p, p0, z))
    table = pandas.DataFrame(lines, columns=["word", "where", "rows", "label", "share", "base_rate", "z"])
    above = table["word"].nunique()
    table = table.sort_values(["z", "word"], ascending=[False, True])[:top].reset_index(drop=True)
    table["example"], table["counterexample"] = _examples(rows, table, find)
    names = rows.features[label_column(rows.column_names)] if isinstance(rows, Dataset) else None
    if isinstance(names, ClassLabel):
        table["label"] = [names.int2str(int(label)) for label in table["label"]]
    everywhere = sorted({word for (word, _), n in rows_of.items() if n == labels.total()})
    table.attrs |= {"threshold": threshold, "tested": len(rows_of), "above": above, "everywhere": everywhere}
    table.attrs["rows"] = labels.total()
    return table


def pointed_labels(rows: Dataset | Iterable[pandas.DataFrame], words: pandas.DataFrame) -> list:
    """The label that the suspect words of each row point to (the largest sum of z), None for a row without any.

    `words` is a table of `suspects`, or the part of it that you distrust.
    """
    by_feature: dict[tuple, list] = defaultdict(list)
    for line in words.itertuples():
        by_feature[line.word, line.where].append((line.label, line.z))
    find = _finder(words["word"])
    pointed = []
    for texts, _ in _rows(rows):
        votes: Counter = Counter()
        for where, found in _found(texts, find):
            for word in found:
                for label, z in by_feature.get((word, where), ()):
                    votes[label] += z
        pointed.append(max(votes, key=votes.__getitem__) if votes else None)
    return pointed


def conflicts(dataset: Dataset, words: pandas.DataFrame) -> np.ndarray:
    """True for the rows whose suspect words point to another label than their own, bool `(n,)`.

    Accuracy on these rows beside that on the others tells how much a classifier leans on the words, without a test set
    made for it. `words` is the table of `suspects` of the training rows, or the part of it that you distrust.
    """
    if not isinstance(words, pandas.DataFrame):
        raise UserError(
            f"words is {words!r}; expected a table that knows their labels: suspects(training rows, None, 1, words=...)"
        )
    column = label_column(dataset.column_names)
    if column is None:
        raise UserError(f"the rows have no column label; they have {', '.join(dataset.column_names)}.")
    feature, own = dataset.features[column], dataset.with_format(None)[column][:]
    if isinstance(feature, ClassLabel):
        own = [feature.int2str(label) for label in own]
    pairs = zip(pointed_labels(dataset, words), own, strict=True)
    return np.array([pointed is not None and pointed != label for pointed, label in pairs], dtype=bool)


Find = Callable[[str], set[str]]


def _finder(words: str | Iterable[str]) -> Find:
    """Which of these words and phrases stand in a text, in lower case."""
    pattern = words_pattern(words)
    return lambda text: {" ".join(plain(match[0]).split()) for match in pattern.finditer(text) if match[0]}


def _found(texts: Sequence[str], find: Find) -> list[tuple[str, set[str]]]:
    """The words of a row by where they stand."""
    if len(texts) == 1:
        return [("text", find(texts[0]))]
    first, second = map(find, texts)
    return [("text", first), ("text_pair", second), ("both", first & second)]


def _counted(rows, find: Find) -> tuple[Counter, dict[tuple, Counter]]:
    """The rows of each label, and for each (where, label) in how many rows each word stands."""
    labels: Counter = Counter()
    counts: dict[tuple, Counter] = defaultdict(Counter)
    for texts, label in _rows(rows):
        labels[label] += 1
        if len(labels) > _MOST_LABELS:
            raise UserError(f"there are more than {_MOST_LABELS} labels, such as {label!r}; is it the right column?")
        for where, found in _found(texts, find):
            counts[where, label].update(found)
    return labels, counts


def _examples(rows, table: pandas.DataFrame, find: Find) -> tuple[list[str], list[str]]:
    """A text with each word and its label, and one with the word and another label, the first that there are."""
    lines = [(line.word, line.where, line.label) for line in table.itertuples()]
    missing = {(*line, True) for line in lines} | {(*lines[i], False) for i in np.flatnonzero(table["share"] < 1)}
    labels_of, words, texts_with = defaultdict(list), {word for word, *_ in lines}, {}
    for word, where, label in lines:
        labels_of[word, where].append(label)
    for texts, label in _rows(rows):
        if not missing:
            break
        for where, found in _found(texts, find):
            for word in found & words:
                for pointed in labels_of[word, where]:
                    side = word, where, pointed, pointed == label
                    if side in missing:
                        missing.remove(side)
                        texts_with[side] = " / ".join(texts)
    return tuple([texts_with.get((*line, same), "") for line in lines] for same in (True, False))


def _rows(rows: Dataset | Iterable[pandas.DataFrame]) -> Iterator[tuple[tuple[str, ...], object]]:
    """The text or the pair of texts of each row, and its label, None where there is no column of labels."""
    if isinstance(rows, Dataset):
        rows = rows.with_format(None).iter(_BATCH)
    for batch in [rows] if isinstance(rows, pandas.DataFrame | str) else rows:
        if isinstance(batch, str) or "text" not in batch:
            told = repr(batch) if isinstance(batch, str) else f"columns {', '.join(map(str, batch))}"
            raise UserError(
                f"the rows are {told}; expected text and label, as read_table(path, text, label) makes them."
            )
        label = label_column(batch)
        texts = [batch["text"], *([batch["text_pair"]] if "text_pair" in batch else [])]
        for text in itertools.chain(*texts):
            if not isinstance(text, str):
                raise UserError(f"a row has {text!r} for a text; drop such rows, or read them with read_table.")
        yield from zip(zip(*texts, strict=True), batch[label] if label else itertools.repeat(None), strict=False)

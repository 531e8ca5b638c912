"""Rows and lists of words as they come: a `Dataset`, a table, or several; a list, or a table."""

import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import pandas

from mtlib.errors import UserError
from mtlib.rows.folding import fold, phrases_of
from mtlib.rows.labels import known_labels, label_column

if TYPE_CHECKING:
    from datasets import Dataset

Rows: TypeAlias = "Dataset | pandas.DataFrame | Iterable[pandas.DataFrame]"
Words: TypeAlias = str | Iterable[str] | pandas.DataFrame
_BATCH = 10_000  # rows that are held at once
# marks in a column `mask`, also as pandas and spreadsheets save them
_NO = {"", "0", "0.0", "-", "n", "no", "f", "false"}
_NO |= {"nan", "none", "<na>", "na", "n/a", "#n/a", "null", "nat"}  # missing
_YES = {"x", "1", "1.0", "+", "y", "yes", "t", "true", "✓", "✔"}


def listed_words(words: Words) -> list[str]:
    """The words and phrases of a list, or of a table's column `word`.

    Raises:
        UserError: no such column; what is no text, or an empty one.
    """
    if isinstance(words, pandas.DataFrame):
        if "word" not in words:
            columns = ", ".join(map(str, words))
            raise UserError(f"words is a table with {columns}; expected a column word.")
        words = words["word"]
    return phrases_of(words)


def is_marked(mark: object, place: str) -> bool:
    """Whether a cell of a column `mask` marks its word: x, yes, true or 1.

    Raises:
        UserError: it says neither yes nor no; the message names the `place`.
    """
    mark = fold(str(mark)).strip()
    if mark in _NO:
        return False
    if mark in _YES or not mark.strip("x"):
        return True
    raise UserError(f"{place} has the mark {mark!r}; write x beside a word to hide, else nothing.")


def texts_and_labels(rows: Rows, name: str = "a row") -> Iterator[tuple[tuple[str, ...], object]]:
    """The text or the pair of texts of each row, and its label, None where there is none.

    Args:
        rows: with `text` (and `text_pair`), and `label` or `labels` where they have labels.
        name: of the set, for messages.

    Raises:
        UserError: no column of texts; a text that is missing; a label that is a list, or the like.
    """
    feature = label_feature(rows)
    for batch in _batches(rows):
        label = label_column(batch)
        columns = [batch[column] for column in ("text", "text_pair") if column in batch]
        for text in itertools.chain(*columns):
            if not isinstance(text, str):
                advice = "drop such rows, or read them with read_table"
                raise UserError(f"{name} has {text!r} for a text; {advice}.")
        texts = zip(*columns, strict=True)
        if label is None:
            yield from zip(texts, itertools.repeat(None), strict=False)
        else:
            labels = known_labels(name, batch[label], feature)
            yield from zip(texts, labels, strict=True)


def _batches(rows: Rows) -> Iterator:
    """The rows in tables, or in dictionaries of columns."""
    if is_dataset(rows):
        batches = rows.with_format(None).iter(_BATCH)
    else:
        batches = [rows] if isinstance(rows, pandas.DataFrame | str) else rows
    for batch in batches:
        if isinstance(batch, str):
            given = repr(batch)
        elif "text" not in batch:
            given = f"columns {', '.join(map(str, batch))}"
        elif isinstance(batch["text"], str):
            given = "dictionaries, one for each row"
        else:
            yield batch
            continue
        raise UserError(
            f"the rows are {given}; expected text and label, as read_table(path, text, label) "
            "makes them."
        )


def is_dataset(rows: object) -> bool:
    """Whether these rows are a `Dataset`; to import `datasets` for that would take a second."""
    return hasattr(rows, "features") and hasattr(rows, "column_names")


def label_feature(rows: object) -> object:
    """The feature of a dataset's labels, which may know the names of classes; else None."""
    return rows.features.get(label_column(rows.column_names)) if is_dataset(rows) else None


def named_labels(labels: Iterable, feature: object) -> list:
    """The labels, by name where their feature is a `ClassLabel`."""
    if not hasattr(feature, "int2str"):
        return list(labels)
    return [feature.int2str(int(label)) for label in labels]

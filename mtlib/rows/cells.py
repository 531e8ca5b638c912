"""What a cell of a user's table may hold, and how its columns are found: one answer for all."""

import datetime
import math
import reprlib
from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Integral

import numpy as np
import pandas

from mtlib.errors import UserError, one_of

EXPECTED = "expected a text, a number, a truth value or a date"


def cell_text(value: object) -> str:
    """A cell as text, without blanks at its ends; "" for a missing or blank one.

    Bytes are read as UTF-8. Whole numbers have no point, so that the label 1 stays one in a column
    that missing values have turned into 1.0; a `Decimal` keeps its places. Truth values are True
    and False, and dates are as ISO 8601 writes them (2024-05-01, 2024-05-01 12:00:00). Missing is
    what pandas takes for it: None, NaN, NaT and NA.

    Raises:
        UserError: a list, a record or anything else; bytes that are not UTF-8; half a character
            (a lone surrogate, as in "\\ud83d").
    """
    if isinstance(value, str):
        return _checked(value).strip()
    if value is None or value is pandas.NA or value is pandas.NaT:
        return ""
    if isinstance(value, bool | np.bool_):
        return str(bool(value))
    if isinstance(value, Integral):
        return str(int(value))
    return _rarer(value)


def cell_texts(values: Iterable[object], place: str, numbers: Iterable[int]) -> list[str]:
    """The texts of a column's cells.

    Args:
        values: the cells.
        place: what an error names before the cell's number, as "rows.csv, column 'text', line".
        numbers: the line or row of each cell.

    Raises:
        UserError: see `cell_text`; names place, number and value.
    """
    texts = []
    for number, value in zip(numbers, values, strict=True):
        try:
            texts.append(cell_text(value))
        except UserError as error:
            raise UserError(f"{place} {number:,}: {error}") from error
    return texts


def find_column(names: Sequence[str], wanted: str, source: object) -> int:
    """The position of a column; blanks and a byte order mark around a name do not count.

    Raises:
        UserError: `source` has no such column, or several.
    """
    found = column_positions(names, wanted)
    if len(found) > 1:
        raise UserError(f"{source} has {len(found)} columns called {wanted!r}; rename all but one.")
    if not found:
        raise UserError(f"{source} has no column {wanted!r}; {one_of(wanted, map(str, names))}")
    return found[0]


def column_positions(names: Iterable[str], wanted: str) -> list[int]:
    """Where columns of a name stand: those that are spelt so, else those that differ in blanks."""
    names = [*names]
    exact = [position for position, name in enumerate(names) if name == wanted]
    wanted = _bare(wanted)
    return exact or [position for position, name in enumerate(names) if _bare(name) == wanted]


def _bare(name: object) -> str:
    return str(name).replace("\ufeff", "").strip()


def _checked(text: str) -> str:
    """The text itself, where it can be written as UTF-8."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            half = text[error.start]
            raise UserError(
                f"{reprlib.repr(text)} has half a character, {half!r}; remove it, or write both "
                "halves."
            ) from error
    return text


def _rarer(value: object) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode().strip()
        except UnicodeDecodeError as error:
            raise UserError(f"{reprlib.repr(value)} is not UTF-8; write it as text.") from error
    if isinstance(value, float | np.floating | Decimal) and math.isnan(value):
        return ""
    if isinstance(value, float | np.floating):
        return str(int(value)) if value.is_integer() else str(value)
    if isinstance(value, Decimal):  # a column has one scale, so that a value has one text
        return f"{value:f}"
    if isinstance(value, datetime.date):  # datetime and pandas' Timestamp are dates too
        return str(value)
    kind = type(value).__name__
    raise UserError(f"{reprlib.repr(value)} is of type {kind}; {EXPECTED}.")

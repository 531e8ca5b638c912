"""CSV and TSV, read so that no row is cut in two and none swallows another.

A quotation mark in such a file may enclose a value or be a part of it, and no file says which. So
the file is read both ways, and the reading counts in which every row has all columns.
"""

import codecs
import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from io import TextIOWrapper
from typing import BinaryIO, NamedTuple

from mtlib.errors import UserError
from mtlib.rows.cells import find_column

_LONGEST_VALUE = 2**24  # characters; a longer one is a quotation mark that nobody closed

OpenFile = Callable[[], AbstractContextManager[BinaryIO]]


class Row(NamedTuple):
    line: int  # on which it begins
    values: list[str]


class Malformed(ValueError):
    """What is wrong with a file, with the line."""


def read_rows(open_file: OpenFile, separator: str, quoted: bool) -> Iterator[Row]:
    """The rows of a file, its header first, each with as many values as the header.

    Blank lines are left out; in a file with one column they are rows with an empty value.

    Args:
        open_file: opens it.
        separator: of its values.
        quoted: quotation marks enclose a value; otherwise they belong to it.

    Raises:
        Malformed: the first row that has another number of values, or that is not UTF-8.
    """
    rows = _parse(open_file, separator, quoted)
    header = next((row for row in rows if not _is_blank(row)), None)
    if header is None:
        raise Malformed("it is empty")
    yield header
    width = len(header.values)
    for row in rows:
        if width > 1 and _is_blank(row):
            continue
        if len(row.values) != width:
            found = _plural(len(row.values), "value")
            columns = _plural(width, "column")
            raise Malformed(f"line {row.line:,} has {found}, and the first line names {columns}")
        yield row


def is_quoted(open_file: OpenFile, separator: str) -> bool:
    """Whether quotation marks enclose a file's values: they do if each row then has all columns.

    Not so in a TSV with two columns or more where the lines as they stand have all columns too, and
    are more: tabs hardly ever stand in a text, so these lines are rows.

    Raises:
        Malformed: neither reading is right.
    """
    quoted = _read_through(open_file, separator, quoted=True)
    if quoted.problem is None and (separator != "\t" or quoted.columns == 1):
        return True
    plain = _read_through(open_file, separator, quoted=False)
    if quoted.problem is None:
        return plain.problem is not None or plain.rows == quoted.rows
    if plain.problem is None:
        return False
    if str(quoted.problem) == str(plain.problem):
        raise quoted.problem
    raise Malformed(
        f"{quoted.problem}, if quotation marks enclose values; {plain.problem}, if they are part "
        "of them. Enclose values with line breaks, separators or quotation marks in marks, and "
        "double those inside"
    )


def find_columns(names: Sequence[str], columns: Sequence[str], source: str) -> list[int]:
    """The positions of columns in a header; see `find_column`."""
    try:
        return [find_column(names, column, source) for column in columns]
    except UserError as error:
        if len(names) > 1:
            raise
        hint = "Are its columns separated by another character than its ending says?"
        raise UserError(f"{error} {hint}") from error


class _Trial(NamedTuple):
    """What reading a whole file in one way has found."""

    rows: int
    columns: int
    problem: Malformed | None = None


def _read_through(open_file: OpenFile, separator: str, quoted: bool) -> _Trial:
    n_rows = n_columns = 0
    try:
        for row in read_rows(open_file, separator, quoted):
            n_rows += 1
            n_columns = len(row.values)
    except Malformed as problem:
        return _Trial(n_rows, n_columns, problem)
    return _Trial(n_rows, n_columns)


def _is_blank(row: Row) -> bool:
    return len(row.values) == 1 and not row.values[0].strip()


def _parse(open_file: OpenFile, separator: str, quoted: bool) -> Iterator[Row]:
    """The rows of a file as `csv` has them; a blank line is an empty value."""
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_VALUE))
    with open_file() as file, TextIOWrapper(file, "utf-8-sig", newline="") as text:
        reader = csv.reader(
            text,
            delimiter=separator,
            quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE,
            skipinitialspace=True,
            strict=True,
        )
        line = 1
        try:
            for values in reader:
                yield Row(line, values or [""])
                line = reader.line_num + 1
        except csv.Error as error:
            raise Malformed(_reason(error, line, reader.line_num)) from error
        except UnicodeDecodeError as error:
            raise Malformed(undecodable_line(open_file)) from error


def _reason(error: csv.Error, first: int, last: int) -> str:
    """What `csv` found wrong, in our words, with the first or the last line of that row."""
    message = str(error)
    if "unexpected end" in message:
        return f"line {first:,} has a quotation mark that nothing closes"
    if "field limit" in message:
        return f"line {first:,} has a value of more than {csv.field_size_limit():,} characters"
    if "expected after" in message:
        return f"line {last:,} has text behind a quotation mark that closes a value"
    return f"line {last:,}: {message}"


def undecodable_line(open_file: OpenFile) -> str:
    """The first line that is not UTF-8, in words."""
    with open_file() as file:
        for number, line in enumerate(file, 1):
            if number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                return "it is in UTF-16"
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return f"line {number:,} has the byte {line[error.start]:#04x}, which is not UTF-8"
    return "it is not UTF-8"


def _plural(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"

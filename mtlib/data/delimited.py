"""CSV and TSV, read so that no row is cut in two and none swallows another.

A quotation mark or a line break in such a file may mean two things, and no file says which. So the
file is read both ways, and the reading counts in which every row has all columns.
"""

import codecs
import contextlib
import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import TextIOWrapper
from typing import BinaryIO, NamedTuple

from mtlib.errors import UserError
from mtlib.rows.cells import find_column

_LONGEST_VALUE = 2**24  # characters; a longer one is a quotation mark that nobody closed
_LONGEST_LINE = 2**26
_BLOCK = 2**20  # bytes
_MOST_LABELS = 1000  # that are compared
_HIDDEN = str.maketrans("\r\n", "\udc0d\udc0a")  # halves of characters, which no decoded text has
_SHOWN = str.maketrans("\udc0d\udc0a", "\r\n")


OpenFile = Callable[[], contextlib.AbstractContextManager[BinaryIO]]


class Reading(NamedTuple):
    """One way to read a file.

    Args:
        quoted: quotation marks enclose a value; otherwise they belong to it.
        row_end: the line end that alone ends a row, while others belong to a value; "\\n" stands
            for "\\r\\n" too. "": any.
    """

    quoted: bool = True
    row_end: str = ""


class Row(NamedTuple):
    line: int  # on which it begins
    values: list[str]


class Malformed(ValueError):
    """What is wrong with a file, with the line."""


def read_rows(open_file: OpenFile, separator: str, reading: Reading) -> Iterator[Row]:
    """The rows of a file, its header first, each with as many values as the header; no blank lines.

    Raises:
        Malformed: the first row of which that is not true, or that is not UTF-8.
    """
    rows = _parse(open_file, separator, reading)
    header = next(rows, None)
    if header is None:
        raise Malformed("it is empty")
    yield header
    width = len(header.values)
    for row in rows:
        line, values = row
        if len(values) != width:
            found = _plural(len(values), "value")
            columns = _plural(width, "column")
            raise Malformed(f"line {line:,} has {found}, and the first line names {columns}")
        yield row


def choose_reading(
    open_file: OpenFile, separator: str, columns: Sequence[str], source: str
) -> Reading:
    """How a file is to be read: so that it has the columns, and each of its rows all of them.

    Args:
        columns: those that are wanted, the labels last.
        source: the file's name, for errors.

    Raises:
        UserError: a column is not there, or stands there twice.
        Malformed: neither reading is right, or both may be.
    """
    has_marks, row_ends = _marks_and_line_ends(open_file)
    if not has_marks and not row_ends:
        return Reading()
    problems = []
    for row_end in ["", *row_ends]:
        plain_reading = Reading(quoted=False, row_end=row_end)
        plain = _try_reading(open_file, separator, plain_reading, columns, source)
        quoted = plain
        if has_marks:
            quoted_reading = Reading(quoted=True, row_end=row_end)
            quoted = _try_reading(open_file, separator, quoted_reading, columns, source)
        if not (plain.problem and quoted.problem):
            return _more_likely(open_file, separator, quoted, plain)
        problems.append((quoted.problem, plain.problem))
    raise _neither_fits(*problems[0])


def find_columns(names: Sequence[str], columns: Sequence[str], source: str) -> list[int]:
    """The positions of columns in a header; see `find_column`."""
    try:
        return [find_column(names, column, source) for column in columns]
    except UserError as error:
        if len(names) > 1:
            raise
        hint = "Are its columns separated by another character than its ending says?"
        raise UserError(f"{error} {hint}") from error


# --- the two readings ---


@dataclass
class _Trial:
    """What reading a whole file in one way has found."""

    reading: Reading
    rows: int = 0
    labels: set[str] = field(default_factory=set)
    problem: ValueError | None = None


def _try_reading(
    open_file: OpenFile, separator: str, reading: Reading, columns: Sequence[str], source: str
) -> _Trial:
    trial = _Trial(reading)
    try:
        rows = read_rows(open_file, separator, reading)
        header = next(rows).values
        label_position = find_columns(header, columns, source)[-1]
        for row in rows:
            trial.rows += 1
            if len(trial.labels) < _MOST_LABELS:
                trial.labels.add(row.values[label_position].strip())
    except ValueError as problem:
        trial.problem = problem
    return trial


def _more_likely(open_file: OpenFile, separator: str, quoted: _Trial, plain: _Trial) -> Reading:
    """The reading that is complete; where both are, the one whose labels are likely.

    If both are complete and differ in rows, then the lines of a quoted value look like rows. They
    are some if all of them have labels that other rows have. Tabs hardly ever stand in a text, so
    in TSV these marks are taken for text, as where there is but one label to compare with.

    Raises:
        Malformed: values are separated by commas, and both readings are as likely.
    """
    if quoted.problem:
        return plain.reading
    if plain.problem or plain.rows == quoted.rows:
        return quoted.reading
    tabs = separator == "\t"
    has_other_labels = bool(plain.labels - quoted.labels)
    if has_other_labels and not (tabs and len(quoted.labels) < 2):
        return quoted.reading
    if has_other_labels or tabs:
        return plain.reading
    raise _ambiguous(read_rows(open_file, separator, quoted.reading))


def _ambiguous(rows: Iterator[Row]) -> Malformed:
    """The error for rows, read with quotation marks, of which one has a value of several lines."""
    first, value = next(
        (row.line, value) for row in rows for value in row.values if re.search(r"[\r\n]", value)
    )
    return Malformed(
        f"line {first:,} begins a value of several lines in quotation marks, {value[:40]!r}, whose "
        "lines would be rows as well, if the marks were part of the texts. Double the marks that "
        "are part of a text, and enclose it in marks"
    )


def _neither_fits(quoted: ValueError, plain: ValueError) -> ValueError:
    """The error for a file of which neither reading is right, from those of the two."""
    one_reason = str(quoted) == str(plain)
    if one_reason or isinstance(quoted, UserError) or isinstance(plain, UserError):
        return quoted
    return Malformed(
        f"{quoted}, if quotation marks enclose values; {plain}, if they are part of them. Enclose "
        "values with line breaks, separators or quotation marks in marks, and double those inside"
    )


def _marks_and_line_ends(open_file: OpenFile) -> tuple[bool, list[str]]:
    """Whether a file has quotation marks, and its kinds of line ends where it has several."""
    has_marks = False
    ends = set()
    with open_file() as file:
        while block := file.read(_BLOCK):
            while block.endswith(b"\r") and (following := file.read(1)):
                block += following  # or a "\r\n" might be cut in two
            has_marks = has_marks or b'"' in block
            n_both = block.count(b"\r\n")
            counts = {
                "\r\n": n_both,
                "\n": block.count(b"\n") - n_both,
                "\r": block.count(b"\r") - n_both,
            }
            ends.update(end for end, count in counts.items() if count)
    return has_marks, sorted(ends) if len(ends) > 1 else []


# --- parsing ---


def _parse(open_file: OpenFile, separator: str, reading: Reading) -> Iterator[Row]:
    """The rows of a file as `csv` has them, without blank lines."""
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_VALUE))
    with open_file() as file, TextIOWrapper(file, "utf-8-sig", newline=reading.row_end) as text:
        reader = csv.reader(
            _lines(text, reading.row_end),
            delimiter=separator,
            quoting=csv.QUOTE_MINIMAL if reading.quoted else csv.QUOTE_NONE,
            skipinitialspace=True,
            strict=True,
        )
        line = 1
        try:
            for values in reader:
                if reading.row_end:
                    values = [value.translate(_SHOWN) for value in values]
                if len(values) > 1 or "".join(values).strip():  # else it is a blank line
                    yield Row(line, values)
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


def _lines(text: TextIOWrapper, row_end: str) -> Iterator[str]:
    """The lines of a text.

    With a `row_end`, the other line ends inside a line are hidden, so that `csv` ends no row there.
    """
    number = 0
    while line := text.readline(_LONGEST_LINE):
        number += 1
        if len(line) == _LONGEST_LINE:
            raise Malformed(f"line {number:,} has more than {_LONGEST_LINE:,} characters")
        yield _hide_inner_ends(line, row_end) if row_end else line


def _hide_inner_ends(line: str, row_end: str) -> str:
    end = next((end for end in ("\r\n", row_end) if line.endswith(end)), "")
    return line.removesuffix(end).translate(_HIDDEN) + end


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

"""A person's own file with columns by name: CSV, TSV, JSON lines, Parquet or a saved `Dataset`."""

import contextlib
import json
import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from io import BufferedReader, TextIOWrapper
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import pandas
import pyarrow
import pyarrow.parquet
from rich.console import Console
from rich.progress import open as open_with_bar

from mtlib.data import delimited
from mtlib.errors import UserError, one_of
from mtlib.rows.cells import EXPECTED, cell_texts, find_column
from mtlib.rows.labels import check_look_alike

if TYPE_CHECKING:
    from datasets import Dataset

_ROWS = 10_000  # that are held at once
_BUFFER = 2**20  # bytes
TEXTS = ("text", "text_pair")


class TableFile:
    """The rows of a file, in tables of 10,000: columns `text` (and `text_pair`) and `label`.

    All cells become texts (`mtlib.rows.cells.cell_text`). The file is read anew each time it is
    iterated, so that memory stays flat, with a progress bar on a terminal. Rows without a text or a
    label are left out; `dropped` counts them once all are read.

    A CSV or TSV is read so that each row has all columns: where quotation marks enclose values,
    these may hold line breaks; where that does not fit, the marks are part of the texts. So they
    are in a TSV whose lines have all columns as they stand, and are more.

    Args:
        path: a file that ends in .csv, .tsv, .jsonl or .parquet, in UTF-8; or a folder of
            `Dataset.save_to_disk`.
        text: the column with the texts; for pairs, both columns.
        label: the column with the labels, words or numbers; None: texts alone.
        also: further columns, which keep their names, and whose cells may be empty.

    Raises:
        UserError: when it is read: no such file, another ending, not what its ending says, a column
            that is not there or is there twice, a row without all columns, a cell that holds a list
            or a record.
    """

    def __init__(
        self,
        path: str | Path,
        text: str | Sequence[str],
        label: str | None,
        also: Sequence[str] = (),
    ):
        self.path = Path(path)
        columns = [text] if isinstance(text, str) else list(text)
        if not 1 <= len(columns) <= 2:
            raise UserError(f"text is {text!r}; expected one column of texts, or two for pairs.")
        wanted = [*columns] if label is None else [*columns, label]
        if len({*wanted}) < len(wanted):
            raise UserError(
                f"text is {', '.join(columns)} and label {label}; expected different columns."
            )
        self.columns = [*wanted, *also]
        self.texts = TEXTS[: len(columns)]
        named = self.texts if label is None else (*self.texts, "label")
        self.names = (*named, *also)
        for column in also:
            if self.columns.count(column) > 1:
                raise UserError(f"the column {column} is read already; leave it out here.")
            if self.names.count(column) > 1:
                raise UserError(f"a column {column} is made of {', '.join(wanted)}; rename yours.")
        self.has_labels = label is not None
        self.dropped: Counter = Counter()

    def __iter__(self) -> Iterator[pandas.DataFrame]:
        dropped: Counter = Counter()
        storage = self._storage()
        try:
            for batch in storage.read(self.path, self.columns):
                yield self._complete_rows(batch, storage.row, dropped)
        except UserError:
            raise
        except (OSError, ValueError) as error:  # pyarrow's and datasets' errors are ValueErrors too
            reason = getattr(error, "strerror", None) or str(error)
            reason = reason.strip(". \n").partition("\n")[0]
            expected = f"Expected {storage.content}."
            raise UserError(f"{self.path} cannot be read: {reason}. {expected}") from error
        self.dropped = dropped  # of all rows; who stops before the last has not seen them

    def dataset(self) -> "Dataset":
        """All rows, with a `ClassLabel`: numbers by their size, words by the alphabet."""
        from datasets import ClassLabel, Dataset, Features, Value  # takes a second

        names = [*self.names]
        table = pandas.concat([pandas.DataFrame(columns=names, dtype=object), *self])
        labels = sorted(table["label"].unique(), key=_label_order)
        check_look_alike(labels)
        numbers = {label: number for number, label in enumerate(labels)}
        table = table.assign(label=table["label"].map(numbers))
        features = Features({name: Value("string") for name in names})
        features["label"] = ClassLabel(names=labels)
        return Dataset.from_pandas(table, features, preserve_index=False)

    def left_out(self) -> str:
        """Which rows were left out, in a sentence; "" for none."""
        parts = [f"{n:,} without a {what}" for what, n in self.dropped.items() if n]
        return f"{self.path}: rows left out: {', '.join(parts)}." if parts else ""

    def _storage(self) -> "_Storage":
        if not self.path.exists():
            raise UserError(f"{self.path} does not exist; the folder here is {Path.cwd()}.")
        if self.path.is_dir():
            return _SAVED
        ending = self.path.suffix.lower()
        if ending not in _ENDINGS:
            expected = ", ".join(_ENDINGS)
            raise UserError(f"{self.path} ends in {ending!r}; expected one of {expected}.")
        return _ENDINGS[ending]

    def _complete_rows(self, batch: "_Batch", row: str, dropped: Counter) -> pandas.DataFrame:
        """The texts of a batch's cells, without the rows that lack one, which are counted."""
        texts = {}
        for name, column, values in zip(self.names, self.columns, batch.values, strict=True):
            where = f"{self.path}, column {column!r}, {row}"
            texts[name] = cell_texts(values, where, batch.numbers)
        table = pandas.DataFrame(texts, dtype=object)
        no_text = (table[[*self.texts]] == "").any(axis=1)
        dropped["text"] += int(no_text.sum())
        if not self.has_labels:
            return table[~no_text]
        no_label = ~no_text & (table["label"] == "")
        dropped["label"] += int(no_label.sum())
        return table[~(no_text | no_label)]


def read_table(path: str | Path, text: str | Sequence[str], label: str) -> "Dataset":
    """A file's rows as a `Dataset` with `text` (and `text_pair`) and `label`; see `TableFile`.

    The labels are a `ClassLabel`: numbers by their size, words by the alphabet. Warns of rows that
    are left out because they have no text or no label.
    """
    file = TableFile(path, text, label)
    dataset = file.dataset()
    if left_out := file.left_out():
        warnings.warn(left_out, stacklevel=2)
    return dataset


def _label_order(label: str) -> tuple:
    """Numbers by their size, words by the alphabet."""
    with contextlib.suppress(ValueError):
        number = float(label)
        if math.isfinite(number):  # the word nan is no number
            return 0, number, label
    return 1, 0.0, label


# --- what reads a file ---


class _Batch(NamedTuple):
    values: list[Iterable]  # of each wanted column
    numbers: Sequence[int]  # of their lines or rows


class _Storage(NamedTuple):
    """A way to keep a table.

    Args:
        content: what a file of this kind holds, in words.
        read: gives the cells of a path's columns in batches.
        row: what a row is called.
    """

    content: str
    read: Callable[[Path, Sequence[str]], Iterator[_Batch]]
    row: str = "row"


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The file, with a progress bar on a terminal."""
    console = Console(stderr=True)
    bar = {"console": console, "transient": True, "disable": not console.is_terminal}
    with open_with_bar(path, "rb", description=path.name, **bar) as file:
        yield BufferedReader(file, _BUFFER)


def _delimited(path: Path, columns: Sequence[str], *, separator: str) -> Iterator[_Batch]:
    """CSV and TSV."""
    open_file = partial(open, path, "rb")
    with contextlib.suppress(delimited.Malformed):  # where its marks are no quotes
        header = next(delimited.read_rows(open_file, separator, quoted=True))
        delimited.find_columns(header.values, columns, str(path))  # says more than what rows lack
    quoted = delimited.is_quoted(open_file, separator)
    rows = delimited.read_rows(partial(_opened, path), separator, quoted)
    positions = delimited.find_columns(next(rows).values, columns, str(path))
    pick = itemgetter(*positions)
    if len(positions) == 1:  # else it would pick a cell in place of a row of cells
        pick = itemgetter(slice(positions[0], positions[0] + 1))
    while batch := [(pick(values), line) for line, values in islice(rows, _ROWS)]:
        cells, lines = zip(*batch, strict=True)
        yield _Batch([*zip(*cells, strict=True)], lines)


def _json_lines(path: Path, columns: Sequence[str]) -> Iterator[_Batch]:
    names: dict[str, None] = {}  # of all records' entries; one may first appear in the last line
    lines = _records(path)
    while batch := [*islice(lines, _ROWS)]:
        numbers, records = zip(*batch, strict=True)
        for record in records:
            names |= dict.fromkeys(record)
        yield _Batch([[record.get(column) for record in records] for column in columns], numbers)
    if not names:
        raise ValueError("it is empty")
    for column in columns:
        if column not in names:
            raise UserError(f"{path} has no column {column!r}; {one_of(column, names)}")


def _records(path: Path) -> Iterator[tuple[int, dict]]:
    """The objects of a file with one in each line, with the number of the line."""
    with _opened(path) as file, TextIOWrapper(file, "utf-8-sig") as lines:
        try:
            for number, line in enumerate(lines, 1):
                if not line.isspace():
                    yield number, _decoded(line, number)
        except UnicodeDecodeError as error:
            raise ValueError(delimited.undecodable_line(partial(open, path, "rb"))) from error


def _decoded(line: str, number: int) -> dict:
    try:
        record = json.loads(line, strict=False)
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at character {error.colno}"
        raise ValueError(f"line {number:,} is not a JSON object: {reason}") from error
    if not isinstance(record, dict):
        raise ValueError(f"line {number:,} is not a JSON object, but {line.strip()[:40]}")
    return record


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[_Batch]:
    with _opened(path) as file:
        table = pyarrow.parquet.ParquetFile(file)
        names = table.schema_arrow.names
        names = [names[find_column(names, column, path)] for column in columns]
        yield from _arrow_batches(table.iter_batches(_ROWS, columns=names), names, path)


def _saved(path: Path, columns: Sequence[str]) -> Iterator[_Batch]:
    from datasets import ClassLabel, Dataset, load_from_disk

    dataset = load_from_disk(str(path))
    if not isinstance(dataset, Dataset):
        example = path / next(iter(dataset))
        raise ValueError(f"it holds the sets {', '.join(dataset)}; give one of them, as {example}")
    names = dataset.column_names
    names = [names[find_column(names, column, path)] for column in columns]
    class_names: dict[str, list[str]] = {}
    for name in names:
        feature = dataset.features[name]
        if isinstance(feature, ClassLabel):
            class_names[name] = feature.names
    tables = dataset.select_columns(names).with_format("arrow").iter(_ROWS)
    for batch in _arrow_batches(tables, names, path):
        for position, name in enumerate(names):
            if name in class_names:
                batch.values[position] = _class_names(batch.values[position], class_names[name])
        yield batch


def _arrow_batches(
    tables: Iterable[pyarrow.Table | pyarrow.RecordBatch], names: Sequence[str], path: Path
) -> Iterator[_Batch]:
    first = 1
    for table in tables:
        values = []
        for name in names:
            column = table.column(name)
            if isinstance(column.type, pyarrow.BaseExtensionType):
                raise UserError(
                    f"{path}, column {name!r} is of the type {column.type}; {EXPECTED}."
                )
            values.append(_arrow_cells(column))
        yield _Batch(values, range(first, first + table.num_rows))
        first += table.num_rows


def _arrow_cells(column: pyarrow.Array | pyarrow.ChunkedArray) -> list:
    if pyarrow.types.is_float16(column.type) or pyarrow.types.is_float32(column.type):
        return list(column.to_numpy(zero_copy_only=False))  # 0.1 stays 0.1, and not 0.10000000149
    return column.to_pylist()


def _class_names(numbers: Iterable[int | None], names: Sequence[str]) -> list[str | None]:
    """The names of class numbers; None for -1 and for none, which are no label."""
    return [None if number is None or number < 0 else names[number] for number in numbers]


_SAVED = _Storage("a saved Dataset", _saved)
_ENDINGS = {
    ".csv": _Storage(
        "UTF-8, with values separated by commas", partial(_delimited, separator=","), "line"
    ),
    ".tsv": _Storage(
        "UTF-8, with values separated by tabs", partial(_delimited, separator="\t"), "line"
    ),
    ".jsonl": _Storage("UTF-8, with a JSON object in each line", _json_lines, "line"),
    ".parquet": _Storage("Parquet", _parquet),
}

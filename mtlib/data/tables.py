"""A person's own file with columns by name: CSV, TSV, JSON lines, Parquet, or a folder that `save_to_disk` wrote."""

import contextlib
import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pandas
import pyarrow.parquet
from datasets import ClassLabel, Dataset, Features, Value, load_from_disk
from rich.console import Console
from rich.progress import open as open_with_bar

from mtlib.errors import UserError, one_of

_ROWS = 10_000  # that are held at once
TEXTS = ("text", "text_pair")


class TableFile:
    """The rows of a file, in tables of 10,000 with the columns `text` (and `text_pair`) and `label`, all of words.

    Read anew each time it is iterated, so that memory stays flat, with a progress bar on a terminal. Rows without a
    text or a label are left out; `dropped` counts them once all are read.

    Args:
        path: a file that ends in .csv, .tsv, .jsonl or .parquet, in UTF-8; or a folder of `Dataset.save_to_disk`.
        text: the column with the texts; for pairs, both columns.
        label: the column with the labels, words or numbers.

    Raises:
        UserError: when it is read: no such file, another ending, not what its ending says, a column that is not there.
    """

    def __init__(self, path: str | Path, text: str | Sequence[str], label: str):
        self.path = Path(path)
        columns = [text] if isinstance(text, str) else list(text)
        if not 1 <= len(columns) <= 2:
            raise UserError(f"text is {text!r}; expected one column of texts, or two for pairs.")
        if len({*columns, label}) <= len(columns):
            raise UserError(f"text is {', '.join(columns)} and label {label}; expected different columns.")
        self.columns = dict(zip(columns, TEXTS, strict=False)) | {label: "label"}
        self.texts = TEXTS[: len(columns)]
        self.dropped: Counter = Counter()

    def __iter__(self) -> Iterator[pandas.DataFrame]:
        self.dropped = Counter()
        try:
            for table in self._tables():
                table = self._chosen(table)
                no_text = (table[[*self.texts]] == "").any(axis=1)
                no_label = ~no_text & (table["label"] == "")
                self.dropped.update(text=int(no_text.sum()), label=int(no_label.sum()))
                yield table[~(no_text | no_label)]
        except UserError:
            raise
        except (OSError, ValueError) as error:  # what pandas, pyarrow and datasets raise about contents are ValueErrors
            told = getattr(error, "strerror", None) or str(error).strip(". \n").partition("\n")[0]
            form, _ = _FORMATS.get(self.path.suffix.lower(), ("a saved Dataset", None))
            raise UserError(f"{self.path} cannot be read: {told}. Expected {form}.") from error

    def dataset(self) -> Dataset:
        """All rows, with a `ClassLabel`: numbers by their size, words by the alphabet."""
        table = pandas.concat([pandas.DataFrame(columns=[*self.columns.values()], dtype=str), *self])
        names = sorted(table["label"].unique(), key=_in_order)
        table = table.assign(label=table["label"].map(names.index))
        features = Features({name: Value("string") for name in self.texts} | {"label": ClassLabel(names=names)})
        return Dataset.from_pandas(table, features, preserve_index=False)

    def told(self) -> str:
        """Which rows were left out, in a sentence; "" for none."""
        parts = [f"{n:,} without a {what}" for what, n in self.dropped.items() if n]
        return f"{self.path}: rows left out: {', '.join(parts)}." if parts else ""

    def _chosen(self, table: pandas.DataFrame) -> pandas.DataFrame:
        if missing := [name for name in self.columns if name not in table]:
            hint = " Are its columns separated by another sign than its ending says?" if table.shape[1] < 2 else ""
            raise UserError(f"{self.path} has no column {missing[0]!r}; {one_of(missing[0], map(str, table))}{hint}")
        return table[[*self.columns]].rename(columns=self.columns).map(_words)

    def _tables(self) -> Iterator[pandas.DataFrame]:
        if not self.path.exists():
            raise UserError(f"{self.path} does not exist; the folder here is {Path.cwd()}.")
        if self.path.is_dir():
            yield from _saved(self.path)
            return
        _, reader = _FORMATS.get(self.path.suffix.lower(), (None, None))
        if reader is None:
            raise UserError(f"{self.path} ends in {self.path.suffix!r}; expected one of {', '.join(_FORMATS)}.")
        console = Console(stderr=True)
        with open_with_bar(self.path, "rb", description=self.path.name, console=console, transient=True,
                           disable=not console.is_terminal) as file:  # fmt: skip
            yield from reader(file)


def read_table(path: str | Path, text: str | Sequence[str], label: str) -> Dataset:
    """A file's rows as a `Dataset` with `text` (and `text_pair`) and `label`; see `TableFile` and its `dataset`."""
    return TableFile(path, text, label).dataset()


def _delimited(file, separator: str) -> Iterator[pandas.DataFrame]:
    # as words: a label "NA" is one, and "01" is not 1
    options = {"dtype": str, "keep_default_na": False, "encoding": "utf-8-sig", "chunksize": _ROWS}
    if separator == "\t" and any(line.count(b'"') % 2 for line in file):
        options["quoting"] = csv.QUOTE_NONE  # or a text with a single mark would swallow the lines behind it
    file.seek(0)
    for table in pandas.read_csv(file, sep=separator, **options):
        if not isinstance(table.index, pandas.RangeIndex):  # pandas takes what is too much for an index
            raise ValueError("a line has more values than there are columns")
        yield table


def _json_lines(file) -> Iterator[pandas.DataFrame]:
    return pandas.read_json(file, lines=True, dtype=False, chunksize=_ROWS)


def _parquet(file) -> Iterator[pandas.DataFrame]:
    return (rows.to_pandas() for rows in pyarrow.parquet.ParquetFile(file).iter_batches(_ROWS))


_FORMATS = {  # by a file's ending: what it holds, in words, and what reads it
    ".csv": ("UTF-8, with values separated by commas", partial(_delimited, separator=",")),
    ".tsv": ("UTF-8, with values separated by tabs", partial(_delimited, separator="\t")),
    ".jsonl": ("UTF-8, with a JSON object in each line", _json_lines),
    ".parquet": ("Parquet", _parquet),
}


def _saved(folder: Path) -> Iterator[pandas.DataFrame]:
    dataset = load_from_disk(str(folder))
    if not isinstance(dataset, Dataset):
        raise ValueError(f"it holds the sets {', '.join(dataset)}; give one of them, as {folder / next(iter(dataset))}")
    labels = {name: feature for name, feature in dataset.features.items() if isinstance(feature, ClassLabel)}
    for table in dataset.with_format(None).to_pandas(batched=True, batch_size=_ROWS):
        yield table.assign(**{name: table[name].map(partial(_named, feature)) for name, feature in labels.items()})


def _named(feature: ClassLabel, number: float | None) -> str:
    """The name of a class number; "" for -1 and for none, which are no label."""
    return feature.int2str(int(number)) if number is not None and number >= 0 else ""


def _words(value: object) -> str:
    """A cell as text: whole numbers without a point, "" for what is missing or blank."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None or value != value else str(value).strip()


def _in_order(label: str) -> tuple:
    """Numbers by their size, words by the alphabet."""
    with contextlib.suppress(ValueError):
        return 0, float(label), label
    return 1, 0.0, label

"""Files of original releases: found in a folder, parsed (never executed) and checked against the
registry."""

import ast
import csv
import hashlib
import io
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas

from mtlib.data.registry import SETS, Columns, DataSet, ReleaseFile
from mtlib.errors import UserError


class Part(NamedTuple):
    """One file, or one split of the hub: its rows in our columns, its entry in the run record, how
    it deviates."""

    rows: pandas.DataFrame
    file: dict
    deviation: str


def locate(root: Path, path: str) -> Path | None:
    """The file with or without its dataset folder, so that an unpacked release can be a source by
    itself."""
    return next(filter(Path.is_file, (root / path, root / path.partition("/")[2])), None)


def verify(source: str) -> list[dict]:
    """Check every registered file of a release folder; a bad one is reported, not raised.

    A row for each: `file`, `rows`, `status` ("ok", "deviation", "missing" or "FAIL") and `note`,
    which says why.
    """
    released = [data_set for data_set in SETS.values() if not data_set.bundled]
    return [
        {"file": file.path} | _verified(data_set, file, locate(Path(source), file.path))
        for data_set in released
        for file in data_set.files
    ]


def _verified(data_set: DataSet, file: ReleaseFile, path: Path | None) -> dict:
    if path is None:
        return {"rows": None, "status": "missing", "note": data_set.when_gone}
    try:
        part = read_file(data_set, file, path)
    except Exception as error:  # texts that are no texts, no permission to read ...
        return {"rows": None, "status": "FAIL", "note": str(error)}
    status = "deviation" if part.deviation else "ok"
    return {"rows": len(part.rows), "status": status, "note": part.deviation}


def read_file(data_set: DataSet, file: ReleaseFile, path: Path) -> Part:
    """Parse one file and compare it with the registry.

    Raises:
        UserError: it cannot be read, is corrupt, has an unknown label or is not whole.
    """
    try:
        content = path.read_bytes()
        table = _READERS[data_set.format](io.StringIO(content.decode("utf-8-sig")))
        if not isinstance(table.index, pandas.RangeIndex):  # pandas takes what is too much for one
            raise ValueError("a line has more values than there are columns")
    except ValueError as error:
        message = f"{path} is cut off, corrupt or in another encoding: {error}"
        raise UserError(f"{message}. {data_set.when_gone}") from error
    rows = in_our_columns(data_set, data_set.columns, table, file.split, str(path), file.half)
    return checked(data_set, file, rows, hashlib.sha256(content).hexdigest())


# as words: a label "NA" is one, and "01" is not 1
_AS_WORDS = {"dtype": str, "keep_default_na": False}
# by the formats of the registry
_READERS = {
    "csv": partial(pandas.read_csv, **_AS_WORDS),
    "tsv": partial(pandas.read_csv, sep="\t", quoting=csv.QUOTE_NONE, **_AS_WORDS),
    "tsv_quoted": partial(pandas.read_csv, sep="\t", **_AS_WORDS),
    "jsonl": partial(pandas.read_json, lines=True, dtype=False),
}


def in_our_columns(
    data_set: DataSet,
    columns: Columns,
    table: pandas.DataFrame,
    split: str,
    where: str,
    half: str = "",
) -> pandas.DataFrame:
    """A source's rows as text, (text_pair,) label, uid and group; `where` names the source in
    errors."""
    if missing := {*columns.needed} - {*table}:
        message = f"{where}: column {min(missing)!r} is missing, found {[*table]}"
        raise UserError(f"{message}. {data_set.when_gone}")
    gold = table[columns.label].map(str).str.strip()
    labelled = gold != columns.unlabelled
    table = table[labelled]
    gold = gold[labelled]
    _check_values(data_set, columns, table, gold, where)
    rows = table[columns.needed].assign(split=split, position=range(len(table))).to_dict("records")

    def named(template: str) -> pandas.Series:
        return pandas.Series([template.format_map(row) for row in rows], dtype=object)

    cleaned = CLEANERS[data_set.clean]
    ours = {name: [*map(cleaned, table[theirs])] for name, theirs in columns.texts.items()}
    ours["label"] = [*map(columns.labels.index, gold)]
    if columns.pair:
        pairs = named(columns.pair)
        # Where both halves stand in one file, the original comes first (checked against the file of
        # originals).
        halves = half or pairs.duplicated().map({False: "original", True: "edited"})
        ours["uid"] = ours["group"] = pairs + ":" + halves
    else:
        ours["uid"] = named(columns.uid)
        ours["group"] = named(columns.group)
    return pandas.DataFrame(ours)


def _check_values(
    data_set: DataSet,
    columns: Columns,
    table: pandas.DataFrame,
    gold: pandas.Series,
    where: str,
) -> None:
    if unknown := {*gold} - {*columns.labels}:
        message = f"unknown label {min(unknown)!r}, expected one of {', '.join(columns.labels)}"
        raise UserError(f"{where}: {message}. {data_set.when_gone}")
    for name in columns.texts.values():
        no_text = [not isinstance(text, str) for text in table[name]]
        if any(no_text):
            row = no_text.index(True)
            message = f"row {row + 1}: {name!r} is {table[name].iloc[row]!r}; expected a text"
            raise UserError(f"{where}: {message}. {data_set.when_gone}")


def checked(
    data_set: DataSet,
    file: ReleaseFile,
    rows: pandas.DataFrame,
    sha256: str | None,
) -> Part:
    """The part with its entry in the run record; `UserError` if it must not be used."""
    entry = {"path": file.path, "sha256": sha256, "rows": len(rows), "official_rows": file.rows}
    return Part(rows, entry, _deviation(data_set, file, len(rows), sha256))


def _deviation(data_set: DataSet, file: ReleaseFile, rows: int, sha256: str | None) -> str:
    """How a file differs from the published one, or from the one that `mtlib testbed` wrote.

    "" if it does not.

    Raises:
        UserError: it differs so much that it must not be used.
    """
    known = {copy.sha256: copy for copy in file.copies}.get(sha256)
    if known and rows == (known.rows or file.rows):
        return known.note
    deviation = _deviation_from_published(file, rows, sha256)
    if deviation is None:
        message = f"{file.path}: expected {_expected(data_set, file)}, found {rows:,} rows"
        raise UserError(
            f"{message}, and it is no copy known by its checksum; a score on it would not compare. "
            f"{data_set.when_gone}"
        )
    return deviation


def _deviation_from_published(file: ReleaseFile, rows: int, sha256: str | None) -> str | None:
    """ "" for the file itself, words for one that may take its place, None for any other."""
    same_content = not file.sha256 or sha256 == file.sha256
    if file.rows is None:
        return "" if rows and same_content else None
    if rows == file.rows:
        reason = f"expected {file.sha256}, found {sha256}"
        return "" if same_content else f"sha256 differs from the published file: {reason}"
    if file.may_be_subset and 0 < rows < file.rows:
        return f"a subset, {rows:,} of {file.rows:,} rows"
    return None


def _expected(data_set: DataSet, file: ReleaseFile) -> str:
    if file.rows:
        return f"{file.rows:,} rows"
    return "the file as `python -m mtlib testbed` wrote it" if data_set.bundled else "rows"


def pair_halves(set_name: str, groups: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the originals and of the edited texts, pair by pair.

    Raises:
        UserError: not each of them is there once.
    """
    original = _rows_of_half(groups, ":original")
    edited = _rows_of_half(groups, ":edited")
    if original.keys() != edited.keys() or len(original) + len(edited) != len(groups):
        raise UserError(
            f"{set_name}: expected an original and an edited text of every pair once, found "
            f"{len(original)} and {len(edited)} in {len(groups)} rows; alone are "
            f"{sorted(original.keys() ^ edited.keys())[:3]}."
        )
    return np.array([original[pair] for pair in edited]), np.array(list(edited.values()))


def _rows_of_half(groups: Sequence[str], half: str) -> dict[str, int]:
    """The row of each pair; a group is "PAIR:original" or "PAIR:edited"."""
    rows = {group: row for row, group in enumerate(groups) if group.endswith(half)}
    return {group.removesuffix(half): row for group, row in rows.items()}


# --- how a release writes its texts ---


def _without_line_breaks(text: str) -> str:
    """IMDB reviews carry HTML line breaks; every run of them becomes one space."""
    return re.sub(r"\s*(?:<br\s*/?>\s*)+", " ", text).strip()


def _csv_unquoted(text: str) -> str:
    """QQP quotes fields that hold a quotation mark, in a file that is else unquoted (so does the
    hub)."""
    text = text.strip()
    quoted = len(text) > 1 and text[0] == text[-1] == '"'
    if quoted and '"' not in text[1:-1].replace('""', ""):
        text = text[1:-1].replace('""', '"')
    return text.strip()


def _from_bytes_literal(text: str) -> str:
    """Under Python 3, Google's PAWS-QQP script writes every sentence as a bytes literal: b'...'."""
    if text[:2] in ("b'", 'b"') and text[-1] == text[1]:
        text = ast.literal_eval(text).decode("utf-8")
    return text.strip()


CLEANERS = {
    "strip": str.strip,
    "without_line_breaks": _without_line_breaks,
    "csv_unquoted": _csv_unquoted,
    "from_bytes_literal": _from_bytes_literal,
}

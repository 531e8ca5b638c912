"""Files of original releases: found in a folder, parsed (never executed) and checked.

The registry says what they must be.
"""

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
    """One file, or one split of the hub."""

    rows: pandas.DataFrame  # in our columns
    file: dict  # its entry in the run record
    deviation: str  # from the published file, in words; "" for none


def locate(root: Path, path: str) -> Path | None:
    """The file of a release, with or without its dataset folder; None if it is not there.

    Without it, an unpacked release can be a source by itself.
    """
    places = (root / path, root / path.partition("/")[2])
    return next(filter(Path.is_file, places), None)


def release_folder(source: str) -> Path:
    """A folder of original releases, or `UserError`."""
    folder = Path(source)
    if not folder.is_dir():
        expected = "expected releases, as FOLDER/sst2/SST-2/dev.tsv."
        raise UserError(f"source {source!r} is no folder; {expected}")
    return folder


def verify(source: str) -> list[dict]:
    """Check every registered file of a release folder; a bad one is reported, not raised.

    A row for each: `file`, `rows`, `status` ("ok", "deviation", "missing" or "FAIL") and `note`,
    which says why.
    """
    folder = release_folder(source)
    released = [data_set for data_set in SETS.values() if not data_set.bundled]
    return [
        {"file": file.path} | _verified(data_set, file, locate(folder, file.path))
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
    return checked_part(data_set, file, rows, hashlib.sha256(content).hexdigest())


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
    """A source's rows as text, (text_pair,) label, uid and group.

    Args:
        data_set: the set.
        columns: of the source.
        table: the source's rows.
        split: the release's name of it.
        where: names the source in errors.
        half: of a contrast set, "original" or "edited"; "" where both stand in one source.
    """
    if missing := {*columns.needed} - {*table}:
        message = f"{where}: column {min(missing)!r} is missing, found {[*table]}"
        raise UserError(f"{message}. {data_set.when_gone}")
    gold = table[columns.label].map(str).str.strip()
    labelled = gold != columns.unlabelled
    table = table[labelled]
    gold = gold[labelled]
    _check_values(data_set, columns, table, gold, where)
    clean = CLEANERS[data_set.clean]
    ours = {name: [*map(clean, table[theirs])] for name, theirs in columns.texts.items()}
    ours["label"] = [*map(columns.labels.index, gold)]
    return pandas.DataFrame(ours | _uids_and_groups(columns, table, split, half))


def _uids_and_groups(
    columns: Columns, table: pandas.DataFrame, split: str, half: str
) -> dict[str, pandas.Series]:
    """The columns `uid` and `group`, made by the templates of the source."""
    rows = table[columns.needed].assign(split=split, position=range(len(table))).to_dict("records")

    def filled(template: str) -> pandas.Series:
        return pandas.Series([template.format_map(row) for row in rows], dtype=object)

    if not columns.pair:
        return {"uid": filled(columns.uid), "group": filled(columns.group)}
    pairs = filled(columns.pair)
    # Where both halves stand in one file, the original comes first (checked against the file of
    # originals).
    halves = half or pairs.duplicated().map({False: "original", True: "edited"})
    names = pairs + ":" + halves
    return {"uid": names, "group": names}


def _check_values(
    data_set: DataSet,
    columns: Columns,
    table: pandas.DataFrame,
    gold: pandas.Series,
    where: str,
) -> None:
    """Raise `UserError` for a label that is not in the registry, or a text that is none."""
    if unknown := {*gold} - {*columns.labels}:
        message = f"unknown label {min(unknown)!r}, expected one of {', '.join(columns.labels)}"
        raise UserError(f"{where}: {message}. {data_set.when_gone}")
    for name in columns.texts.values():
        no_text = [not isinstance(text, str) for text in table[name]]
        if any(no_text):
            row = no_text.index(True)
            message = f"row {row + 1}: {name!r} is {table[name].iloc[row]!r}; expected a text"
            raise UserError(f"{where}: {message}. {data_set.when_gone}")


def checked_part(
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
    if _is_published(file, rows, sha256):
        return ""
    if rows == file.rows:
        reason = f"expected {file.sha256}, found {sha256}"
        return f"sha256 differs from the published file: {reason}"
    if file.may_be_subset and file.rows and 0 < rows < file.rows:
        return f"a subset, {rows:,} of {file.rows:,} rows"
    message = f"{file.path}: expected {_expected(data_set, file)}, found {rows:,} rows"
    raise UserError(
        f"{message}, and it is no copy known by its checksum; a score on it would not compare. "
        f"{data_set.when_gone}"
    )


def _is_published(file: ReleaseFile, rows: int, sha256: str | None) -> bool:
    """Whether this is the published file, by what is known of it: its rows, its checksum."""
    all_rows = rows > 0 if file.rows is None else rows == file.rows
    same_content = not file.sha256 or sha256 == file.sha256
    return all_rows and same_content


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

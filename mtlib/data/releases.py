"""Files of original releases: found in a folder, parsed (never executed) and checked against the registry."""

import ast
import csv
import hashlib
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas

from mtlib.data.registry import SETS, Columns, DataSet, ReleaseFile
from mtlib.errors import UserError


class Part(NamedTuple):
    """One file, or one split of the hub: its rows in our columns, its entry in the run record, how it deviates."""

    rows: pandas.DataFrame
    file: dict
    deviation: str


def locate(root: Path, path: str) -> Path | None:
    """The file with or without its dataset folder, so that an unpacked release can be a source by itself."""
    return next(filter(Path.is_file, (root / path, root / path.partition("/")[2])), None)


def verify(source: str) -> list[dict]:
    """Check every registered file of a release folder; a bad one is reported, not raised.

    A row for each: `file`, `rows`, `status` ("ok", "deviation", "missing" or "FAIL") and `note`, which says why.
    """
    report = []
    for data_set in (data_set for data_set in SETS.values() if not data_set.is_bundled):
        for file in data_set.files:
            rows, status, note = None, "missing", data_set.when_gone
            if path := locate(Path(source), file.path):
                try:
                    part = read_file(data_set, file, path)
                    rows, note = len(part.rows), part.deviation
                    status = "deviation" if note else "ok"
                except Exception as error:  # texts that are no texts, no permission to read ...
                    status, note = "FAIL", str(error)
            report.append({"file": file.path, "rows": rows, "status": status, "note": note})
    return report


def read_file(data_set: DataSet, file: ReleaseFile, path: Path) -> Part:
    """Parse one file and compare it with the registry.

    Raises:
        UserError: it cannot be read, is corrupt, has an unknown label or is not whole.
    """
    try:
        content = path.read_bytes()
        text = io.StringIO(content.decode("utf-8-sig"))
        if data_set.format == "jsonl":
            table = pandas.read_json(text, lines=True, dtype=False)
        else:
            quoting = csv.QUOTE_NONE if data_set.format == "tsv" else csv.QUOTE_MINIMAL
            table = pandas.read_csv(text, sep="\t", quoting=quoting, dtype=str, keep_default_na=False)
    except ValueError as error:
        raise UserError(f"{path} is cut off, corrupt or in another encoding: {error}. {data_set.when_gone}") from error
    rows = in_our_columns(data_set, data_set.columns, table, file.split, str(path), file.half)
    return checked(data_set, file, rows, hashlib.sha256(content).hexdigest())


def in_our_columns(
    data_set: DataSet, columns: Columns, table: pandas.DataFrame, split: str, where: str, half: str = ""
) -> pandas.DataFrame:
    """A source's rows as text, (text_pair,) label, uid and group; `where` names the source in errors."""
    if missing := {*columns.needed} - {*table}:
        raise UserError(f"{where}: column {min(missing)!r} is missing, found {[*table]}. {data_set.when_gone}")
    gold = table[columns.label].map(str).str.strip()
    table, gold = table[gold != columns.unlabelled], gold[gold != columns.unlabelled]
    if unknown := {*gold} - {*columns.labels}:
        expected = ", ".join(columns.labels)
        raise UserError(f"{where}: unknown label {min(unknown)!r}, expected one of {expected}. {data_set.when_gone}")

    rows = table[columns.needed].assign(split=split, position=range(len(table))).to_dict("records")

    def named(template: str) -> pandas.Series:
        return pandas.Series([template.format_map(row) for row in rows], dtype=object)

    texts = {"text": columns.text} | ({"text_pair": columns.text_pair} if columns.text_pair else {})
    ours = {name: [*map(CLEANERS[data_set.clean], table[theirs])] for name, theirs in texts.items()}
    ours["label"] = [*map(columns.labels.index, gold)]
    if columns.pair:
        pairs = named(columns.pair)
        # Where both halves stand in one file, the original comes first (checked against the file of originals).
        ours["uid"] = ours["group"] = (
            pairs + ":" + (half or pairs.duplicated().map({False: "original", True: "edited"}))
        )
    else:
        ours |= {"uid": named(columns.uid), "group": named(columns.group)}
    return pandas.DataFrame(ours)


def checked(data_set: DataSet, file: ReleaseFile, rows: pandas.DataFrame, sha256: str | None) -> Part:
    """The part with its entry in the run record; `UserError` if it must not be used."""
    entry = {"path": file.path, "sha256": sha256, "rows": len(rows), "official_rows": file.rows}
    return Part(rows, entry, _deviation(data_set, file, len(rows), sha256))


def _deviation(data_set: DataSet, file: ReleaseFile, rows: int, sha256: str | None) -> str:
    """How a file differs from the published one, or from the one that `mtlib testbed` wrote ("" if it does not)."""
    known = {copy.sha256: copy for copy in file.copies}.get(sha256)
    if known and rows == (known.rows or file.rows):
        return known.note
    differs = file.sha256 and sha256 != file.sha256
    if rows == file.rows:
        return f"sha256 differs from the published file: expected {file.sha256}, found {sha256}" if differs else ""
    if file.rows is None and rows and not differs:
        return ""
    if data_set.is_train and file.rows and 0 < rows < file.rows:
        return f"a subset, {rows:,} of {file.rows:,} rows"
    expected = f"{file.rows:,} rows" if file.rows else "the file as `mtlib testbed` wrote it"
    raise UserError(
        f"{file.path}: expected {expected}, found {rows:,} rows, and it is no copy known by its checksum; a score "
        f"on it would not compare. {data_set.when_gone}"
    )


def pair_halves(set_name: str, groups: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the originals and of the edited texts, pair by pair; `UserError` unless each is there once."""
    original, edited = (
        {group.removesuffix(half): row for row, group in enumerate(groups) if group.endswith(half)}
        for half in (":original", ":edited")
    )
    if original.keys() != edited.keys() or len(original) + len(edited) != len(groups):
        raise UserError(
            f"{set_name}: expected an original and an edited text of every pair once, found {len(original)} and "
            f"{len(edited)} in {len(groups)} rows; alone are {sorted(original.keys() ^ edited.keys())[:3]}."
        )
    return np.array([original[pair] for pair in edited]), np.array(list(edited.values()))


# --- how a release writes its texts ---


def _without_line_breaks(text: str) -> str:
    """IMDB reviews carry HTML line breaks; every run of them becomes one space."""
    return re.sub(r"\s*(?:<br\s*/?>\s*)+", " ", text).strip()


def _csv_unquoted(text: str) -> str:
    """QQP quotes the fields that hold a quotation mark, in a file that is otherwise unquoted (and so does the hub)."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1].replace('""', ""):
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

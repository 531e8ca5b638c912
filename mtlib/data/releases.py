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
import pandas as pd

from mtlib.data.registry import SETS, Columns, DataSet, ReleaseFile
from mtlib.errors import UserError


class Part(NamedTuple):
    """One file, or one split of the hub: its rows in our columns, its entry in the run record, how it deviates."""

    rows: pd.DataFrame
    file: dict
    deviations: list[str]


def release_folder(source: str) -> Path:
    if not Path(source).is_dir():
        raise UserError(
            f"source {str(source)!r} is no folder; expected one with the original releases (for example "
            "FOLDER/sst2/SST-2/dev.tsv)."
        )
    return Path(source)


def locate(root: Path, path: str) -> Path | None:
    """The file with or without its dataset folder, so that an unpacked release can be a source by itself."""
    candidates = (root / path, root / path.partition("/")[2])
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def read_file(data_set: DataSet, file: ReleaseFile, path: Path) -> Part:
    """Parse one file and compare it with the registry.

    Raises:
        UserError: it cannot be read, is corrupt, has an unknown label or is not whole.
    """
    try:
        content = path.read_bytes()
        text = io.StringIO(content.decode("utf-8-sig"))
        if data_set.format == "jsonl":
            table = pd.read_json(text, lines=True, dtype=False)
        else:
            quoting = csv.QUOTE_NONE if data_set.format == "tsv" else csv.QUOTE_MINIMAL
            table = pd.read_csv(text, sep="\t", quoting=quoting, dtype=str, keep_default_na=False)
    except ValueError as error:
        raise UserError(f"{path} is cut off, corrupt or in another encoding: {error}. {data_set.when_gone}") from error
    rows = in_our_columns(data_set, data_set.columns, table, file.split, str(path), file.half)
    return checked(data_set, file, rows, hashlib.sha256(content).hexdigest())


def checked(data_set: DataSet, file: ReleaseFile, rows: pd.DataFrame, sha256: str | None) -> Part:
    """The part with its entry in the run record, once `deviation` lets it pass."""
    differs = deviation(data_set, file, len(rows), sha256)
    entry = {"path": file.path, "sha256": sha256, "rows": len(rows), "official_rows": file.rows}
    return Part(rows, entry, [f"{file.path}: {differs}"] if differs else [])


def in_our_columns(
    data_set: DataSet, columns: Columns, table: pd.DataFrame, split: str, where: str, half: str = ""
) -> pd.DataFrame:
    """A source's rows as text, (text_pair,) label, uid and group."""
    if missing := set(columns.needed) - set(table.columns):
        raise UserError(
            f"{where}: expected the columns {', '.join(columns.needed)}; {', '.join(sorted(missing))} missing, found "
            f"{list(table.columns)}. {data_set.when_gone}"
        )
    gold = table[columns.label].map(str).str.strip()
    table, gold = table[gold != columns.unlabelled], gold[gold != columns.unlabelled]
    if unknown := {*gold} - {*columns.labels}:
        raise UserError(
            f"{where}: unknown label {min(unknown)!r} in column {columns.label!r}, expected one of "
            f"{', '.join(columns.labels)}. {data_set.when_gone}"
        )
    clean = CLEANERS[data_set.clean]
    ours = {"text": [clean(text) for text in table[columns.text]]}
    if columns.text_pair:
        ours["text_pair"] = [clean(text) for text in table[columns.text_pair]]
    ours["label"] = [columns.labels.index(label) for label in gold]
    rows = table[columns.needed].to_dict("records")
    named = [{**row, "split": split, "position": position} for position, row in enumerate(rows)]
    if columns.pair:
        pairs = pd.Series([columns.pair.format_map(row) for row in named], dtype=object)
        # Where both halves stand in one file, the original comes first (checked against the file of originals).
        halves = half or pairs.duplicated().map({False: "original", True: "edited"}).astype(object)
        ours["uid"] = ours["group"] = pairs + ":" + halves
    else:
        ours["uid"] = [columns.uid.format_map(row) for row in named]
        ours["group"] = [columns.group.format_map(row) for row in named]
    return pd.DataFrame(ours)


def deviation(data_set: DataSet, file: ReleaseFile, rows: int, sha256: str | None) -> str:
    """How a file differs from the published one ("" if it does not); `UserError` if it must not be used."""
    known = next((copy for copy in file.copies if copy.sha256 == sha256), None)
    if known and rows == (known.rows or file.rows):
        return known.note
    if not known and sha256 and sha256 != file.sha256:
        for other in (other for each in SETS.values() for other in each.files):
            if sha256 in (other.sha256, *(copy.sha256 for copy in other.copies)):
                raise UserError(f"{file.path} is the published {other.path}; put each file in its own place.")
    if rows == file.rows or (file.rows is None and rows):
        differs = file.sha256 and sha256 != file.sha256
        return f"sha256 differs from the published file: expected {file.sha256}, found {sha256}" if differs else ""
    if data_set.is_train and file.rows and 0 < rows < file.rows:
        return f"a subset, {rows:,} of {file.rows:,} rows"
    expected = "at least one row" if file.rows is None else f"{file.rows:,} rows"
    raise UserError(
        f"{file.path}: expected {expected}, found {rows:,}, and it is no copy known by its checksum; a "
        f"score on it would not compare. {data_set.when_gone}"
    )


def pair_halves(set_name: str, groups: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the originals and of the edited texts, pair by pair; `UserError` unless each is there once."""
    original, edited = (
        {group.removesuffix(half): row for row, group in enumerate(groups) if group.endswith(half)}
        for half in (":original", ":edited")
    )
    if original.keys() != edited.keys() or len(original) + len(edited) != len(groups):
        raise UserError(
            f"{set_name}: expected the groups 'PAIR:original' and 'PAIR:edited' once for every pair, found "
            f"{len(original)} originals and {len(edited)} edited texts in {len(groups)} rows; alone are "
            f"{sorted(original.keys() ^ edited.keys())[:3]}. Take fresh copies of its files, and the set as a whole."
        )
    return np.array([original[pair] for pair in edited]), np.array(list(edited.values()))


def verify(source: str) -> list[dict]:
    """Check every registered file of a release folder; a bad one is reported, not raised.

    A row for each: `file`, `rows`, `status` ("ok", "deviation", "missing" or "FAIL") and `note`, which says why.
    """
    root, report = release_folder(source), []
    for data_set in (data_set for data_set in SETS.values() if not data_set.is_bundled):
        for file in data_set.files:
            rows, status, note, path = None, "missing", [data_set.when_gone], locate(root, file.path)
            if path:
                try:
                    part = read_file(data_set, file, path)
                    rows, status, note = len(part.rows), "deviation" if part.deviations else "ok", part.deviations
                except Exception as error:  # texts that are no texts, no permission to read ...
                    status, note = "FAIL", [str(error)]
            report.append({"file": file.path, "rows": rows, "status": status, "note": "; ".join(note)})
    return report


# ------------------------------------------------------------------------------------ how a release writes its texts


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

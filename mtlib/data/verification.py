"""A release folder checked against the registry, file by file."""

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from mtlib.data.registry import SETS, DataSet, ReleaseFile, is_bundled
from mtlib.data.releases import check_unique, deviation, locate, parse, read_bytes, release_folder
from mtlib.errors import UserError


@dataclass(frozen=True)
class VerifyRow:
    """What `verify` found for one file. `status` is "ok", "deviation" (usable, see `note`), "missing" or "FAIL"."""

    file: str
    rows: int | None
    expected: int | None
    labels: str
    checksum: str
    status: str
    note: str


def verify(source: str) -> list[VerifyRow]:
    """Check the rows, labels and checksum of every registered file of a release folder.

    A bad file is reported, not raised. Raises `UserError` if there is no such folder.
    """
    root = release_folder(source)
    return [
        _verify_file(name, data_set, file, root)
        for name, data_set in SETS.items()
        if not is_bundled(name)
        for file in data_set.files
    ]


def _verify_file(name: str, data_set: DataSet, file: ReleaseFile, root: Path) -> VerifyRow:
    def row(status: str, note: str, rows: int | None = None, labels: str = "", checksum: str = "") -> VerifyRow:
        return VerifyRow(file.path, rows, file.rows, labels, checksum, status, note)

    path = locate(root, file.path)
    if path is None:
        return row("missing", data_set.when_gone)
    rows, labels, checksum = None, "", ""
    try:
        content = read_bytes(path)
        sha256 = hashlib.sha256(content).hexdigest()
        checksum = _checksum_status(file, sha256)
        columns, skipped = parse(data_set, file, content, path)
        rows, labels = len(columns["label"]), _label_counts(data_set, columns["label"])
        check_unique(name, columns["uid"] or [""])
        differs = deviation(data_set, file, rows, sha256)
    except UserError as error:
        return row("FAIL", str(error), rows, labels, checksum)
    note = "; ".join(text for text in (differs, skipped) if text)
    return row("deviation" if differs else "ok", note, rows, labels, checksum)


def _checksum_status(file: ReleaseFile, sha256: str) -> str:
    if sha256 == file.sha256:
        return "as published"
    if any(sha256 == copy.sha256 for copy in file.copies):
        return "known copy"
    return "MISMATCH" if file.sha256 else "not registered"


def _label_counts(data_set: DataSet, labels: list[int]) -> str:
    counts = Counter(labels)
    return " / ".join(f"{counts[label]:,} {name}" for label, name in enumerate(data_set.label_names))

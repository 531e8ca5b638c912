"""Files of original releases: found in a folder, parsed (never executed) and checked against the registry."""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mtlib.data.registry import SETS, Columns, DataSet, ReleaseFile
from mtlib.errors import UserError


def release_folder(source: str, others: str = "") -> Path:
    """`source` as a path.

    Raises:
        UserError: there is no such folder. `others` says what else would do.
    """
    if not Path(source).is_dir():
        raise UserError(
            f"source {str(source)!r} is no folder; expected one with the original releases (for example "
            f"FOLDER/sst2/SST-2/dev.tsv){others}."
        )
    return Path(source)


def locate(root: Path, path: str) -> Path | None:
    """The file with or without its dataset folder, so that an unpacked release can be a source by itself."""
    candidates = (root / path, root / path.partition("/")[2])
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check its permissions") from error


def parse(data_set: DataSet, file: ReleaseFile, content: bytes, path: Path) -> tuple[dict[str, list], str]:
    """A file's rows as columns, and a remark about lines that were skipped ("" for none)."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{path}: expected UTF-8 text, found byte 0x{content[error.start]:02x} at offset "
            f"{error.start}; the file is corrupt or in another encoding. {data_set.when_gone}"
        ) from error
    skipped: list[int] = []
    rows = _PARSERS[data_set.format](text, data_set, path, skipped)
    part = in_our_columns(data_set, data_set.columns, rows, file.split, file.half, str(path))
    remark = f"{len(skipped)} broken lines skipped, as the official readers do" if skipped else ""
    return part, remark


def in_our_columns(
    data_set: DataSet, columns: Columns, rows: Iterator[tuple[int, dict]], split: str, half: str, where: str
) -> dict[str, list]:
    """Rows as a source names them -> our columns. `rows` yields (line number, row)."""
    part = {name: [] for name in ("text", "text_pair", "label", "uid", "group")}
    if not data_set.pair:
        del part["text_pair"]
    seen_pairs = set()
    for line, row in rows:
        gold = str(row[columns.label]).strip()
        if columns.unlabelled and gold == columns.unlabelled:
            continue
        if gold not in columns.labels:
            raise UserError(
                f"{where}, line {line}: unknown label {gold!r} in column {columns.label!r}, expected one "
                f"of {', '.join(columns.labels)}. {data_set.when_gone}"
            )
        fields = {**row, "split": split, "position": len(part["label"])}
        if columns.pair:
            pair = columns.pair.format_map(fields)
            # Where both halves stand in one file, the original comes first (checked against the file of originals).
            group = uid = f"{pair}:{half or ('edited' if pair in seen_pairs else 'original')}"
            seen_pairs.add(pair)
        else:
            uid, group = columns.uid.format_map(fields), columns.group.format_map(fields)
        for ours, theirs in (("text", columns.text), ("text_pair", columns.text_pair)):
            if not theirs:
                continue
            if not isinstance(row[theirs], str):
                raise UserError(
                    f"{where}, line {line}: expected text in {theirs!r}, found {row[theirs]!r}. {data_set.when_gone}"
                )
            try:
                part[ours].append(data_set.clean(row[theirs]))
            except (ValueError, SyntaxError, AttributeError) as error:
                raise UserError(
                    f"{where}, line {line}: cannot decode {theirs!r}: {row[theirs][:60]!r} ({error}). "
                    f"{data_set.when_gone}"
                ) from error
        part["label"].append(columns.labels[gold])
        part["uid"].append(uid)
        part["group"].append(group)
    return part


def deviation(data_set: DataSet, file: ReleaseFile, rows: int, sha256: str) -> str:
    """How a file differs from the published one ("" if it does not); `UserError` if it must not be used."""
    known = next((copy for copy in file.copies if copy.sha256 == sha256), None)
    if known is None and sha256 != file.sha256 and (elsewhere := _paths_by_sha256().get(sha256)):
        raise UserError(f"{file.path} is the published {', '.join(sorted(elsewhere))}; put each file in its own place.")
    if known and known.rows == rows:
        return known.note
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


def _paths_by_sha256() -> dict[str, set[str]]:
    paths: dict[str, set[str]] = {}
    for data_set in SETS.values():
        for file in data_set.files:
            for sha256 in filter(None, (file.sha256, *(copy.sha256 for copy in file.copies))):
                paths.setdefault(sha256, set()).add(file.path)
    return paths


def check_unique(set_name: str, uids: list[str]) -> None:
    uid, times = Counter(uids).most_common(1)[0]
    if times > 1:
        raise UserError(
            f"{set_name}: uid {uid!r} occurs {times} times, expected once; the file holds rows twice, take a fresh copy"
        )


# ------------------------------------------------------------------------------------------------------------ formats


def _parse_tsv(text: str, data_set: DataSet, path: Path, skipped: list[int]) -> Iterator[tuple[int, dict]]:
    """Tab-separated with quoting off: a quotation mark is a character like any other. LF or CRLF."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    header = lines[0].split("\t")
    _check_header(data_set, header, path)
    for number, line in enumerate(lines[1:], start=2):
        if not line:
            continue
        cells = line.split("\t")
        if len(cells) < len(header) and data_set.skips_broken_lines:
            skipped.append(number)
            continue
        if len(cells) != len(header):
            raise UserError(
                f"{path}, line {number}: expected {len(header)} tab-separated fields, found {len(cells)}; "
                f"the file is cut off or corrupt. {data_set.when_gone}"
            )
        yield number, dict(zip(header, cells, strict=True))


def _parse_csv(text: str, data_set: DataSet, path: Path, skipped: list[int]) -> Iterator[tuple[int, dict]]:
    """Tab-separated with CSV quoting."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter="\t", strict=True)
    try:
        header = next(reader, [])
        _check_header(data_set, header, path)
        for cells in reader:
            if len(cells) != len(header):
                raise csv.Error(f"expected {len(header)} fields, found {len(cells)}")
            yield reader.line_num, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise UserError(
            f"{path}, line {reader.line_num}: {error}; the file is cut off or corrupt. {data_set.when_gone}"
        ) from error


def _parse_jsonl(text: str, data_set: DataSet, path: Path, skipped: list[int]) -> Iterator[tuple[int, dict]]:
    """One JSON object a line."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(
                f"{path}, line {number}: expected a JSON object, found {line[:60]!r} ({error.msg}); the "
                f"file is cut off or corrupt. {data_set.when_gone}"
            ) from error
        _check_header(data_set, list(row) if isinstance(row, dict) else [], path, f", line {number}")
        yield number, row


_PARSERS = {"tsv": _parse_tsv, "csv": _parse_csv, "jsonl": _parse_jsonl}


def _check_header(data_set: DataSet, header: list[str], path: Path, line: str = "") -> None:
    if missing := data_set.columns.needed - set(header):
        raise UserError(
            f"{path}{line}: expected the columns {', '.join(sorted(data_set.columns.needed))}; "
            f"{', '.join(sorted(missing))} missing, found {header}. {data_set.when_gone}"
        )

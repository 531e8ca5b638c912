"""Where data comes from: the bundled testbed, the Hugging Face hub, or a folder of original releases.

One registry, `SETS`, says for each set where it lives, how its release is laid out, how many rows it must have and
what to do when it is gone. `load` gives the same columns whichever way the data came:

    text       str    the sentence, or the first of a pair
    text_pair  str    the second of a pair (tasks on pairs only)
    label      int    0 negative, 1 positive; 0 entailment, 1 neutral, 2 contradiction; 0 not paraphrase, 1 paraphrase
                      (GLUE's order); HANS: 0 entailment, 1 non-entailment
    uid        str    unique within the set
    group      str    what results are broken down by ("" if nothing): HANS "heuristic/subcase", ANLI round, MNLI genre,
                      PAWS "set/split", contrast sets "pair id:original" or "pair id:edited"

Rows stand in file order. Downloaded data is only ever parsed: no loading scripts, no pickles.
"""

import ast
import csv
import hashlib
import http.client
import io
import json
import os
import re
import string
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import datasets

from mtlib.errors import UserError
from mtlib.paths import TESTBED_DIR

# Raw files fetched for `source="hub"` lie beside the hub's own cache, in the layout of the original releases.
CACHE_DIR = Path(datasets.config.HF_CACHE_HOME) / "mtlib"
RAW_BASE = "https://raw.githubusercontent.com"


# ---------------------------------------------------------------------------------------------- what a set is made of


@dataclass(frozen=True)
class Copy:
    """A copy of a release file that is known by its checksum. `note` says how what is read from it deviates."""

    sha256: str
    rows: int
    note: str = ""


@dataclass(frozen=True)
class ReleaseFile:
    """One file of an original release. `rows` is the official number of labelled rows (None: not fixed)."""

    split: str
    path: str  # dataset folder + path inside the release; the dataset folder may be left out on disk
    rows: int | None
    sha256: str = ""  # of the file as published, where that is known
    copies: tuple[Copy, ...] = ()
    half: str = ""  # "original" or "edited" where a file holds one half of a contrast set


@dataclass(frozen=True)
class Columns:
    """How a source names its columns. `uid`, `group` and `pair` are templates over a row, {split} and {position}."""

    text: str
    label: str
    labels: Mapping[str, int]
    text_pair: str = ""
    uid: str = "{position}"
    group: str = ""
    pair: str = ""  # contrast sets: what the original and its edited version have in common
    unlabelled: str = ""  # rows with this label are dropped, as the official readers do

    @property
    def needed(self) -> set[str]:
        templates = "".join((self.uid, self.group, self.pair))
        named = {name for _, name, _, _ in string.Formatter().parse(templates) if name}
        return {self.text, self.label, self.text_pair, *named} - {"", "split", "position"}


@dataclass(frozen=True)
class Hub:
    """A set on the Hugging Face hub. `pinned` says how far the revision can be trusted."""

    id: str
    config: str | None
    revision: str
    pinned: str
    splits: Mapping[str, str]  # release split -> hub split
    columns: Columns


@dataclass(frozen=True)
class RawFiles:
    """The release files themselves, at one commit of a public repository; verified by sha256."""

    repository: str
    commit: str


@dataclass(frozen=True)
class DataSet:
    """Everything `load` has to know about one set."""

    label_names: tuple[str, ...]
    files: tuple[ReleaseFile, ...]
    format: str  # "tsv" (quoting off), "csv" (tab-separated, CSV quoting) or "jsonl"
    columns: Columns
    licence: str
    when_gone: str
    remote: Hub | RawFiles | None = None
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # the first one is the default
    clean: Callable[[str], str] = str.strip
    is_train: bool = False  # a training set may be a subset; an evaluation set must be whole
    paired: bool = False
    skips_broken_lines: bool = False

    @property
    def pair(self) -> bool:
        return bool(self.columns.text_pair)


@dataclass(frozen=True)
class VerifyRow:
    """What `verify` found for one file. `status` is "ok", "deviation" (usable, see `note`), "missing" or "FAIL"."""

    set: str
    split: str
    file: str
    rows: int | None
    expected: int | None
    labels: str
    sha256: str
    status: str
    note: str


# ------------------------------------------------------------------------------------------------------------ loading


def load(set_name: str, source: str = "testbed", splits: str | None = None) -> datasets.Dataset:
    """One set as a `datasets.Dataset` with the columns above, in file order.

    `source` is "testbed" (bundled), "hub" (downloads) or a folder of original releases; `splits` is one of
    `split_options(set_name)`. Raises `UserError` for an unknown name, a missing or corrupt file, an unknown label, and
    for an evaluation set that is not whole.
    """
    return _load(set_name, source, splits).dataset


def split_options(set_name: str) -> tuple[str, ...]:
    """What `splits` may be for a set, the default first. More than one only where the paper leaves the split open."""
    return tuple(_options(_registered(set_name)))


def describe(set_name: str, source: str, splits: str | None = None) -> dict:
    """What `load` reads, for the run record: revision or files with sha256, rows, and every deviation in words.

    `content_sha256` is over (text, text_pair, label) in order, so that it compares across sources. The folder's own
    path is left out: a record must mean the same on every machine.
    """
    loaded = _load(set_name, source, splits)
    data_set = SETS[set_name]
    return {
        "set": set_name,
        "source": source if source in ("testbed", "hub") else "folder",
        "splits": splits or split_options(set_name)[0],
        "revision": loaded.revision,
        "files": loaded.files,
        "rows": len(loaded.dataset),
        "official_rows": loaded.official_rows,
        "content_sha256": _content_sha256(loaded.dataset),
        "licence": data_set.licence,
        "deviations": loaded.deviations,
    }


def verify(source: str) -> list[VerifyRow]:
    """Check every registered file of a release folder: rows, labels, checksum. A bad file is reported, not raised."""
    root = _folder(source)
    rows = []
    for name, data_set in SETS.items():
        if not name.startswith("testbed_"):
            rows += [_verify_file(name, data_set, file, root) for file in data_set.files]
    for name, file in OTHER_FILES:
        if _locate(root, file.path):
            columns = replace(SETS[name].columns, uid="{position}", group="", pair="")
            rows.append(_verify_file(name, replace(SETS[name], columns=columns), file, root))
    return rows


def fetch(
    set_names: list[str],
    cache_dir: Path = CACHE_DIR,
    progress: Callable[[str, int, int], None] | None = None,
    *,
    raw_base: str = RAW_BASE,
) -> list[Path]:
    """Download sets and return the files they now lie in. Nothing is fetched twice; a cut download resumes.

    Pinned raw files go to `cache_dir` in release layout (so it also serves as a `source` folder) and must match their
    sha256; hub sets go to the hub's own cache. `progress(file, bytes_done, bytes_total)` is called for raw files.
    Raises `UserError` for a set that cannot be downloaded, for a failed or cut download and for a wrong checksum.
    """
    paths = []
    for name in set_names:
        data_set = _registered(name)
        if name.startswith("testbed_"):
            continue  # bundled
        if isinstance(data_set.remote, RawFiles):
            paths += [_fetch_raw(data_set, file, Path(cache_dir), progress, raw_base) for file in data_set.files]
        elif isinstance(data_set.remote, Hub):
            for split in data_set.remote.splits.values():
                hub_rows = _from_hub(name, data_set.remote, split)
                paths += [Path(cached["filename"]) for cached in hub_rows.cache_files]
        else:
            raise UserError(f"{name} cannot be downloaded. {data_set.when_gone}")
    return paths


@dataclass(frozen=True)
class _Loaded:
    dataset: datasets.Dataset
    revision: str | None
    files: list[dict]
    official_rows: int | None
    deviations: list[str]


def _load(set_name: str, source: str, splits: str | None) -> _Loaded:
    data_set = _registered(set_name)
    wanted = _chosen_splits(set_name, data_set, splits)
    _check_source_fits(set_name, source)
    if source == "hub" and isinstance(data_set.remote, Hub):
        parts, files, deviations, revision = _load_hub(set_name, data_set, wanted)
    elif source == "hub":
        fetch([set_name], CACHE_DIR)
        parts, files, deviations = _load_folder(data_set, wanted, CACHE_DIR)
        revision = f"{data_set.remote.repository}@{data_set.remote.commit}"
    else:
        root = TESTBED_DIR if source == "testbed" else _folder(source)
        parts, files, deviations = _load_folder(data_set, wanted, root)
        revision = None

    columns = {name: [value for part in parts for value in part[name]] for name in parts[0]}
    _check_unique(set_name, columns["uid"])
    if data_set.paired:
        _check_pairs(set_name, columns["group"], columns["label"])
    official = [file.rows for file in data_set.files if file.split in wanted]
    features = {name: datasets.Value("int64" if name == "label" else "string") for name in columns}
    return _Loaded(
        dataset=datasets.Dataset.from_dict(columns, features=datasets.Features(features)),
        revision=revision,
        files=files,
        official_rows=None if None in official else sum(official),
        deviations=deviations,
    )


def _load_folder(data_set: DataSet, wanted: tuple[str, ...], root: Path) -> tuple[list[dict], list[dict], list[str]]:
    parts, files, deviations = [], [], []
    for split in wanted:
        for file in (file for file in data_set.files if file.split == split):
            path = _locate(root, file.path)
            if path is None:
                raise UserError(f"{file.path} not found in {root}. {data_set.when_gone}")
            content = _bytes_of(path)
            part, skipped = _read_file(data_set, file, content, path)
            sha256 = hashlib.sha256(content).hexdigest()
            rows = len(part["label"])
            deviation = _deviation(data_set, file, rows, sha256)
            deviations += [f"{file.path}: {text}" for text in (deviation, skipped) if text]
            files.append({"path": file.path, "sha256": sha256, "rows": rows, "official_rows": file.rows})
            parts.append(part)
    return parts, files, deviations


def _load_hub(
    set_name: str, data_set: DataSet, wanted: tuple[str, ...]
) -> tuple[list[dict], list[dict], list[str], str]:
    hub = data_set.remote
    parts, files, deviations, revision = [], [], [], hub.revision
    for split in wanted:
        hub_split = hub.splits[split]
        rows = _from_hub(set_name, hub, hub_split)
        where = f"{hub.id} ({hub.config or 'default'}), split {hub_split}"
        missing = hub.columns.needed - set(rows.column_names)
        if missing:
            raise UserError(
                f"{where}: expected columns {sorted(hub.columns.needed)}, found {rows.column_names}. "
                f"{data_set.when_gone}"
            )
        part = _canonical(data_set, hub.columns, enumerate(rows, start=1), split, "", where)
        official = sum(file.rows for file in data_set.files if file.split == split)
        deviation = _deviation(data_set, ReleaseFile(split, where, official), len(part["label"]), "")
        deviations += [f"{where}: {deviation}"] if deviation else []
        revision = _resolved_revision(rows) or revision
        files.append(
            {
                "path": f"{hub.id}/{hub.config or 'default'}/{hub_split}",
                "sha256": None,
                "rows": len(part["label"]),
                "official_rows": official,
            }
        )
        parts.append(part)
    return parts, files, deviations, f"{hub.id}@{revision}"


def _from_hub(set_name: str, hub: Hub, split: str) -> datasets.Dataset:
    try:
        return datasets.load_dataset(hub.id, hub.config, split=split, revision=hub.revision)
    except Exception as error:  # datasets, huggingface_hub and the HTTP client each raise their own kinds
        raise UserError(
            f"{set_name}: could not read {hub.id} ({hub.config or 'default'}, split {split}, revision {hub.revision}) "
            f"from the hub: {type(error).__name__}: {error}. Check the network and HF_HUB_OFFLINE, or give a folder "
            f"as source. {SETS[set_name].when_gone}"
        ) from error


def _resolved_revision(rows: datasets.Dataset) -> str | None:
    """The commit that the hub's files really came from, for example when a branch name was asked for."""
    for url in rows.info.download_checksums or {}:
        if found := re.search(r"@([0-9a-f]{40})/", url):
            return found.group(1)
    return None


def _content_sha256(dataset: datasets.Dataset) -> str:
    digest = hashlib.sha256()
    for row in dataset:
        digest.update(json.dumps([row["text"], row.get("text_pair"), row["label"]]).encode() + b"\n")
    return digest.hexdigest()


# -------------------------------------------------------------------------------------------------- reading the files


def _read_file(data_set: DataSet, file: ReleaseFile, content: bytes, path: Path) -> tuple[dict[str, list], str]:
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
    part = _canonical(data_set, data_set.columns, rows, file.split, file.half, str(path))
    remark = f"{len(skipped)} broken lines skipped, as the official readers do" if skipped else ""
    return part, remark


def _canonical(
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


# ------------------------------------------------------------------------------------------------------------- checks


def _registered(set_name: str) -> DataSet:
    if set_name not in SETS:
        raise UserError(f"unknown set {set_name!r}; expected one of {', '.join(SETS)}")
    return SETS[set_name]


def _options(data_set: DataSet) -> Mapping[str, tuple[str, ...]]:
    return data_set.options or {data_set.files[0].split: (data_set.files[0].split,)}


def _chosen_splits(set_name: str, data_set: DataSet, splits: str | None) -> tuple[str, ...]:
    options = _options(data_set)
    splits = next(iter(options)) if splits is None else splits
    if splits not in options:
        raise UserError(
            f"{set_name} has no split option {splits!r}; expected one of {', '.join(options)} "
            f"(the first is the default)"
        )
    return options[splits]


def _check_source_fits(set_name: str, source: str) -> None:
    bundled = set_name.startswith("testbed_")
    if bundled and source != "testbed":
        raise UserError(f'{set_name} is bundled; source must be "testbed", found {source!r}')
    if source == "testbed" and not bundled:
        sets = ", ".join(name for name in SETS if name.startswith("testbed_"))
        raise UserError(
            f'{set_name} is not bundled; give source "hub" or a folder of original releases, or take one '
            f"of the testbed's sets: {sets}"
        )


def _folder(source: str) -> Path:
    if not Path(source).is_dir():
        raise UserError(
            f'source {str(source)!r} is no folder; expected "testbed", "hub" or an existing folder with '
            f"the original releases (for example FOLDER/sst2/SST-2/dev.tsv)"
        )
    return Path(source)


def _locate(root: Path, path: str) -> Path | None:
    """The file with or without its dataset folder, so that an unpacked release can be a source by itself."""
    candidates = (root / path, root / path.partition("/")[2])
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; check its permissions") from error


def _check_header(data_set: DataSet, found: list[str], path: Path, line: str = "") -> None:
    if missing := data_set.columns.needed - set(found):
        raise UserError(
            f"{path}{line}: expected the columns {', '.join(sorted(data_set.columns.needed))}; "
            f"{', '.join(sorted(missing))} missing, found {found}. {data_set.when_gone}"
        )


def _deviation(data_set: DataSet, file: ReleaseFile, rows: int, sha256: str) -> str:
    """How a file differs from the published one ("" if it does not); `UserError` if it must not be used."""
    known = next((copy for copy in file.copies if copy.sha256 == sha256), None)
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


def _check_unique(set_name: str, uids: list[str]) -> None:
    uid, times = Counter(uids).most_common(1)[0]
    if times > 1:
        raise UserError(
            f"{set_name}: uid {uid!r} occurs {times} times, expected once; the file holds rows twice, take a fresh copy"
        )


def _check_pairs(set_name: str, groups: list[str], labels: list[int]) -> None:
    """Every pair is one original and one edited text, with opposite labels."""
    pairs: dict[str, dict[str, int]] = {}
    for group, label in zip(groups, labels, strict=True):
        pair, _, half = group.rpartition(":")
        pairs.setdefault(pair, {})[half] = label
    for pair, halves in pairs.items():
        if set(halves) != {"original", "edited"} or halves["original"] == halves["edited"]:
            raise UserError(
                f"{set_name}, pair {pair!r}: expected one original and one edited text with opposite "
                f"labels, found {halves}; the files do not belong together, take fresh copies of them"
            )


def _verify_file(name: str, data_set: DataSet, file: ReleaseFile, root: Path) -> VerifyRow:
    def row(status: str, note: str, rows: int | None = None, labels: str = "", sha256: str = "") -> VerifyRow:
        return VerifyRow(name, file.split, file.path, rows, file.rows, labels, sha256, status, note)

    path = _locate(root, file.path)
    if path is None:
        return row("missing", data_set.when_gone)
    rows, labels, checksum = None, "", ""
    try:
        content = _bytes_of(path)
        sha256 = hashlib.sha256(content).hexdigest()
        checksum = _checksum_status(file, sha256)
        part, skipped = _read_file(data_set, file, content, path)
        rows, labels = len(part["label"]), _label_counts(data_set, part["label"])
        _check_unique(name, part["uid"] or [""])
        deviation = _deviation(data_set, file, rows, sha256)
    except UserError as error:
        return row("FAIL", str(error), rows, labels, checksum)
    note = "; ".join(text for text in (deviation, skipped) if text)
    return row("deviation" if deviation else "ok", note, rows, labels, checksum)


def _checksum_status(file: ReleaseFile, sha256: str) -> str:
    if sha256 == file.sha256:
        return "as published"
    if any(sha256 == copy.sha256 for copy in file.copies):
        return "known copy"
    return "MISMATCH" if file.sha256 else "not registered"


def _label_counts(data_set: DataSet, labels: list[int]) -> str:
    counts = Counter(labels)
    return " / ".join(f"{counts[label]:,} {name}" for label, name in enumerate(data_set.label_names))


# ---------------------------------------------------------------------------------------------------------- downloads


def _fetch_raw(data_set: DataSet, file: ReleaseFile, cache_dir: Path, progress: Callable | None, base: str) -> Path:
    target = cache_dir / file.path
    if target.exists():
        _check_download(target, file)
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write to {cache_dir} ({error.strerror}); give another cache folder") from error
    raw = data_set.remote
    part = target.with_name(target.name + ".part")
    url = f"{base}/{raw.repository}/{raw.commit}/{file.path.partition('/')[2]}"
    _download(url, part, file.path, progress, data_set.when_gone)
    _check_download(part, file)
    os.replace(part, target)
    return target


def _download(url: str, part: Path, name: str, progress: Callable | None, when_gone: str) -> None:
    """Append to `part` what it still lacks."""
    done = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            if response.status != 206:  # the server sends the whole file, whatever was asked for
                done = 0
            total = done + int(response.headers.get("Content-Length", 0))
            with part.open("ab" if done else "wb") as out:
                while block := response.read(1 << 16):
                    out.write(block)
                    done += len(block)
                    if progress:
                        progress(name, done, total)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # nothing is left to send: `part` is whole, or wrong, which its checksum tells
            return
        raise UserError(f"{url}: the server answered {error.code} {error.reason}. {when_gone}") from error
    except (OSError, http.client.HTTPException) as error:
        raise UserError(
            f"{url}: download failed ({error}); what came through is kept in {part}. Check the network "
            f"and run the same command again: it resumes"
        ) from error
    if done < total:
        raise UserError(
            f"{url}: the connection ended after {done:,} of {total:,} bytes; {part} keeps them. Run the "
            f"same command again: it resumes"
        )


def _check_download(path: Path, file: ReleaseFile) -> None:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != file.sha256:
        raise UserError(
            f"{path}: expected sha256 {file.sha256}, found {found}. The file was kept for inspection; "
            f"delete it and fetch again"
        )


# ------------------------------------------------------------------------------------------------------- the registry

SENTIMENT = ("negative", "positive")
NLI = ("entailment", "neutral", "contradiction")
HANS = ("entailment", "non-entailment")
PARAPHRASE = ("not paraphrase", "paraphrase")

_SEEN_PINNED = "commit seen pinned in several public projects; not checked against the hub itself"


def _numbered(names: tuple[str, ...]) -> dict[str, int]:
    return {str(number): number for number in range(len(names))}


def _named(names: tuple[str, ...]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def _glue(config: str, split: str, hub_split: str, columns: Columns) -> Hub:
    return Hub(
        "nyu-mll/glue", config, "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c", _SEEN_PINNED, {split: hub_split}, columns
    )


def _sst2(file: ReleaseFile, hub_split: str) -> DataSet:
    columns = Columns("sentence", "label", _numbered(SENTIMENT))
    return DataSet(
        SENTIMENT,
        (file,),
        "tsv",
        columns,
        licence="none stated by Stanford or GLUE; research use",
        when_gone='On the hub (source "hub") and in GLUE: put its folder SST-2 into the source folder as sst2/SST-2/.',
        remote=_glue("sst2", file.split, hub_split, columns),
        is_train=file.split == "train",
    )


def _mnli(file: ReleaseFile, hub_split: str) -> DataSet:
    return DataSet(
        NLI,
        (file,),
        "tsv",
        Columns(
            "sentence1",
            "gold_label",
            _named(NLI),
            text_pair="sentence2",
            uid="{index}",
            group="{genre}",
            unlabelled="-",
        ),
        licence="OANC for most of the corpus; fiction CC BY 3.0, CC BY-SA 3.0 or US public domain",
        when_gone='On the hub (source "hub") and in GLUE: put its folder MNLI into the source folder as mnli/MNLI/.',
        remote=_glue(
            "mnli",
            file.split,
            hub_split,
            Columns("premise", "label", _numbered(NLI), text_pair="hypothesis", uid="{idx}"),
        ),
        is_train=file.split == "train",
    )


def _anli(round_: str, dev: ReleaseFile, test: ReleaseFile) -> DataSet:
    return DataSet(
        NLI,
        (dev, test),
        "jsonl",
        Columns("context", "label", {"e": 0, "n": 1, "c": 2}, text_pair="hypothesis", uid="{uid}", group=round_),
        licence="CC BY-NC 4.0",
        when_gone='On the hub (source "hub") and in anli_v1.0.zip: unpack it in the source folder as anli/anli_v1.0/.',
        remote=Hub(
            "facebook/anli",
            "plain_text",
            "8e4813d81f46d313dac7892e1c28076917cfcdf9",
            _SEEN_PINNED,
            {"dev": f"dev_{round_}", "test": f"test_{round_}"},
            Columns("premise", "label", _numbered(NLI), text_pair="hypothesis", uid="{uid}", group=round_),
        ),
        options={"test": ("test",), "dev": ("dev",), "dev+test": ("dev", "test")},
    )


def _qqp(file: ReleaseFile, hub_split: str) -> DataSet:
    # GLUE's `id` is not on the hub: position is the one uid that both have.
    columns = Columns("question1", "is_duplicate", _numbered(PARAPHRASE), text_pair="question2")
    return DataSet(
        PARAPHRASE,
        (file,),
        "tsv",
        columns,
        licence="Quora Terms of Service, non-commercial use",
        when_gone='On the hub (source "hub") and in GLUE: put its folder QQP into the source folder as qqp/QQP/.',
        remote=_glue("qqp", file.split, hub_split, replace(columns, label="label")),
        clean=_csv_unquoted,
        is_train=file.split == "train",
        skips_broken_lines=True,
    )


def _testbed(name: str, label_names: tuple[str, ...], pair: bool, paired: bool = False) -> DataSet:
    return DataSet(
        label_names,
        (ReleaseFile("train" if name.endswith("_train") else "test", f"{name}.jsonl", None),),
        "jsonl",
        Columns(
            "text", "label", _numbered(label_names), text_pair="text_pair" if pair else "", uid="{uid}", group="{group}"
        ),
        licence="made for this project, Apache-2.0",
        when_gone="The testbed comes with the project: restore data/testbed from it.",
        is_train=name.endswith("_train"),
        paired=paired,
    )


_REVIEW = Columns("Text", "Sentiment", {"Negative": 0, "Positive": 1})

SETS: dict[str, DataSet] = {
    "sst2_train": _sst2(
        ReleaseFile(
            "train",
            "sst2/SST-2/train.tsv",
            67_349,
            copies=(Copy("48eac26399f8456935f81dd9e3a745c1430adb6c62e233ccfe22db4a0d15d1d1", 67_349),),
        ),
        "train",
    ),
    "sst2": _sst2(
        ReleaseFile(
            "dev",
            "sst2/SST-2/dev.tsv",
            872,
            copies=(Copy("54a9c12c77e402fc14d6a66a506f24d999f596b0176eb777c972cccc2f9cc4b0", 872),),
        ),
        "validation",
    ),
    "imdb_contrast": DataSet(
        SENTIMENT,
        (
            ReleaseFile(
                "dev",
                "imdb_contrast/IMDb/data/dev_original.tsv",
                100,
                "349a8821bb8932d7ad236e4a6d3ed01fd9b99fdae1c7c6a1a9f3d442de4a4304",
                half="original",
            ),
            ReleaseFile(
                "dev",
                "imdb_contrast/IMDb/data/dev_contrast.tsv",
                100,
                "ec5c984b43c045613dc00c4fd044f362e78351eef82bf07e4429583decaa0e92",
                half="edited",
            ),
            ReleaseFile(
                "test",
                "imdb_contrast/IMDb/data/test_original.tsv",
                488,
                "9dc78ddeb5cb6ff6060d24df33a83b6d29f9828994f4b1a5e0086f7e774713bd",
                half="original",
            ),
            ReleaseFile(
                "test",
                "imdb_contrast/IMDb/data/test_contrast.tsv",
                488,
                "3bcb3bd41218b6a5d7bef7fe020a243919f3df0f12f55291b25ef8bbdbe04173",
                half="edited",
            ),
        ),
        "csv",
        replace(_REVIEW, pair="{split}-{position}"),  # row i of one file pairs with row i of the other
        licence="no licence file upstream; research data of Gardner et al. 2020",
        when_gone="The files are those of github.com/allenai/contrast-sets, folder IMDb/data: put them into the source "
        "folder as imdb_contrast/IMDb/data/. No copy on the hub is known.",
        remote=RawFiles("allenai/contrast-sets", "e2b87316ba7b30093bc9ffbc340e6550cab79f67"),
        options={"dev+test": ("dev", "test"), "test": ("test",)},
        clean=_without_line_breaks,
        paired=True,
    ),
    "imdb_cad": DataSet(
        SENTIMENT,
        # The rows of orig/ and new/ are not aligned; only combined/paired says which belong together.
        (
            ReleaseFile(
                "dev",
                "imdb_cad/sentiment/combined/paired/dev_paired.tsv",
                490,
                "4c2d8a70cbce23eba27fb1f0bb5043cf044811912435cf8d10c3ea6fc7a51363",
            ),
            ReleaseFile(
                "test",
                "imdb_cad/sentiment/combined/paired/test_paired.tsv",
                976,
                "9534b20850205c59015b313983cae7afb31c54c04ffcbd19cea7f1bce5011275",
            ),
        ),
        "csv",
        replace(_REVIEW, pair="{split}-{batch_id}"),
        licence="Apache-2.0",
        when_gone="The files are those of github.com/acmi-lab/counterfactually-augmented-data; put them into the "
        "source folder as imdb_cad/sentiment/. (The hub's tasksource/counterfactually-augmented-imdb has the "
        "revised reviews without the pairing.)",
        remote=RawFiles("acmi-lab/counterfactually-augmented-data", "6f232a1d2a11462a30ce08fb4825b734ab30828e"),
        options={"dev+test": ("dev", "test"), "test": ("test",)},
        clean=_without_line_breaks,
        paired=True,
    ),
    "mnli_train": _mnli(
        ReleaseFile(
            "train",
            "mnli/MNLI/train.tsv",
            392_702,
            copies=(
                Copy(
                    "3889cc4053ab273e9ca8752afdbc7cb7e563bf454f4ce3fbd96d5e0a113e908b",
                    10_471,
                    "research copy, a random subset of 10,471 of 392,702 rows; genre in 480 of them",
                ),
            ),
        ),
        "train",
    ),
    "mnli_m": _mnli(
        ReleaseFile(
            "dev_matched",
            "mnli/MNLI/dev_matched.tsv",
            9_815,
            copies=(Copy("1708d083b743c2992690b2659eff23c906dbc92c04063fdfd1fd50c39d663b1b", 9_815),),
        ),
        "validation_matched",
    ),
    "mnli_mm": _mnli(
        ReleaseFile(
            "dev_mismatched",
            "mnli/MNLI/dev_mismatched.tsv",
            9_832,
            copies=(
                Copy(
                    "85dc7d6fa8510e780977abc6fdea6bcfb97466829bb496be7d3e23d09f1b77bb",
                    9_832,
                    "research copy: the text is Penn-Treebank tokenised, so scores differ a little from the raw text",
                ),
            ),
        ),
        "validation_mismatched",
    ),
    "hans": DataSet(
        HANS,
        (
            ReleaseFile(
                "evaluation",
                "hans/heuristics_evaluation_set.txt",
                30_000,
                copies=(Copy("5e6859624cce8a2813508525dfd6a2796ac50e2240cde25e5c37a02793d39a33", 30_000),),
            ),
        ),
        "tsv",
        Columns(
            "sentence1",
            "gold_label",
            _named(HANS),
            text_pair="sentence2",
            uid="{pairID}",
            group="{heuristic}/{subcase}",
        ),
        licence="MIT",
        when_gone='On the hub (source "hub") and in github.com/tommccoy1/hans: put heuristics_evaluation_set.txt into '
        "the source folder as hans/heuristics_evaluation_set.txt. (The hub's tasksource/hans is a re-split.)",
        # On main the hub still has a loading script, which is never run here; this branch is its Parquet conversion.
        remote=Hub(
            "jhu-cogsci/hans",
            None,
            "refs/convert/parquet",
            "a branch, not a commit, and not checked against the hub itself; records name the commit it gave",
            {"evaluation": "validation"},
            Columns(
                "premise",
                "label",
                _numbered(HANS),
                text_pair="hypothesis",
                uid="ex{position}",
                group="{heuristic}/{subcase}",
            ),
        ),
    ),
    "anli_r1": _anli(
        "r1",
        ReleaseFile(
            "dev",
            "anli/anli_v1.0/R1/dev.jsonl",
            1_000,
            copies=(Copy("cf2a4216809498438d125dfc764db6a6dedd8076a91fe84f6f8b46d6d8851189", 1_000),),
        ),
        ReleaseFile(
            "test",
            "anli/anli_v1.0/R1/test.jsonl",
            1_000,
            copies=(Copy("12ba042c46deb86cd06c95512119d3ac447bfbd8998900aaf6d287b932bdc093", 1_000),),
        ),
    ),
    "anli_r2": _anli(
        "r2",
        ReleaseFile(
            "dev",
            "anli/anli_v1.0/R2/dev.jsonl",
            1_000,
            copies=(Copy("e27b74add95e6407f08ab12914866f80e55d2ae6091000000d4ff548519ed5ce", 1_000),),
        ),
        ReleaseFile(
            "test",
            "anli/anli_v1.0/R2/test.jsonl",
            1_000,
            copies=(Copy("c4dc739ee8dd6efcbbb0e119fcea30062eb31f2295bb4f575629c5cd3dbf2fdb", 1_000),),
        ),
    ),
    "anli_r3": _anli(
        "r3",
        ReleaseFile(
            "dev",
            "anli/anli_v1.0/R3/dev.jsonl",
            1_200,
            copies=(
                Copy(
                    "1dca7f08ab27c757ded39a42feb696b94d7330a41f84247fd464f86967eeff58",
                    1_197,
                    "research copy: 1,197 of 1,200 rows, three neutral ones are missing; mojibake in two contexts",
                ),
            ),
        ),
        ReleaseFile(
            "test",
            "anli/anli_v1.0/R3/test.jsonl",
            1_200,
            copies=(Copy("5d1d6afa0f09fc229f50738e280a70a3aa7b847601c3403d3fb466d06c4b97cb", 1_200),),
        ),
    ),
    "qqp_train": _qqp(
        ReleaseFile(
            "train",
            "qqp/QQP/train.tsv",
            363_846,
            copies=(
                Copy(
                    "e0eb477785d320b20b41bd4e1448590eda1f53adec27296937fd4546f4c492ca",
                    9_309,
                    "research copy, a random subset of 9,309 of 363,846 rows",
                ),
            ),
        ),
        "train",
    ),
    "qqp": _qqp(
        ReleaseFile(
            "dev",
            "qqp/QQP/dev.tsv",
            40_430,
            copies=(
                Copy(
                    "508cd749cae2d8891eef5f8bbc3952cd5540cab4df21aa88725d7d94b1ddf5f1",
                    1_000,
                    "research copy: 1,000 held-out pairs, most likely from official train, not the official dev split",
                ),
            ),
        ),
        "validation",
    ),
    "paws_qqp": DataSet(
        PARAPHRASE,
        (
            ReleaseFile(
                "train",
                "paws/paws_qqp/output/train.tsv",
                11_988,
                copies=(
                    Copy(
                        "0f20ebc8495c5ef0bb0fd2d057a7e4969f3792ba4f16175df50bc2096ceb464a",
                        11_988,
                        "built with a later NLTK than 3.2.5: rows with quotation marks can have shifted words",
                    ),
                ),
            ),
            ReleaseFile(
                "dev_and_test",
                "paws/paws_qqp/output/dev_and_test.tsv",
                677,
                copies=(
                    Copy("8a9221ef6d8d88c1e5a6a68997c4abb15c6e1a90db95ad8e9c7936023c2aa6cf", 677),
                    Copy("f65890ccffd7a6432520c009dd3e5c03a96205c80a8f89b04bb58f44c1f35c8f", 677),
                ),
            ),
        ),
        "tsv",
        Columns(
            "sentence1",
            "label",
            _numbered(PARAPHRASE),
            text_pair="sentence2",
            uid="{split}/{id}",
            group="paws_qqp/{split}",
        ),
        licence="PAWS: free for any purpose with acknowledgement; the text is Quora's, non-commercial use, not to be "
        "passed on",
        when_gone="PAWS-QQP is not distributed, because of Quora's licence: build it. Take Quora's "
        "quora_duplicate_questions.tsv (404,290 pairs), the index paws_qqp.tar.gz that the README of "
        "github.com/google-research-datasets/paws links to, and its qqp_generate_data.py (NLTK 3.2.5; the "
        "b'...' that Python 3 makes it write are decoded here). Write its two outputs to "
        "FOLDER/paws/paws_qqp/output/train.tsv and dev_and_test.tsv and give FOLDER as source. paws_wiki is "
        "a stand-in under its own name.",
        options={"train": ("train",), "dev_and_test": ("dev_and_test",), "both": ("train", "dev_and_test")},
        clean=_from_bytes_literal,
    ),
    "paws_wiki": DataSet(
        PARAPHRASE,
        (
            ReleaseFile(
                "dev",
                "paws/final/dev.tsv",
                8_000,
                copies=(Copy("069c5c604db421f5d3513e932e9b1025456f1ffa7321ddb8336189bbc627bd67", 8_000),),
            ),
            ReleaseFile(
                "test",
                "paws/final/test.tsv",
                8_000,
                copies=(Copy("51fc5f45bf33e7991a0c09b38bb4ff1ee482afd170128ae5ae5d8c4ba1d250cf", 8_000),),
            ),
        ),
        "tsv",
        Columns(
            "sentence1",
            "label",
            _numbered(PARAPHRASE),
            text_pair="sentence2",
            uid="{split}/{id}",
            group="paws_wiki/{split}",
        ),
        licence="PAWS: free for any purpose with acknowledgement",
        when_gone='On the hub (source "hub") and in paws_wiki_labeled_final.tar.gz, which the README of '
        "github.com/google-research-datasets/paws links to: unpack it into the source folder as paws/final/.",
        remote=Hub(
            "google-research-datasets/paws",
            "labeled_final",
            "161ece9501cf0a11f3e48bd356eaa82de46d6a09",
            _SEEN_PINNED,
            {"dev": "validation", "test": "test"},
            Columns(
                "sentence1",
                "label",
                _numbered(PARAPHRASE),
                text_pair="sentence2",
                uid="{split}/{id}",
                group="paws_wiki/{split}",
            ),
        ),
        options={"test": ("test",), "dev": ("dev",)},
        clean=_from_bytes_literal,
    ),
    **{
        name: _testbed(name, label_names, pair, paired)
        for name, label_names, pair, paired in (
            ("testbed_sentiment_train", SENTIMENT, False, False),
            ("testbed_sentiment", SENTIMENT, False, False),
            ("testbed_contrast", SENTIMENT, False, True),
            ("testbed_counterfactual", SENTIMENT, False, True),
            ("testbed_nli_train", NLI, True, False),
            ("testbed_nli_m", NLI, True, False),
            ("testbed_nli_mm", NLI, True, False),
            ("testbed_overlap", HANS, True, False),
            ("testbed_adversarial", NLI, True, False),
            ("testbed_paraphrase_train", PARAPHRASE, True, False),
            ("testbed_paraphrase", PARAPHRASE, True, False),
            ("testbed_scramble", PARAPHRASE, True, False),
        )
    },
}

# Files of the same releases that no set reads; `verify` checks those that are there.
OTHER_FILES: tuple[tuple[str, ReleaseFile], ...] = (
    *(
        ("imdb_cad", ReleaseFile(path.removesuffix(".tsv"), f"imdb_cad/sentiment/{path}", rows, sha256))
        for path, rows, sha256 in (
            ("orig/train.tsv", 1_707, "adccf2763b67ddbfbd4571b7ee96c9bb689e98c4295e779151148c014b2b1050"),
            ("orig/dev.tsv", 245, "d7b815d31ddc6eed7bdeb9dc78e18db88ebb22dd347cf72cc797791edfd7bab0"),
            ("orig/test.tsv", 488, "35e8fab251220685ae47f95ef86bad1fd7fa0017a6ce4afe803ab18a71ff61ff"),
            ("new/train.tsv", 1_707, "c9f65a2425e9aa358082040961d9d0e215fb8631b85242cbb410b82f9c62c0d4"),
            ("new/dev.tsv", 245, "69f559bfbf9eb2e0545d2d2f14482a699ec81f94e2bca110e4fa15670fdf78e6"),
            ("new/test.tsv", 488, "28d32ca405131d87ef095109cc1764d6e917a3df63584b2f16e9465020b7f29d"),
            ("combined/train.tsv", 3_414, "7b87cf83574457fe8a5081026fee4d1828b0e5724e9f92f9c697e67c8e04fd7c"),
            ("combined/dev.tsv", 490, "fd770d1c039f03f896f901feb4cfd14746b6867e30b828a395914a0d847b7e47"),
            ("combined/test.tsv", 976, "520ae752d528c694e3fcd153f9bb8fcc789d8da2f0aae711944ce01736d4fe97"),
            (
                "combined/paired/train_paired.tsv",
                3_414,
                "7ac50ca3d70890f80e11ee59955cdbfc43f26b5078d0603717817ab224d2af18",
            ),
        )
    ),
    (
        "mnli_train",
        ReleaseFile(
            "extra",
            "mnli/extra/train_periods_removed.tsv",
            392_702,
            copies=(
                Copy(
                    "f15b70381498d68b3e8b9b076690371a744cabd53d759c441be032445788c72f",
                    9_624,
                    "research copy: 9,624 more training rows, every full stop removed by their source",
                ),
            ),
        ),
    ),
    (
        "qqp",
        ReleaseFile(
            "official sample",
            "qqp/dev_official_100.tsv",
            40_430,
            copies=(
                Copy(
                    "2d69ca8eb33d1ae5f5d7aa17bcce72f82cb741e44a12d6db6939e4b2048c6148",
                    100,
                    "research copy: 100 pairs of the official dev split",
                ),
            ),
        ),
    ),
    (
        "qqp",
        ReleaseFile(
            "Quora's file",
            "qqp/quora_duplicate_questions.sample.tsv",
            404_290,
            copies=(
                Copy(
                    "1bf534d71451160087a8e0e5010f6713b92d50ba55db94069c053907e2fc654f",
                    1_319,
                    "research copy: 1,319 of 404,290 pairs; some also in QQP train and dev",
                ),
            ),
        ),
    ),
    (
        "paws_qqp",
        ReleaseFile(
            "dev_and_test",
            "paws/paws_qqp/output_python3/dev_and_test.tsv",
            677,
            copies=(Copy("f65890ccffd7a6432520c009dd3e5c03a96205c80a8f89b04bb58f44c1f35c8f", 677),),
        ),
    ),
)

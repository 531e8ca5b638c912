"""Where data comes from: the bundled testbed, the Hugging Face hub, or a folder of original releases.

`load` gives the same columns whichever way the data came (`mtlib/data/registry.yaml` says what the sets are):

    text       str    the sentence, or the first of a pair
    text_pair  str    the second of a pair (tasks on pairs only)
    label      int    0 negative, 1 positive; 0 entailment, 1 neutral, 2 contradiction; 0 not paraphrase, 1 paraphrase
                      (GLUE's order); HANS: 0 entailment, 1 non-entailment
    uid        str    unique within the set
    group      str    what results are broken down by ("" if nothing): HANS "heuristic/subcase", ANLI round, MNLI genre,
                      PAWS "set/split", contrast sets "pair id:original" or "pair id:edited"

Rows stand in file order. Downloaded data is only ever parsed: no loading scripts, no pickles.
"""

import copy
import hashlib
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import datasets

from mtlib.data.downloads import CACHE_DIR, fetch, load_from_hub
from mtlib.data.registry import SETS, DataSet, Hub, ReleaseFile, get_set, is_bundled
from mtlib.data.releases import check_unique, deviation, in_our_columns, locate, parse, read_bytes, release_folder
from mtlib.data.source_kinds import check_as_written, is_testbed, source_kind
from mtlib.errors import UserError
from mtlib.paths import TESTBED_DIR


def load(set_name: str, source: str = "testbed", splits: str | None = None) -> datasets.Dataset:
    """One set as a `datasets.Dataset` with the columns above, in file order.

    `source` is "testbed" (bundled), "hub" (downloads) or a folder of original releases; `splits` is one of
    `split_options(set_name)`. Raises `UserError` for an unknown name, a missing or corrupt file, an unknown label, and
    for an evaluation set that is not whole.
    """
    return load_described(set_name, source, splits)[0]


def describe(set_name: str, source: str, splits: str | None = None) -> dict:
    """What `load` reads, for the run record: revision or files with sha256, rows, and every deviation in words.

    `content_sha256` is over (text, text_pair, label) in order, so that it compares across sources. The folder's own
    path is left out: a record must mean the same on every machine.
    """
    return load_described(set_name, source, splits)[1]


def load_described(set_name: str, source: str, splits: str | None = None) -> tuple[datasets.Dataset, dict]:
    """What `load` and `describe` give, from one reading.

    A set is read and hashed once per process, and again when a file's size or modification time has changed. What
    comes from the hub is pinned, and therefore read once.
    """
    option, wanted = _chosen_splits(set_name, splits)
    _check_source_fits(set_name, source)
    files = () if source == "hub" else tuple(_files(get_set(set_name), wanted, _root(source)))
    dataset, description = copy.deepcopy(_read(set_name, source_kind(source), option, files))  # the rows are shared
    if is_testbed(source):
        check_as_written(_root(source), description["files"])
    return dataset, description


# ------------------------------------------------------------------------------------------------------------ reading


@dataclass(frozen=True)
class _File:
    """A release file where it lies. Size and modification time tell a changed file from one that was read before."""

    release: ReleaseFile
    path: Path
    size: int
    modified: int


@dataclass(frozen=True)
class _Part:
    """One file, or one split of the hub: its rows as columns, its entry in the run record, how it deviates."""

    columns: dict[str, list]
    file: dict
    deviations: list[str]


@lru_cache(maxsize=8)  # a task has at most seven sets
def _read(set_name: str, kind: str, option: str, files: tuple[_File, ...]) -> tuple[datasets.Dataset, dict]:
    """The rows and the description of a set. `files` is empty for the hub."""
    data_set = get_set(set_name)
    wanted, revision = data_set.split_options[option], None
    if kind != "hub":
        parts = [_read_file(data_set, file.release, file.path) for file in files]
    elif isinstance(data_set.remote, Hub):
        parts, revision = _read_hub(set_name, data_set, wanted)
    else:
        fetch([set_name], CACHE_DIR)
        parts = [_read_file(data_set, file.release, file.path) for file in _files(data_set, wanted, CACHE_DIR)]
        revision = f"{data_set.remote.repository}@{data_set.remote.commit}"
    columns = {name: [value for part in parts for value in part.columns[name]] for name in parts[0].columns}
    _check_columns(set_name, data_set, columns)
    features = {name: datasets.Value("int64" if name == "label" else "string") for name in columns}
    official = [file.rows for file in data_set.files if file.split in wanted]
    description = {
        "set": set_name,
        "source": kind,
        "splits": option,
        "revision": revision,
        "files": [part.file for part in parts],
        "rows": len(columns["label"]),
        "official_rows": None if None in official else sum(official),
        "content_sha256": _content_sha256(columns),
        "licence": data_set.licence,
        "deviations": [text for part in parts for text in part.deviations],
    }
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features)), description


def _root(source: str) -> Path:
    return TESTBED_DIR if source == "testbed" else release_folder(source, ", or testbed or hub")


def _files(data_set: DataSet, wanted: tuple[str, ...], root: Path) -> Iterator[_File]:
    for file in (file for split in wanted for file in data_set.files if file.split == split):
        path = locate(root, file.path)
        if path is None:
            raise UserError(f"{file.path} not found in {root}. {data_set.when_gone}")
        state = path.stat()
        yield _File(file, path.absolute(), state.st_size, state.st_mtime_ns)


def _read_file(data_set: DataSet, file: ReleaseFile, path: Path) -> _Part:
    content = read_bytes(path)
    columns, skipped = parse(data_set, file, content, path)
    sha256, rows = hashlib.sha256(content).hexdigest(), len(columns["label"])
    differs = deviation(data_set, file, rows, sha256)
    return _Part(
        columns,
        {"path": file.path, "sha256": sha256, "rows": rows, "official_rows": file.rows},
        [f"{file.path}: {text}" for text in (differs, skipped) if text],
    )


def _read_hub(set_name: str, data_set: DataSet, wanted: tuple[str, ...]) -> tuple[list[_Part], str]:
    hub, config = data_set.remote, data_set.remote.config or "default"
    parts, revision = [], hub.revision
    for split in wanted:
        hub_rows = load_from_hub(set_name, hub, hub.splits[split])
        revision = _resolved_revision(hub_rows) or revision
        where = f"{hub.id} ({config}), split {hub.splits[split]}"
        if hub.columns.needed - set(hub_rows.column_names):
            raise UserError(
                f"{where}: expected columns {sorted(hub.columns.needed)}, found {hub_rows.column_names}. "
                f"{data_set.when_gone}"
            )
        columns = in_our_columns(data_set, hub.columns, enumerate(hub_rows, start=1), split, "", where)
        rows, official = len(columns["label"]), sum(file.rows for file in data_set.files if file.split == split)
        differs = deviation(data_set, ReleaseFile(split, where, official), rows, "")
        path = f"{hub.id}/{config}/{hub.splits[split]}"
        parts.append(
            _Part(
                columns,
                {"path": path, "sha256": None, "rows": rows, "official_rows": official},
                [f"{where}: {differs}"] if differs else [],
            )
        )
    return parts, f"{hub.id}@{revision}"


def _resolved_revision(rows: datasets.Dataset) -> str | None:
    """The commit that the hub's files really came from, for example when a branch name was asked for."""
    for url in rows.info.download_checksums or {}:
        if commit := re.search(r"@([0-9a-f]{40})/", url):
            return commit.group(1)
    return None


def _content_sha256(columns: dict[str, list]) -> str:
    digest = hashlib.sha256()
    pairs = columns.get("text_pair", itertools.repeat(None, len(columns["text"])))
    for row in zip(columns["text"], pairs, columns["label"], strict=True):
        digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()


# ------------------------------------------------------------------------------------------------------------- checks


def _chosen_splits(set_name: str, splits: str | None) -> tuple[str, tuple[str, ...]]:
    """The option, by default the first, and the splits it stands for."""
    options = get_set(set_name).split_options
    option = next(iter(options)) if splits is None else splits
    if option not in options:
        raise UserError(
            f"{set_name} has no split option {option!r}; expected one of {', '.join(options)} "
            f"(the first is the default)"
        )
    return option, options[option]


def _check_source_fits(set_name: str, source: str) -> None:
    bundled = is_bundled(set_name)
    if bundled and not is_testbed(source):
        raise UserError(
            f'{set_name} is bundled; source must be "testbed" or a folder written by `mtlib testbed`, found {source!r}'
        )
    if is_testbed(source) and not bundled:
        sets = ", ".join(filter(is_bundled, SETS))
        raise UserError(
            f'{set_name} is not bundled; give source "hub" or a folder of original releases, or take one '
            f"of the testbed's sets: {sets}"
        )


def _check_columns(set_name: str, data_set: DataSet, columns: dict[str, list]) -> None:
    check_unique(set_name, columns["uid"])
    if len(columns["text"]) > 1 and len(set(columns["text"])) == 1:
        raise UserError(
            f"{set_name}: all {len(columns['text'])} rows have the text {columns['text'][0][:60]!r}; the file is no "
            "copy of this set, take a fresh one."
        )
    if data_set.paired:
        _check_pairs(set_name, columns["group"], columns["label"])


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

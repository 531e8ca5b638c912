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
from functools import lru_cache
from pathlib import Path

import datasets
import pandas as pd

from mtlib.data.downloads import CACHE_DIR, fetch, load_from_hub
from mtlib.data.registry import DataSet, ReleaseFile, get_set
from mtlib.data.releases import Part, checked, in_our_columns, locate, pair_halves, read_file, release_folder
from mtlib.data.source_kinds import check_as_written, is_testbed, source_kind
from mtlib.errors import UserError
from mtlib.paths import TESTBED_DIR
from mtlib.settings import check_choice

CAD_TRAIN = "imdb_cad_train"  # IMDB-CAD's training pairs, from which the supervised policy learns on real data


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
    data_set, files = get_set(set_name), ()
    options = data_set.split_options
    option = next(iter(options)) if splits is None else splits
    check_choice(f"the split of {set_name}", option, options)
    if source != "hub":
        root = TESTBED_DIR if source == "testbed" else release_folder(source)
        files = _files(data_set, options[option], root)
    elif not data_set.hub:
        fetch([set_name], CACHE_DIR)
        files = _files(data_set, options[option], CACHE_DIR)
    dataset, description = copy.deepcopy(_read(set_name, source_kind(source), option, files))  # the rows are shared
    if is_testbed(source):
        check_as_written(root, description["files"])
    return dataset, description


@lru_cache(maxsize=32)  # more than the sets of all tasks from one source
def _read(set_name: str, kind: str, option: str, files: tuple[tuple, ...]) -> tuple[datasets.Dataset, dict]:
    """The rows and the description of a set. `files` are those of `_files`; none where the hub has the rows."""
    data_set = get_set(set_name)
    wanted = data_set.split_options[option]
    if files:
        parts = [read_file(data_set, file, path) for file, path, *_ in files]
        revision = f"{data_set.raw_files.repository}@{data_set.raw_files.commit}" if kind == "hub" else None
    else:
        parts, revision = _read_hub(data_set, wanted)
    rows = pd.concat([part.rows for part in parts], ignore_index=True)
    _check_rows(data_set, rows)
    features = {name: datasets.Value("int64" if name == "label" else "string") for name in rows}
    official = [file.rows for file in data_set.files if file.split in wanted]
    description = {
        "set": set_name,
        "source": kind,
        "splits": option,
        "revision": revision,
        "files": [part.file for part in parts],
        "rows": len(rows),
        "official_rows": None if None in official else sum(official),
        "content_sha256": _content_sha256(rows),
        "licence": data_set.licence,
        "deviations": [text for part in parts for text in part.deviations],
    }
    columns = {name: values.tolist() for name, values in rows.items()}
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features)), description


def _read_hub(data_set: DataSet, wanted: tuple[str, ...]) -> tuple[list[Part], str]:
    hub, parts, revision = data_set.hub, [], data_set.hub.revision
    for split in wanted:
        answer = load_from_hub(data_set, hub.splits[split])
        # the commit that the files really came from, for example when a branch was asked for
        commits = (re.search(r"@([0-9a-f]{40})/", url) for url in answer.info.download_checksums or {})
        revision = next((commit[1] for commit in commits if commit), revision)
        official = sum(file.rows for file in data_set.files if file.split == split)
        path = f"{hub.id}/{hub.config or 'default'}/{hub.splits[split]}"
        table = answer.to_pandas()
        table.index += 1
        rows = in_our_columns(data_set, hub.columns, table, split, path)
        parts.append(checked(data_set, ReleaseFile(split=split, path=path, rows=official), rows, None))
    return parts, f"{hub.id}@{revision}"


def _files(data_set: DataSet, wanted: tuple[str, ...], root: Path) -> tuple[tuple[ReleaseFile, Path, int, int], ...]:
    """Release files, and where they lie. Size and modification time tell one that has changed since it was read."""
    found = []
    for file in (file for split in wanted for file in data_set.files if file.split == split):
        path = locate(root, file.path)
        if path is None:
            raise UserError(f"{file.path} not found in {root}. {data_set.when_gone}")
        found.append((file, path.absolute(), path.stat().st_size, path.stat().st_mtime_ns))
    return tuple(found)


def _content_sha256(rows: pd.DataFrame) -> str:
    digest = hashlib.sha256()
    pairs = rows.get("text_pair", itertools.repeat(None))
    for row in zip(rows["text"], pairs, rows["label"].tolist(), strict=False):
        digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()


def _check_rows(data_set: DataSet, rows: pd.DataFrame) -> None:
    if data_set.paired:
        original, edited = pair_halves(data_set.name, rows["group"])
        labels = rows["label"].to_numpy()
        if (same := labels[original] == labels[edited]).any():
            raise UserError(
                f"{data_set.name}, {rows['group'].iloc[edited[same.argmax()]]}: expected the other label than the "
                "original's; the files do not belong together, take fresh copies of them"
            )

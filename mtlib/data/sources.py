"""Where data comes from: the bundled testbed, the Hugging Face hub, or a folder of releases.

`load` gives the same columns whichever way the data came (`mtlib/data/registry.yaml` says what the
sets are):

    text       str    the sentence, or the first of a pair
    text_pair  str    the second of a pair (tasks on pairs only)
    label      int    0 negative, 1 positive; 0 entailment, 1 neutral, 2 contradiction;
                      0 not paraphrase, 1 paraphrase
                      (GLUE's order); HANS: 0 entailment, 1 non-entailment
    uid        str    unique within the set
    group      str    what results are broken down by ("" if nothing): HANS "heuristic/subcase",
                      ANLI round, MNLI genre,
                      PAWS "set/split", contrast sets "pair id:original" or "pair id:edited"

Rows stand in file order. Downloaded data is only ever parsed: no loading scripts, no pickles.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import pandas

from mtlib.data.downloads import CACHE_DIR, fetch, load_from_hub
from mtlib.data.registry import DataSet, ReleaseFile, get_set
from mtlib.data.releases import (
    Part,
    checked_part,
    in_our_columns,
    locate,
    pair_halves,
    read_file,
    release_folder,
)
from mtlib.errors import UserError
from mtlib.paths import SETTINGS_FILE, TESTBED_DIR
from mtlib.settings import check_choice

if TYPE_CHECKING:
    import datasets

# IMDB-CAD's training pairs, from which the supervised policy learns on real data
CAD_TRAIN = "imdb_cad_train"


def load(set_name: str, source: str = "testbed", splits: str | None = None) -> "datasets.Dataset":
    """One set as a `datasets.Dataset` with the columns above, in file order.

    `source` is "testbed" (bundled), "hub" (downloads) or a folder, of original releases or of
    `mtlib testbed`; `splits` is one of the set's `split_options`. Raises `UserError` for an unknown
    name, a missing or corrupt file, an unknown label, and for an evaluation set that is not whole.
    """
    return load_described(set_name, source, splits)[0]


def load_described(
    set_name: str,
    source: str = "testbed",
    splits: str | None = None,
) -> "tuple[datasets.Dataset, dict]":
    """What `load` gives, and what was read: files or revision, rows, every deviation in words.

    `content_sha256` is over (text, text_pair, label) in order, so that it compares across sources.
    The folder's own path is left out: a record must mean the same on every machine. A set is read
    once per process, and again when a file's size or modification time has changed. What comes from
    the hub is pinned, and therefore read once.
    """
    data_set = get_set(set_name)
    files = ()
    split = next(iter(data_set.split_options)) if splits is None else splits
    check_choice(f"the split of {set_name}", split, data_set.split_options)
    if source != "hub":
        root = TESTBED_DIR if source == "testbed" else release_folder(source)
        files = _files(data_set, split, root)
    elif not data_set.hub:
        fetch([set_name], CACHE_DIR)
        files = _files(data_set, split, CACHE_DIR)
    dataset, description = _read(set_name, source_type(source), split, files)
    return dataset, {**description}  # a copy: the set is kept for the next caller


def is_testbed(source: str) -> bool:
    """The bundled testbed, or a folder that its generator wrote with other settings."""
    return source == "testbed" or (source != "hub" and (Path(source) / SETTINGS_FILE).is_file())


def source_type(source: str) -> str:
    """What a record says instead of a path.

    "testbed" (with its settings where it was generated), "hub" or "folder".
    """
    if source in ("testbed", "hub"):
        return source
    if not is_testbed(source):
        return "folder"
    settings = _generator_settings(Path(source))
    rows = f", {settings['train_rows']:,} training rows" if "train_rows" in settings else ""
    return f"testbed (strength {settings['strength']:g}, seed {settings['seed']}{rows})"


@lru_cache(maxsize=32)  # more than the sets of all tasks from one source
def _read(
    set_name: str,
    source_type: str,
    split: str,
    files: tuple[tuple, ...],
) -> "tuple[datasets.Dataset, dict]":
    """The rows and the description of a set.

    `files` are those of `_files`; none where the hub has the rows.
    """
    import datasets

    data_set = get_set(set_name)
    revision = None
    if not files:
        parts, revision = _read_hub(data_set, split)
    else:
        parts = [read_file(data_set, file, path) for file, path, _ in files]
        if source_type == "hub":
            revision = f"{data_set.raw_files.repository}@{data_set.raw_files.commit}"
    rows = pandas.concat([part.rows for part in parts], ignore_index=True)
    if data_set.paired:
        pair_halves(set_name, rows["group"])
    description = {
        "set": set_name,
        "source": source_type,
        "splits": split,
        "revision": revision,
        "files": [part.file for part in parts],
        "rows": len(rows),
        "official_rows": _official_rows(data_set.files_of(split)),
        "content_sha256": _content_sha256(rows),
        "licence": data_set.licence,
        "deviations": [
            f"{part.file['path']}: {part.deviation}" for part in parts if part.deviation
        ],
    }
    types = dict.fromkeys(rows, datasets.Value("string")) | {"label": datasets.Value("int64")}
    dataset = datasets.Dataset.from_pandas(rows, datasets.Features(types), preserve_index=False)
    return dataset, description


def _official_rows(files: Iterable[ReleaseFile]) -> int | None:
    """Of these files together; None if that of one is not fixed."""
    rows = [file.rows for file in files]
    return None if None in rows else sum(rows)


def _read_hub(data_set: DataSet, split: str) -> tuple[list[Part], str]:
    """The rows of each release split from the hub, and the revision that they came from."""
    hub = data_set.hub
    revision = hub.revision
    parts = []
    released = data_set.files_of(split)
    for release_split, group in itertools.groupby(released, lambda file: file.split):
        files = [*group]
        hub_split = hub.splits[release_split]
        loaded = load_from_hub(data_set, hub_split)
        # the commit that the files really came from, for example when a branch was asked for
        urls = loaded.info.download_checksums or {}
        commits = (re.search(r"@([0-9a-f]{40})/", url) for url in urls)
        revision = next((commit[1] for commit in commits if commit), revision)
        path = f"{hub.id}/{hub.config or 'default'}/{hub_split}"
        rows = in_our_columns(data_set, hub.columns, loaded.to_pandas(), release_split, path)
        official = ReleaseFile(
            split=release_split,
            path=path,
            rows=_official_rows(files),
            may_be_subset=all(file.may_be_subset for file in files),
        )
        parts.append(checked_part(data_set, official, rows, None))
    return parts, f"{hub.id}@{revision}"


def _files(
    data_set: DataSet, split: str, root: Path
) -> tuple[tuple[ReleaseFile, Path, tuple], ...]:
    """Release files, where they lie, and what tells one that has changed since it was read."""
    checksums = _generator_settings(root).get("sha256", {})
    found = []
    for file in data_set.files_of(split):
        path = locate(root, file.path)
        if path is None:
            raise UserError(f"{file.path} not found in {root}. {data_set.when_gone}")
        if file.path in checksums:
            file = file.model_copy(update={"sha256": checksums[file.path]})
        version = (path.stat().st_size, path.stat().st_mtime_ns)
        found.append((file, path.absolute(), version))
    return tuple(found)


def _generator_settings(root: Path) -> dict:
    """The settings of the testbed in a folder, and every file's checksum; none of other data."""
    file = root / SETTINGS_FILE
    return json.loads(file.read_text()) if file.is_file() else {}


def _content_sha256(rows: pandas.DataFrame) -> str:
    """Over (text, text_pair, label) of all rows, in their order."""
    pairs = rows["text_pair"] if "text_pair" in rows else itertools.repeat(None)
    content = zip(rows["text"], pairs, rows["label"].tolist(), strict=False)
    lines = (json.dumps(row) + "\n" for row in content)
    return hashlib.sha256("".join(lines).encode()).hexdigest()

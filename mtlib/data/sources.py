"""Where data comes from: the bundled testbed, the Hugging Face hub, or a folder of original releases.

`load` gives the same columns whichever way the data came (`mtlib.registry.SETS` says what the sets are):

    text       str    the sentence, or the first of a pair
    text_pair  str    the second of a pair (tasks on pairs only)
    label      int    0 negative, 1 positive; 0 entailment, 1 neutral, 2 contradiction; 0 not paraphrase, 1 paraphrase
                      (GLUE's order); HANS: 0 entailment, 1 non-entailment
    uid        str    unique within the set
    group      str    what results are broken down by ("" if nothing): HANS "heuristic/subcase", ANLI round, MNLI genre,
                      PAWS "set/split", contrast sets "pair id:original" or "pair id:edited"

Rows stand in file order. Downloaded data is only ever parsed: no loading scripts, no pickles.
"""

import hashlib
import itertools
import json
import re
from dataclasses import dataclass
from pathlib import Path

import datasets

from mtlib.data.downloads import CACHE_DIR, fetch, load_from_hub
from mtlib.data.registry import SETS, DataSet, Hub, ReleaseFile, get_set, is_bundled
from mtlib.data.releases import check_unique, deviation, in_our_columns, locate, parse, read_bytes, release_folder
from mtlib.errors import UserError
from mtlib.paths import SETTINGS_FILE, TESTBED_DIR


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
    """What `load` and `describe` give, from one reading."""
    data_set = get_set(set_name)
    option, wanted = _chosen_splits(set_name, data_set, splits)
    _check_source_fits(set_name, source)
    parts, revision = _read_parts(set_name, data_set, source, wanted)
    columns = {name: [value for part in parts for value in part.columns[name]] for name in parts[0].columns}
    check_unique(set_name, columns["uid"])
    if len(columns["text"]) > 1 and len(set(columns["text"])) == 1:
        raise UserError(f"{set_name}: all {len(columns['text'])} rows have the text {columns['text'][0][:60]!r}.")
    if data_set.paired:
        _check_pairs(set_name, columns["group"], columns["label"])
    features = {name: datasets.Value("int64" if name == "label" else "string") for name in columns}
    official = [file.rows for file in data_set.files if file.split in wanted]
    description = {
        "set": set_name,
        "source": source_kind(source),
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


def is_testbed(source: str) -> bool:
    """The bundled testbed, or a folder that its generator wrote at another strength."""
    return source == "testbed" or (Path(source) / SETTINGS_FILE).is_file()


def source_kind(source: str) -> str:
    """What a record says instead of a path: "testbed" (with its settings where generated), "hub" or "folder"."""
    if source in ("testbed", "hub"):
        return source
    if is_testbed(source):
        settings = _testbed_settings(Path(source))
        return f"testbed (strength {settings['strength']:g}, seed {settings['seed']})"
    return "folder"


def split_options(set_name: str) -> tuple[str, ...]:
    """What `splits` may be for a set, the default first. More than one only where the paper leaves the split open."""
    return tuple(get_set(set_name).split_options)


# ------------------------------------------------------------------------------------------------------------ reading


@dataclass(frozen=True)
class _Part:
    """One file, or one split of the hub: its rows as columns, its entry in the run record, how it deviates."""

    columns: dict[str, list]
    file: dict
    deviations: list[str]


def _read_parts(
    set_name: str, data_set: DataSet, source: str, wanted: tuple[str, ...]
) -> tuple[list[_Part], str | None]:
    """The parts of the wanted splits, and the revision if they came from a server."""
    if is_testbed(source):
        root = TESTBED_DIR if source == "testbed" else Path(source)
        parts, written = _read_folder(data_set, wanted, root), _testbed_settings(root).get("sha256", {})
        for part in parts:
            path, sha256 = part.file["path"], part.file["sha256"]
            if written.get(path, sha256) != sha256:
                raise UserError(f"{root / path} is not the file that `mtlib testbed` wrote; {_REWRITE}.")
        return parts, None
    if source != "hub":
        return _read_folder(data_set, wanted, release_folder(source)), None
    if isinstance(data_set.remote, Hub):
        return _read_hub(set_name, data_set, wanted)
    fetch([set_name], CACHE_DIR)
    return _read_folder(data_set, wanted, CACHE_DIR), f"{data_set.remote.repository}@{data_set.remote.commit}"


_REWRITE = "write the folder again, or restore data/testbed if it is the bundled one"


def _testbed_settings(root: Path) -> dict:
    try:
        settings = json.loads((root / SETTINGS_FILE).read_text())
        float(settings["strength"]), int(settings["seed"])
        return settings
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{root / SETTINGS_FILE} is not what `mtlib testbed` wrote; {_REWRITE}.") from error


def _read_folder(data_set: DataSet, wanted: tuple[str, ...], root: Path) -> list[_Part]:
    return [_read_file(data_set, file, root) for split in wanted for file in data_set.files if file.split == split]


def _read_file(data_set: DataSet, file: ReleaseFile, root: Path) -> _Part:
    path = locate(root, file.path)
    if path is None:
        raise UserError(f"{file.path} not found in {root}. {data_set.when_gone}")
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
        found = load_from_hub(set_name, hub, hub.splits[split])
        revision = _resolved_revision(found) or revision
        where = f"{hub.id} ({config}), split {hub.splits[split]}"
        if hub.columns.needed - set(found.column_names):
            raise UserError(
                f"{where}: expected columns {sorted(hub.columns.needed)}, found {found.column_names}. "
                f"{data_set.when_gone}"
            )
        columns = in_our_columns(data_set, hub.columns, enumerate(found, start=1), split, "", where)
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
        if found := re.search(r"@([0-9a-f]{40})/", url):
            return found.group(1)
    return None


def _content_sha256(columns: dict[str, list]) -> str:
    digest = hashlib.sha256()
    pairs = columns.get("text_pair", itertools.repeat(None, len(columns["text"])))
    for row in zip(columns["text"], pairs, columns["label"], strict=True):
        digest.update(json.dumps(row).encode() + b"\n")
    return digest.hexdigest()


# ------------------------------------------------------------------------------------------------------------- checks


def _chosen_splits(set_name: str, data_set: DataSet, splits: str | None) -> tuple[str, tuple[str, ...]]:
    """The option, by default the first, and the splits it stands for."""
    options = data_set.split_options
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

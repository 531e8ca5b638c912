"""Records of runs: what identifies one, how they are read and written, and those that are shipped.

`mtlib run` writes RECORD.json, and beside it RECORD.npz with the class probabilities of every
evaluated example, an array for each set. With `--keep-model` the trained model is in the folder
RECORD; a record that was made by scoring that model names it as `trained_by`. `mtlib bundle` puts
the records of many runs into NAME.jsonl.gz, and their arrays into NAME.npz, each under
IDENTITY/SET.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np

from mtlib.errors import UserError
from mtlib.paths import DATA_DIR, write_atomically
from mtlib.runs.config import settings_of
from mtlib.settings import MASK_RATE

SCHEMA_VERSION = 2
BUNDLES = (".jsonl.gz", ".jsonl")  # files with a record in each line, gzipped or plain
TRAIN_SPANS = "train_spans"  # in a record's data: the set whose spans a policy learns to mask
# The data's content stands for where it came from and which part of it was scored.
_NOT_DECISIVE = ("task", "method", "model", "source", "sets", "splits")
# Identities take 5 % for the default of every method, though intermediate_pretraining's is 15 %:
# records were named so.
_DEFAULTS = {"mask_rate": MASK_RATE}


def identity(config: Mapping, model_sha256: str | None, data_sha256: Mapping[str, str]) -> str:
    """A hash of all that decides a run's numbers.

    Of the settings of the method's runs (`settings_of`) only those count that differ from their
    default, so that a new setting leaves the identities of finished runs as they are. A default
    that depends on task, method or model (alpha, learning rates) counts by its value. What other
    methods read has no part in it.

    Args:
        config: as in a record (`RunConfig.public`).
        model_sha256: of the files of a local model; None for a hub model, which its name
            identifies.
        data_sha256: of the content of the training set (as "train") and of every other set
            (`decisive_data`).
    """
    settings = {}
    for name, field in settings_of(config["method"]).items():
        value = config.get(name)
        if name not in _NOT_DECISIVE and value not in (None, _DEFAULTS.get(name, field.default)):
            settings[name] = value
    decisive = {
        "task": config["task"],
        "method": config["method"],
        "settings": settings,
        "model": model_sha256 or config["model"],
        "data": dict(data_sha256),
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def training_identity(
    config: Mapping, model_sha256: str | None, sets: Mapping[str, Mapping]
) -> str:
    """A hash of all that decides a training, whatever its model is scored on.

    Records of one training share it.

    Args:
        config: as in `identity`.
        model_sha256: as in `identity`.
        sets: the descriptions in a record's `data`; those that are only scored do not count.
    """
    trained_on = {name: sets[name] for name in ("train", TRAIN_SPANS) if name in sets}
    without_scoring = {**config, "eval_max_length": None}
    return identity(without_scoring, model_sha256, decisive_data(trained_on))


def training_of(record: Mapping) -> str:
    """The `training_identity` of a record. (The first ones did not name their model's files.)"""
    model = record.get("model", {}).get("files_sha256")
    return training_identity(record["config"], model, record.get("data", {}))


def decisive_data(sets: Mapping[str, Mapping]) -> dict[str, str]:
    """The checksums that count for a run's identity, by the descriptions of its sets.

    (See `sources.load_described`.) The set of spans counts where it is not the published one.
    Records of the published one may lack its description: the first of them were made before it
    was noted.
    """
    return {
        name: description["content_sha256"]
        for name, description in sets.items()
        if name != TRAIN_SPANS or description["deviations"]
    }


def read_records(folders: Sequence[Path | str]) -> list[dict]:
    """Every record in the folders, in order of file name.

    Args:
        folders: with a `.json` file for each run, or bundles of many (`.jsonl.gz`, `.jsonl`); or
            such files.

    Raises:
        UserError: no such folder; a file that cannot be read; two files that hold different results
            of one run.
    """
    records, files = {}, {}
    for path, is_named in _record_files(map(Path, folders)):
        in_file = _read_file(path)
        if not in_file and is_named:
            raise _no_record(path, "it lacks metrics, config or identity")
        for record in in_file:
            name = record["identity"]
            if name in records and record["metrics"] != records[name]["metrics"]:
                raise UserError(
                    f"{files[name]} and {path} hold different results of the same run (identity "
                    f"{name[:10]}); read them apart, or move one of the two away."
                )
            records[name] = record
            files[name] = path
    return list(records.values())


def _record_files(folders: Iterable[Path]) -> Iterator[tuple[Path, bool]]:
    """The files that may hold records, and whether each was named itself."""
    for folder in folders:
        if not folder.exists():
            raise UserError(
                f"{folder} does not exist; expected a folder with run records "
                "(`--out` of `python -m mtlib run`)."
            )
        if folder.is_dir():
            files = [path for path in folder.iterdir() if path.name.endswith((".json", *BUNDLES))]
            yield from ((path, False) for path in sorted(files))
        else:
            yield folder, True


def parse_json(text: str | bytes, place: Path | str):
    """What a file of records holds, or `UserError` where it is not JSON; `place` names it there."""
    try:
        return json.loads(text)
    except ValueError as error:  # of UTF-8 too
        raise _no_record(place, str(error)) from error


def _read_file(path: Path) -> list[dict]:
    """The records in a file; none where it is some other file that lies beside them."""
    is_bundle = path.name.endswith(BUNDLES)
    lines = _read_lines(path) if is_bundle else [parse_json(path.read_bytes(), path)]
    found = [line for line in lines if _is_record(line)]
    for record in found:
        if (version := record.get("schema_version")) != SCHEMA_VERSION:
            raise _no_record(path, f"its schema version is {version}, not {SCHEMA_VERSION}")
    return found


def _read_lines(path: Path) -> list:
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise _no_record(path, str(error)) from error
    numbered = enumerate(content.split(b"\n"), start=1)
    return [parse_json(line, f"{path}, line {number},") for number, line in numbered if line]


def _is_record(content: object) -> bool:
    return isinstance(content, dict) and {"metrics", "config", "identity"} <= content.keys()


def _no_record(place: Path | str, reason: str) -> UserError:
    return UserError(
        f"{place} is no record that this mtlib reads: {reason}. Move it away or run it again."
    )


@cache
def shipped_records() -> dict[str, dict]:
    """The records in `data/results`, by identity: `--reuse` takes them in place of training."""
    results = DATA_DIR / "results"
    records = read_records([results]) if results.is_dir() else []
    return {record["identity"]: record for record in records}


def probabilities(
    identity: str, places: Sequence[Path | str] = (DATA_DIR / "results",)
) -> dict[str, np.ndarray]:
    """Of a run, by evaluation set: each label's probability for every example `(n, num_labels)`.

    They are float32, in records made before 28 November 2026 float16.

    Args:
        identity: of the run, as its record has it.
        places: folders with records, or bundles; the first that has them counts.

    Returns:
        Nothing where none were kept: runs before November 2026 kept none, and one that diverged has
        none.
    """
    for path in _files_of_arrays(identity, map(Path, places)):
        prefix = "" if path.stem.endswith(f"-{identity[:10]}") else f"{identity}/"
        with np.load(path, allow_pickle=False) as arrays:
            found = {
                name.removeprefix(prefix): arrays[name]
                for name in arrays.files
                if name.startswith(prefix)
            }
        if found:
            return found
    return {}


def _files_of_arrays(identity: str, places: Iterable[Path]) -> Iterator[Path]:
    """Where those of a run may lie."""
    for place in places:
        if not place.exists():
            continue
        yield from place.glob(_arrays_of(identity))
        files = [path for path, _ in _record_files([place]) if path.name.endswith(BUNDLES)]
        yield from filter(Path.exists, map(_arrays_beside, files))
        if place.suffix == ".json":
            yield from place.parent.glob(_arrays_of(identity))


def _arrays_of(identity: str) -> str:
    """The pattern of the file with a run's arrays."""
    return f"*-{identity[:10]}.npz"


def _arrays_beside(bundle: Path) -> Path:
    """Where the arrays of a bundle's runs lie."""
    return bundle.with_name(bundle.name.removesuffix(".gz").removesuffix(".jsonl") + ".npz")


# --- many records in one file ---


def bundle(places: Sequence[Path], to: Path) -> list[dict]:
    """Put all records of some folders and files into one file, and their arrays beside it.

    Args:
        places: folders with records, or bundles.
        to: a file that ends in `.jsonl.gz` or `.jsonl`. The same records give the same bytes.

    Returns:
        The records.

    Raises:
        UserError: there is none.
    """
    records = read_records(places)
    if not records:
        raise UserError(f"there is no record in {', '.join(map(str, places))}.")
    arrays = {
        f"{record['identity']}/{name}": array
        for record in records
        for name, array in probabilities(record["identity"], places).items()
    }
    if arrays:
        write = partial(np.savez_compressed, **arrays)
        write_atomically(_arrays_beside(to), write)
    content = "".join(map(_one_line, records)).encode()
    if to.suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    write_atomically(to, lambda file: file.write(content))
    return records


def _one_line(record: dict) -> str:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"


# --- trained models beside records ---


def model_folder(path: Path, record: Mapping) -> Path:
    """Where the trained model of a record lies, if it was kept.

    Records of one training share it.
    """
    return path.with_name(record.get("trained_by", path.stem))


def check_keeping(reuse: bool, keep_model: bool) -> None:
    """Raise `UserError` where a record may be taken whose model is to be kept."""
    if reuse and keep_model:
        raise UserError(
            "a record that is reused comes without its model; give either --reuse or --keep-model."
        )


# --- writing ---


def write_record(path: Path, record: dict) -> None:
    write_atomically(path, json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")

"""Records of runs: what identifies one, how they are read and written, and those that come with the project."""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from mtlib.errors import UserError
from mtlib.methods import METHODS
from mtlib.paths import DATA_DIR
from mtlib.runs.config import all_settings

SCHEMA_VERSION = 2
TRAIN_SPANS = "train_spans"  # in a record's data: the set whose spans a policy learns to mask
# The data's content stands for where it came from and which part of it was scored.
_NOT_DECISIVE = ("task", "method", "model", "source", "sets", "splits")


def identity(config: Mapping, model_sha256: str | None, data_sha256: Mapping[str, str]) -> str:
    """A hash of all that decides a run's numbers.

    Of the settings that the method reads only those count that differ from their default, so that a new setting leaves
    the identities of finished runs as they are. A default that depends on task, method or model (alpha, learning rates)
    counts by its value.

    Args:
        config: as in a record (`RunConfig.public`).
        model_sha256: of the files of a local model; None for a hub model, which its name identifies.
        data_sha256: of the content of the training set (as "train") and of every other set (`decisive_data`).
    """
    method = METHODS[config["method"]]
    of_other_methods = {name for other in METHODS.values() for name in other.reads} - {*method.reads}
    settings = {
        name: config[name]
        for name, setting in all_settings().items()
        if name not in _NOT_DECISIVE and name not in of_other_methods
        if config.get(name) is not None and config[name] != setting.default
    }
    decisive = {
        "task": config["task"],
        "method": config["method"],
        "settings": settings,
        "model": model_sha256 or config["model"],
        "data": dict(data_sha256),
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def decisive_data(sets: Mapping[str, Mapping]) -> dict[str, str]:
    """The checksums that count for a run's identity, by the descriptions of its sets (`sources.describe`).

    The set of spans counts where it is not the published one. (Records of the published one may lack its description:
    the first of them were made before it was noted.)
    """
    return {
        name: description["content_sha256"]
        for name, description in sets.items()
        if name != TRAIN_SPANS or description["deviations"]
    }


def examples_used(train: Mapping) -> int:
    """Number of training examples of a run, by the description of the training set in its record."""
    return train.get("used_rows", train["rows"])


def read_records(folders: Sequence[Path | str]) -> list[dict]:
    """Every record in the folders (one JSON per run, or `.jsonl` with one per line), in order of file name.

    Raises:
        UserError: no such folder; a file that cannot be read; two files that hold different results of one run.
    """
    records, files = {}, {}
    for folder in map(Path, folders):
        if not folder.exists():
            raise UserError(f"{folder} does not exist; expected a folder with run records (`--out` of `mtlib run`).")
        paths = sorted([*folder.glob("*.json"), *folder.glob("*.jsonl")]) if folder.is_dir() else [folder]
        for path in paths:
            in_file = list(_read_file(path))
            if not in_file and path == folder:
                raise UserError(f"{path} holds no record of a run; move it away, or name one that does.")
            for record in in_file:
                name = record["identity"]
                if name in records and record["metrics"] != records[name]["metrics"]:
                    raise UserError(
                        f"{files[name]} and {path} hold different results of the same run (identity {name[:10]}); read "
                        "them apart, or move one of the two away."
                    )
                records[name], files[name] = record, path
    return list(records.values())


def _read_file(path: Path) -> Iterable[dict]:
    """The records in a file; none where it is some other file that lies beside them."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error.reason}); move it away or run it again.") from error
    # splitlines would cut at more than these line ends
    lines = text.split("\n") if path.suffix == ".jsonl" else [text]
    for number, line in enumerate(lines, 1):
        if not line and path.suffix == ".jsonl":
            continue
        record = parse_record(line, f"{path}, line {number}," if path.suffix == ".jsonl" else path)
        if record is not None:
            yield record


def parse_record(text: str | bytes, place: Path | str) -> dict | None:
    """A record from its JSON, checked; None where it is something else. `place` names it in errors."""
    record = parse_json(text, place)
    if not isinstance(record, dict) or not {"metrics", "config"} <= record.keys():
        return None
    _check_record(place, record)
    return record


def parse_json(text: str | bytes, place: Path | str):
    """What a file of records holds, or `UserError` where it is not JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(
            f"{place} is not JSON ({error.msg} at character {error.pos + 1}); move it away or run it again."
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{place} is not UTF-8 text ({error.reason}); move it away or run it again.") from error


def _check_record(place: Path | str, record: dict) -> None:
    if (version := record.get("schema_version")) != SCHEMA_VERSION:
        raise UserError(
            f"{place} has schema version {version}; this mtlib reads {SCHEMA_VERSION}. Move the record away and run it "
            "again."
        )
    for name, known in (("identity", "identity" in record), ("method", "method" in record["config"])):
        if not known:
            raise UserError(f"{place} names no {name}; expected a record of `mtlib run`. Move it away or run it again.")


@cache
def shipped_records() -> dict[str, dict]:
    """The records that come with the project, by identity: a cache of runs that need not be made again."""
    results = DATA_DIR / "results"
    return {record["identity"]: record for record in read_records([results])} if results.is_dir() else {}


def json_line(record: dict, most: int | None = None) -> str:
    """A record on one line, with the numbers of its history rounded to five digits, and at most `most` entries of it.

    Those that stay are spread evenly, the last one among them; each is as it was logged (a mean over its own interval).
    """
    entries = record["history"]
    if most is not None and len(entries) > most:
        entries = [entries[round((i + 1) * len(entries) / most) - 1] for i in range(most)]
    history = [
        {name: float(f"{value:.5g}") if isinstance(value, float) else value for name, value in entry.items()}
        for entry in entries
    ]
    return json.dumps(record | {"history": history}, ensure_ascii=False, separators=(",", ":")) + "\n"


def write_atomically(path: Path, text: str) -> None:
    """Either the whole file is there or none of it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:  # Ctrl-C too
        part.unlink(missing_ok=True)
        raise

"""Bring a file of records from schema version 1 to 2: `python -m mtlib.runs.convert FILE ...`.

Version 2 computes a record's identity from the settings that its method reads and that differ from their defaults, the
model's files and the data's content. Everything else in a record stays as it is. No record is lost: two of version 1
that would become one are an error, and a converted file is left alone.
"""

import json
import sys
from pathlib import Path

from mtlib.errors import UserError
from mtlib.runs.records import SCHEMA_VERSION, record_identity, write_atomically


def convert(record: dict) -> dict:
    """The same record under the present schema."""
    if record["schema_version"] == SCHEMA_VERSION:
        return record
    if record["schema_version"] != 1:
        raise UserError(f"schema version {record['schema_version']} is unknown; expected 1 or {SCHEMA_VERSION}.")
    return record | {"schema_version": SCHEMA_VERSION, "identity": record_identity(record)}


def convert_file(path: Path) -> int:
    """Convert a `.json` or `.jsonl` file in place; returns how many records it holds."""
    bundled = path.suffix == ".jsonl"
    text = path.read_text(encoding="utf-8")
    records = [json.loads(line) for line in text.split("\n") if line] if bundled else [json.loads(text)]
    converted = [convert(record) for record in records]
    seen: dict[str, dict] = {}
    for record in converted:
        if seen.setdefault(record["identity"], record) is not record:
            raise UserError(f"{path}: two records of {record['config']} would become one; take one of them out first.")
    if bundled:
        lines = [json.dumps(record, ensure_ascii=False, separators=(",", ":")) for record in converted]
        write_atomically(path, "".join(f"{line}\n" for line in lines))
    else:
        write_atomically(path, json.dumps(converted[0], indent=1, ensure_ascii=False) + "\n")
    return len(converted)


if __name__ == "__main__":
    try:
        for name in sys.argv[1:]:
            print(f"{convert_file(Path(name))} records: {name}")
    except (UserError, OSError, json.JSONDecodeError, KeyError) as error:
        sys.exit(f"error: {error}")

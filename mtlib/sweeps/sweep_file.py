"""A sweep file: which runs one YAML file means.

    tasks: [sentiment, nli]
    methods: [fine_tuning, mask_tuning]
    models: bert-base-uncased
    seeds: 5                    # 0 to 4; or a list
    alpha: [null, 0.1, 0.5]     # null: the default, here the paper's
    source: hub

Any other setting of a run goes by its own name, one value or a list; the runs are every combination. Several such grids
stand below each other under `grids`, each with what it has beside the rest of the file or in its place:

    grids:
      - {methods: fine_tuning}
      - {methods: mask_tuning, masking: known_shortcut, mask_rate: 1}
"""

import itertools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from mtlib.errors import UserError, one_of
from mtlib.runs.config import NAMES, RunConfig, all_settings, configure, read_by

_PLURAL = {"task": "tasks", "method": "methods", "model": "models", "seed": "seeds"}  # as they stand in the file
KEYS = {_PLURAL.get(name, name): name for name in all_settings()}
_NEEDED = {"tasks": "[sentiment, nli]", "methods": "[fine_tuning, mask_tuning]"}  # each with an example


def expand(file: Path, **instead: str) -> list[RunConfig]:
    """The runs that a sweep file means, each once: what differs only in settings its method does not read is one run.

    They are in the file's order, but that all runs of one seed stand before those of the next.

    Args:
        file: the sweep file.
        instead: values for keys that the file has outside its grids, in place of its own.

    Raises:
        UserError: naming the file, the value and what was expected.
    """
    common = _load(file)
    for key in instead.keys() - common.keys():
        raise UserError(f"{file} has no {key} outside its grids that {instead[key]!r} could replace; write it there.")
    common |= instead
    grids = common.pop("grids", [{}])
    if not (isinstance(grids, list) and grids and all(isinstance(own, dict) for own in grids)):
        raise UserError(
            f"{file}: grids is {grids!r}; expected a list of grids, each with settings: `- {{methods: fine_tuning}}`."
        )
    runs, read_anywhere = {}, set()
    for number, own in enumerate(grids, start=1):
        place = str(file) if grids == [{}] else f"{file}, grid {number}"
        _check_keys(place, common | own)
        try:
            read = set()
            for values in _combinations(common | own):
                values = read_by(values["method"], values)
                read |= values.keys()
                config = configure(**values)
                runs.setdefault(repr(config.resolved()), config)
        except UserError as error:
            raise UserError(f"{place}: {error}") from error
        _check_read(place, own, read)
        read_anywhere |= read
    _check_read(str(file), common, read_anywhere)
    seeds = list(dict.fromkeys(config.seed for config in runs.values()))
    return sorted(runs.values(), key=lambda config: seeds.index(config.seed))  # a sweep cut short has whole seeds


def _combinations(entries: Mapping) -> Iterable[dict]:
    """Every combination of the settings' values; tasks are the outermost loop."""
    grid = {name: _values(key, entries[key]) for key, name in KEYS.items() if key in entries}
    return (dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()))


def _values(key: str, entry: object) -> list:
    if key == "seeds" and type(entry) is int:
        if entry < 1:
            raise UserError(f"seeds is {entry}; expected a number of seeds, 1 or more, or a list of them.")
        entry = list(range(entry))
    if entry == []:
        raise UserError(f"{key} is an empty list; expected at least one value (null for the default).")
    several = isinstance(entry, list) and not (key == "sets" and all(isinstance(name, str) for name in entry))
    return [_typed(KEYS[key], value) for value in (entry if several else [entry])]


def _typed(name: str, value: object) -> object:
    """A path from the root: it must mean the same to a process in another folder."""
    is_path = name in ("source", "model", "treebank") and isinstance(value, str) and value not in NAMES
    return os.path.abspath(value) if is_path and Path(value).exists() else value


# ------------------------------------------------------------------------------------------- what a person gets wrong


def _check_keys(place: str, entries: Mapping) -> None:
    for key in entries:
        if key not in KEYS:
            raise UserError(f"{place}: unknown key {key!r}; {one_of(key, ['grids', *KEYS])}")
    for key, example in _NEEDED.items():
        if key not in entries:
            raise UserError(f"{place}: {key} is missing; expected a list, for example `{key}: {example}`.")


def _check_read(place: str, entries: Mapping, read: Iterable[str]) -> None:
    for key, entry in entries.items():
        if KEYS[key] not in read and any(value is not None for value in _values(key, entry)):
            raise UserError(f"{place}: none of its runs reads {key}; leave it out.")


def _load(file: Path) -> dict:
    try:
        entries = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: {getattr(error, 'strerror', None) or error}; expected a sweep file.") from error
    except yaml.YAMLError as error:
        raise UserError(f"{file} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(entries, dict):
        raise UserError(f"{file}: expected `key: value` lines, not a {type(entries).__name__}.")
    return entries

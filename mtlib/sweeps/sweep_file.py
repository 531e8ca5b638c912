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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, Field

from mtlib.data.yaml_files import load_yaml
from mtlib.errors import UserError, one_of
from mtlib.runs.config import NAMES, RunConfig, all_settings, configure, read_by
from mtlib.runs.inputs import read_inputs

_PLURAL = {
    "task": "tasks",
    "method": "methods",
    "model": "models",
    "seed": "seeds",
}  # as they stand in the file
KEYS = {_PLURAL.get(name, name): name for name in all_settings()}
_NEEDED = ("tasks", "methods")


@dataclass(frozen=True)
class GridRun:
    """A run of a sweep: its configuration, the name of its record, and whether there is a shipped one.

    `examples` are those that it trains on, each as often as it is seen.
    """

    config: RunConfig
    file: str
    shipped: bool = False
    examples: float = 0


def identify(configs: Iterable[RunConfig]) -> list[GridRun]:
    """The runs with the names of their records, which depend on the data and the model's files."""
    runs = []
    for config in configs:
        inputs = read_inputs(config)
        train = inputs.sets[
            "train"
        ]  # by its description: to hold phrases out takes seconds for each run
        examples = config.epochs * train.get("used_rows", train["rows"])
        runs.append(
            GridRun(
                config,
                inputs.record_path(Path()).name,
                inputs.shipped_record() is not None,
                examples,
            )
        )
    return runs


def expand(file: Path, **instead: str) -> list[RunConfig]:
    """The runs that a sweep file means, each once: what differs only in settings its method does not read is one run.

    They are in the file's order, but that all runs of one seed stand before those of the next.

    Args:
        file: the sweep file.
        instead: values for keys, in place of those that the file has outside its grids.

    Raises:
        UserError: naming the file, the value and what was expected.
    """
    common, grids = _load(file)
    common |= instead
    runs, read_anywhere = {}, set()
    for number, own in enumerate(grids, start=1):
        place = str(file) if grids == [{}] else f"{file}, grid {number}"
        for key in common | own:
            if key not in KEYS:
                raise UserError(f"{place}: unknown key {key!r}; {one_of(key, ['grids', *KEYS])}")
        try:
            read = set()
            for values in _combinations(common | own):
                values = read_by(values["method"], values)
                read |= values.keys()
                config = configure(**values)
                runs.setdefault(repr(config), config)
        except UserError as error:
            raise UserError(f"{place}: {error}") from error
        _check_read(place, own, read)
        read_anywhere |= read
    _check_read(str(file), common, read_anywhere)
    seeds = list(dict.fromkeys(config.seed for config in runs.values()))
    return sorted(
        runs.values(), key=lambda config: seeds.index(config.seed)
    )  # a sweep cut short has whole seeds


def _combinations(entries: Mapping) -> Iterable[dict]:
    """Every combination of the settings' values; tasks are the outermost loop."""
    entries = dict.fromkeys(_NEEDED) | entries
    grid = {name: _values(key, entries[key]) for key, name in KEYS.items() if key in entries}
    return (dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()))


def _values(key: str, entry: object) -> list:
    given = entry
    if key == "seeds":
        entry = _seeds(entry)
    if entry == []:
        raise UserError(f"{key} is {given!r}; expected at least one value (null for the default).")
    several = isinstance(entry, list) and not (
        key == "sets" and all(isinstance(name, str) for name in entry)
    )
    return [_typed(KEYS[key], value) for value in (entry if several else [entry])]


def _seeds(entry: object) -> object:
    """Several seeds as a list; a number stands for the first so many."""
    if type(entry) is int:
        return list(range(entry))
    for seed in entry if isinstance(entry, list) else [entry]:
        if seed is not None and type(seed) is not int:
            raise UserError(
                f"seeds is {entry!r}; expected a whole number without quotes, or a list of them."
            )
    return entry


def _typed(name: str, value: object) -> object:
    """A path from the root: it must mean the same to a process in another folder."""
    is_path = (
        name in ("source", "model", "treebank") and isinstance(value, str) and value not in NAMES
    )
    return os.path.abspath(value) if is_path and Path(value).exists() else value


def _check_read(place: str, entries: Mapping, read: Iterable[str]) -> None:
    for key, entry in entries.items():
        if KEYS[key] not in read and any(value is not None for value in _values(key, entry)):
            raise UserError(f"{place}: none of its runs reads {key}; leave it out.")


class _File(BaseModel, extra="allow"):
    grids: list[dict[str, Any]] = Field([{}], min_length=1)


def _load(file: Path) -> tuple[dict, list[dict]]:
    """What stands outside its grids, and the grids."""
    try:
        entries = _File.model_validate(load_yaml(file.read_text(encoding="utf-8")))
    except (
        OSError,
        ValueError,
        yaml.YAMLError,
    ) as error:  # UnicodeDecodeError and ValidationError are ValueErrors
        raise UserError(
            f"{file} is no sweep file, which maps settings to values: {' '.join(str(error).split())}"
        ) from error
    return dict(entries.model_extra), entries.grids

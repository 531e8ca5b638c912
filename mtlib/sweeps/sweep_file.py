"""A sweep file: which runs one YAML file means.

    tasks: [sentiment, nli]
    methods: [fine_tuning, mask_tuning]
    models: bert-base-uncased
    seeds: 5                    # 0 to 4; or a list
    alpha: [null, 0.1, 0.5]     # null: the default, here the paper's
    source: hub

Any other setting of a run goes by its own name, one value or a list; the runs are every
combination. Several such grids stand below each other under `grids`, each with what it has beside
the rest of the file or in its place:

    grids:
      - {methods: fine_tuning}
      - {methods: mask_tuning, masking: known_shortcut, mask_rate: 1}
"""

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, Field

from mtlib.data.yaml_files import load_yaml
from mtlib.errors import UserError, one_of
from mtlib.runs.config import RESERVED_NAMES, RunConfig, all_settings, configure, effective_settings
from mtlib.runs.inputs import read_inputs

# as they stand in the file
_PLURAL = {"task": "tasks", "method": "methods", "model": "models", "seed": "seeds"}
KEYS = {_PLURAL.get(name, name): name for name in all_settings()}
_NEEDED = ("tasks", "methods")
_LISTS = ("sets", "words")  # one value of these settings is a list


@dataclass(frozen=True)
class GridRun:
    """A run of a sweep.

    Args:
        config: its configuration.
        file: the name of its record.
        shipped: whether there is a shipped record.
        examples: see `n_examples`.
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
        # by the set's description: to hold phrases out takes seconds for each run
        examples = n_examples(config.epochs, inputs.descriptions["train"])
        file = inputs.record_path(Path()).name
        is_shipped = inputs.shipped_record() is not None
        runs.append(GridRun(config, file, is_shipped, examples))
    return runs


def n_examples(epochs: float, train: Mapping) -> float:
    """How many examples a run trains on, each as often as it is seen in one stage.

    Args:
        epochs: of the run.
        train: the description of its training set, as a record has it.
    """
    return epochs * train.get("used_rows", train["rows"])


def expand(file: Path, **overrides: str) -> list[RunConfig]:
    """The configurations of the runs that a sweep file means, each once.

    What differs only in settings that its method ignores is one run. They are in the file's order,
    but that all runs of one seed stand before those of the next.

    Args:
        file: the sweep file.
        overrides: values for keys, in place of those that the file has outside its grids. What a
            grid has itself stays.

    Raises:
        UserError: naming the file, the value and what was expected.
    """
    common, grids = _load(file)
    _check_overrides(file, grids, overrides)
    common |= overrides
    configs: dict[str, RunConfig] = {}
    used_anywhere = set()
    for number, grid in enumerate(grids, start=1):
        where = str(file) if grids == [{}] else f"{file}, grid {number}"
        _check_keys(where, common | grid)
        used_by_grid = set()
        try:
            for values in _combinations(common | grid):
                settings = effective_settings(values)
                used_by_grid |= settings.keys()
                config = configure(**settings)
                configs.setdefault(repr(config), config)
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
        _check_used(where, grid, used_by_grid)
        used_anywhere |= used_by_grid
    _check_used(str(file), common, used_anywhere)
    # a sweep that is cut short has whole seeds
    seeds = list(dict.fromkeys(config.seed for config in configs.values()))
    return sorted(configs.values(), key=lambda config: seeds.index(config.seed))


def _check_overrides(file: Path, grids: Sequence[Mapping], keys: Iterable[str]) -> None:
    """Raise `UserError` where a value that was given would count nowhere."""
    for key in keys:
        if all(key in grid for grid in grids):
            raise UserError(f"{file}: each of its grids has {key} itself; change them there.")


def _check_keys(where: str, keys: Iterable[str]) -> None:
    for key in keys:
        if key not in KEYS:
            raise UserError(f"{where}: unknown key {key!r}; {one_of(key, ['grids', *KEYS])}")


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
    is_list = isinstance(entry, list)
    is_one_value = key in _LISTS and is_list and all(isinstance(name, str) for name in entry)
    values = entry if is_list and not is_one_value else [entry]
    return [_with_absolute_path(KEYS[key], value) for value in values]


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


def _with_absolute_path(name: str, value: object) -> object:
    """The value; a path from the root on, which means the same to a process in another folder."""
    may_be_path = name in ("source", "model", "treebank") and isinstance(value, str)
    if may_be_path and value not in RESERVED_NAMES and Path(value).exists():
        return os.path.abspath(value)
    return value


def _check_used(where: str, entries: Mapping, used: Iterable[str]) -> None:
    """Raise `UserError` if no run reads one of these entries that has a value."""
    for key, entry in entries.items():
        if KEYS[key] not in used and any(value is not None for value in _values(key, entry)):
            raise UserError(f"{where}: none of its runs reads {key}; leave it out.")


class _File(BaseModel, extra="allow"):
    grids: list[dict[str, Any]] = Field([{}], min_length=1)


def _load(file: Path) -> tuple[dict, list[dict]]:
    """What stands outside its grids, and the grids."""
    try:
        entries = _File.model_validate(load_yaml(file.read_text(encoding="utf-8")))
    # UnicodeDecodeError and ValidationError are ValueErrors
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"{file} is no sweep file, which maps settings to values: {reason}"
        ) from error
    return dict(entries.model_extra), entries.grids

"""A grid of runs from one YAML file: which runs it means, which records they have, and what they may cost.

    tasks: [sentiment, nli]
    methods: [fine_tuning, mask_tuning]
    models: bert-base-uncased
    seeds: 5                    # 0 to 4; or a list
    alpha: [null, 0.1, 0.5]     # null: the default, here the paper's
    source: hub

Any other setting of a run goes by its own name, one value or a list. `profile: paper` sets what that file of
`mtlib/runs/profiles` has and this one has not.
"""

import contextlib
import difflib
import itertools
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from mtlib.errors import UserError
from mtlib.runs import profiles
from mtlib.runs.config import BUNDLED_MODEL, NAMES, RunConfig, all_settings, configure, read_by
from mtlib.runs.inputs import read_inputs, record_path
from mtlib.runs.records import examples_used

_PLURAL = {"task": "tasks", "method": "methods", "model": "models", "seed": "seeds"}  # as they stand in the file
KEYS = {_PLURAL.get(name, name): name for name in all_settings()}
_NEEDED = {"tasks": "[sentiment, nli]", "methods": "[fine_tuning, mask_tuning]"}  # each with an example


def expand(file: Path) -> list[RunConfig]:
    """The runs that a sweep file means, each once: what differs only in settings its method does not read is one run.

    Raises:
        UserError: naming the file, the value and what was expected.
    """
    grid, of_profile, rates = _read(file)
    try:
        configs, read = {}, set()
        for values in itertools.product(*grid.values()):
            settings = dict(zip(grid, values, strict=True))
            settings = read_by(settings["method"], settings)
            read |= settings.keys()
            if "learning_rate" not in grid and settings.get("model", BUNDLED_MODEL) == rates["model"]:
                settings["learning_rate"] = profiles.rate_of(rates["by_method"], settings)
            config = configure(**settings)
            configs.setdefault(repr(config.resolved()), config)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error
    for name, values in grid.items():
        if name not in read | of_profile and any(value is not None for value in values):
            raise UserError(f"{file}: none of its runs reads {_PLURAL.get(name, name)}; leave it out.")
    return list(configs.values())


@dataclass(frozen=True)
class GridRun:
    """A run of a sweep.

    Args:
        config: its configuration.
        file: name of its record; None where the data or the model could not be read to tell.
        examples: training examples of one epoch.
        tests: test examples.
    """

    config: RunConfig
    file: str | None
    examples: int = 0
    tests: int = 0


def identify(configs: Sequence[RunConfig], cache: dict | None = None) -> tuple[list[GridRun], UserError | None]:
    """The runs with the names of their records, and the last error where data or a model could not be read.

    `cache`, passed to several calls, has each set and model read once; see `inputs.read_inputs`.
    """
    cache = {} if cache is None else cache
    identified, trouble, unreadable = [], None, set()
    for config in configs:
        settings = config.values()
        reads = repr([settings[name] for name in ("task", "source", "model", "sets", "splits", "train_size")])
        try:
            inputs = None if reads in unreadable else read_inputs(config, cache)
        except UserError as error:
            inputs, trouble = None, error
        if inputs is None:  # once is enough: a server that does not answer takes its time
            unreadable.add(reads)
            identified.append(GridRun(config, None))
            continue
        train, *tests = inputs.sets.values()
        name = record_path(config, Path(), inputs).name
        examples = examples_used(train)
        identified.append(GridRun(config, name, examples, sum(test["rows"] for test in tests)))
    return identified, trouble


def expected_seconds(run: GridRun, records: Sequence[dict]) -> float | None:
    """What the run will take if it goes as the records of its task, method and model did; None if there is none.

    The median of their seconds per training example and epoch, and that of their seconds per test example.
    """
    public = run.config.public()
    training, testing = [], []
    for record in records:
        config, cost = record["config"], record["cost"]
        if record.get("diverged") or any(config[key] != public[key] for key in ("task", "method", "model")):
            continue  # a run that has diverged was not done in full
        train, *tests = record["data"].values()
        training.append(cost["train_seconds"] / (examples_used(train) * config["epochs"]))
        testing.append(cost["evaluation_seconds"] / sum(test["rows"] for test in tests))
    if not training or run.file is None:
        return None
    return statistics.median(training) * run.examples * public["epochs"] + statistics.median(testing) * run.tests


def columns(configs: Sequence[RunConfig]) -> dict[str, list]:
    """What tells the runs of a sweep apart: settings that vary, with every run's value, defaults filled in."""
    resolved = [config.resolved().values() for config in configs]
    written = [config.values() for config in configs]

    def varies(name: str) -> bool:  # as written too: the default sets vary with the task, no need to say so
        values, texts = ([settings.get(name) for settings in several] for several in (resolved, written))
        return any(value != values[0] and text != texts[0] for value, text in zip(values, texts, strict=True))

    return {
        name: [settings.get(name) for settings in resolved]
        for name in all_settings()
        if name in _PLURAL or varies(name)
    }


# ---------------------------------------------------------------------------------------------------- reading the file


def _read(file: Path) -> tuple[dict[str, list], set[str], dict]:
    """Every setting of the file and of its profile with its values; those that the profile alone has; its rates."""
    entries = _load(file)
    defaults, rates = _from_profile(file, entries.pop("profile")) if "profile" in entries else ({}, {"model": None})
    own, entries = entries.keys(), defaults | entries
    for key in entries:
        if key not in KEYS:
            near = difflib.get_close_matches(str(key), KEYS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? Known are" if near else "expected"
            raise UserError(f"{file}: unknown key {key!r}; {hint} profile, {', '.join(KEYS)}.")
    for key, example in _NEEDED.items():
        if key not in entries:
            raise UserError(f"{file}: {key} is missing; expected a list, for example `{key}: {example}`.")
    # tasks are the outermost loop
    grid = {name: _values(file, key, entries[key]) for key, name in KEYS.items() if key in entries}
    return grid, {KEYS[key] for key in defaults.keys() - own}, rates


def _from_profile(file: Path, name: str) -> tuple[dict, dict]:
    try:
        values = profiles.load(name)
    except UserError as error:
        raise UserError(f"{file}, profile: {error}") from error
    # the paper's alpha (null) is what the profile's notebooks compare methods at, the grid what they draw the curve of
    entries = {"models": values["model"], "alpha": [None, *values["alphas"]]}
    entries |= {key: values[key] for key in ("source", "seeds", "mask_rate", "train_size", "epochs")}
    return entries, {"model": values["model"], "by_method": values["learning_rates"]}


def _values(file: Path, key: str, entry) -> list:
    if key == "seeds" and type(entry) is int:  # a number of seeds, as in a profile
        if entry < 1:
            raise UserError(f"{file}: seeds is {entry}; expected a number of seeds, 1 or more, or a list of them.")
        entry = list(range(entry))
    if entry == []:
        raise UserError(f"{file}: {key} is an empty list; expected at least one value (null for the default).")
    several = isinstance(entry, list) and not (key == "sets" and all(isinstance(name, str) for name in entry))
    return [_typed(KEYS[key], value) for value in (entry if several else [entry])]


def _typed(name: str, value):
    """The value in its setting's type, where YAML has no such type or takes it for another."""
    kinds = all_settings()[name].kinds
    if float in kinds and isinstance(value, str):
        with contextlib.suppress(ValueError):
            return float(value)  # YAML takes 5e-5 for text
    if tuple in kinds and isinstance(value, list):
        return tuple(value)
    if (
        name in ("source", "model", "treebank", "bias_vectors")
        and isinstance(value, str)
        and value not in NAMES
        and Path(value).exists()
    ):
        return os.path.abspath(value)  # it must mean the same to a process that works in another folder
    return value


class _Loader(yaml.SafeLoader):
    """YAML that refuses a key that is there twice, of which the stock loader silently takes the last."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _load(file: Path) -> dict:
    try:
        entries = yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: {getattr(error, 'strerror', None) or error}; expected a sweep file.") from error
    except yaml.YAMLError as error:
        raise UserError(f"{file} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(entries, dict):
        raise UserError(f"{file}: expected `key: value` lines, not a {type(entries).__name__}.")
    return entries

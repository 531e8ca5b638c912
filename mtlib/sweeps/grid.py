"""A grid of runs from one YAML file: which runs it means, which of them are there, and what the rest may cost.

    tasks: [sentiment, nli]
    methods: [fine_tuning, mask_tuning]
    models: bert-base-uncased
    seeds: 5                    # 0 to 4; or a list
    alpha: [null, 0.1, 0.5]     # null: the default, here the paper's
    source: hub

Any other setting of `RunConfig` goes by its own name, one value or a list. `profile: paper` sets what that file of
`mtlib/profiles` has and this one has not.
"""

import difflib
import itertools
import math
import os
import re
import statistics
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from mtlib.errors import UserError
from mtlib.runs import profiles
from mtlib.runs import run as runs
from mtlib.runs.config import BUNDLED_MODEL, NAMES, RunConfig, without_unread

_LISTS = {"tasks": "task", "models": "model", "methods": "method", "seeds": "seed"}
_FIELDS = {name: name for name in RunConfig.__dataclass_fields__ if name not in _LISTS.values()}
KEYS = {**_LISTS, **_FIELDS}  # as they stand in the file: the fields of RunConfig
_NEEDED = ("tasks", "methods")
_HINTS = typing.get_type_hints(RunConfig)
_KINDS = {str: "a name", int: "a whole number", float: "a number", bool: "true or false", tuple: "a list of names",
          dict: "NAME: VALUE pairs", type(None): "null"}  # fmt: skip

_EXPONENT = re.compile(r"\d+e[+-]?\d+", flags=re.IGNORECASE)  # YAML 1.1 takes 5e-5 for text, 5.0e-5 for a number


def expand(file: Path) -> list[RunConfig]:
    """The runs that a sweep file means, each once: what differs only in settings its method does not read is one run.

    Raises:
        UserError: naming the file, the key, the value and what was expected.
    """
    grid, rates = _read(file)
    first = {KEYS[key]: values[0] for key, values in grid.items() if key in ("tasks", "source")}
    for key, values in grid.items():  # each by itself, as a method that reads everything would take it
        if key not in ("sets", "splits"):  # these depend on the task
            for value in values:
                _build(file, {**first, "method": "mask_tuning", KEYS[key]: value})
    found = {}
    for values in itertools.product(*grid.values()):
        settings = without_unread(dict(zip(map(KEYS.get, grid), values, strict=True)))
        if "learning_rate" not in grid:
            alternating = settings.get("update") == "alternating"
            rate = rates.get(
                (settings.get("model", BUNDLED_MODEL), "alternating" if alternating else settings["method"])
            )
            settings |= {} if rate is None else {"learning_rate": rate}
        config = _build(file, settings)
        found.setdefault(repr(config.resolved()), config)
    return list(found.values())


@dataclass(frozen=True)
class Planned:
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


def plan(configs: Sequence[RunConfig], cache: dict | None = None) -> tuple[list[Planned], UserError | None]:
    """The runs with the names of their records, and the last error where data or a model could not be read.

    `cache`, given to several calls, has each set and model read once; see `runs.read_inputs`.
    """
    cache = {} if cache is None else cache
    planned, trouble, broken = [], None, set()
    for config in configs:
        reads = repr((config.task, config.source, config.model, config.sets, config.splits, config.train_size))
        try:
            inputs = None if reads in broken else runs.read_inputs(config, cache)
        except UserError as error:
            inputs, trouble = None, error
        if inputs is None:  # once is enough: a server that does not answer takes its time
            broken.add(reads)
            planned.append(Planned(config, None))
            continue
        train, *tests = inputs.sets.values()
        name = runs.record_path(config, Path(), inputs).name
        examples = train.get("used_rows", train["rows"])
        planned.append(Planned(config, name, examples, sum(one["rows"] for one in tests)))
    return planned, trouble


def seconds(run: Planned, records: Sequence[dict]) -> float | None:
    """What the run will take if it goes as the records of its task, method and model did; None if there is none.

    The median of their seconds per training example and epoch, and that of their seconds per test example.
    """
    public = run.config.public()
    alike = [one for one in records if all(one["config"][key] == public[key] for key in ("task", "method", "model"))]
    if not alike or run.file is None:
        return None
    training, testing = [], []
    for record in alike:
        train, *tests = record["data"].values()
        examples = train.get("used_rows", train["rows"]) * record["config"]["epochs"]
        training.append(record["cost"]["train_seconds"] / examples)
        testing.append(record["cost"]["evaluation_seconds"] / sum(one["rows"] for one in tests))
    return statistics.median(training) * run.examples * run.config.epochs + statistics.median(testing) * run.tests


def columns(configs: Sequence[RunConfig]) -> dict[str, list]:
    """What tells the runs of a sweep apart: settings that vary, with every run's value, defaults filled in."""
    resolved, found = [config.resolved() for config in configs], {}
    for name in RunConfig.__dataclass_fields__:
        values = [getattr(config, name) for config in resolved]
        as_given = [getattr(config, name) for config in configs]  # the sets vary with the task: no need to say so
        if name in _LISTS.values() or any(
            value != values[0] and given != as_given[0] for value, given in zip(values, as_given, strict=True)
        ):
            found[name] = values
    return found


def options(config: RunConfig) -> list[str]:
    """The options of `mtlib run` that give this configuration: those that are not the defaults."""
    given = []
    for name, field in RunConfig.__dataclass_fields__.items():
        value = getattr(config, name)
        if value is None or value == field.default or value == {}:
            continue
        match name:
            case "shared":
                given.append("--separate")
            case "sets":
                given += [word for one in value for word in ("--sets", one)]
            case "splits":
                given += [word for one in value.items() for word in ("--split", "=".join(one))]
            case _:
                given += [f"--{name.replace('_', '-')}", str(value)]
    return given


# ------------------------------------------------------------------------------------------------- reading the file


def _read(file: Path) -> tuple[dict[str, list], dict[tuple[str, str], float]]:
    """Every key of the file, and of its profile, with its values in RunConfig's types; rates by model and method."""
    given = _load(file)
    settings, rates = {}, {}
    if "profile" in given:
        try:
            settings, rates = _settings_of_profile(given.pop("profile"))
        except UserError as error:
            raise UserError(f"{file}, profile: {error}") from error
    settings |= given
    for key in settings:
        if key not in KEYS:
            near = difflib.get_close_matches(str(key), KEYS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}? Known are" if near else "expected"
            raise UserError(f"{file}: unknown key {key!r}; {hint} profile, {', '.join(KEYS)}.")
    for key in _NEEDED:
        if key not in settings:
            raise UserError(f"{file}: {key} is missing; expected a list, for example `{key}: {_example(key)}`.")
    order = [key for field in RunConfig.__dataclass_fields__ for key in KEYS if KEYS[key] == field]
    # tasks are the outermost loop
    return {key: _values(file, key, settings[key]) for key in order if key in settings}, rates


def _example(key: str) -> str:
    return {"tasks": "[sentiment, nli]", "methods": "[fine_tuning, mask_tuning]"}[key]


def _settings_of_profile(name) -> tuple[dict, dict[tuple[str, str], float]]:
    values = profiles.load(name)
    # the paper's alpha (null) is what the profile's notebooks compare methods at, the grid what they draw the curve of
    settings = {
        "models": values["model"],
        "alpha": [None, *values["alphas"]],
        **{key: values[key] for key in ("source", "seeds", "mask_rate", "train_size", "epochs")},
    }
    return settings, {(values["model"], method): rate for method, rate in values.get("learning_rates", {}).items()}


def _values(file: Path, key: str, given) -> list:
    if key == "seeds" and type(given) is int:  # a number of seeds, as in a profile
        if given < 1:
            raise UserError(f"{file}: seeds is {given}; expected a number of seeds, 1 or more, or a list of them.")
        given = list(range(given))
    several = isinstance(given, list) and not (key == "sets" and all(isinstance(one, str) for one in given))
    if given == []:
        raise UserError(f"{file}: {key} is an empty list; expected at least one value (null for the default).")
    return [_typed(file, key, value) for value in (given if several else [given])]


def _typed(file: Path, key: str, value):
    """The value in the type of RunConfig's field."""
    field, kinds = RunConfig.__dataclass_fields__[KEYS[key]], _kinds(_HINTS[KEYS[key]])
    if field.default is not None:
        kinds -= {type(None)}  # there it stands for what a method does not read
    found = value
    if float in kinds and (type(value) is int or (isinstance(value, str) and _EXPONENT.fullmatch(value))):
        value = float(value)
    elif tuple in kinds and isinstance(value, list):
        value = tuple(value)
    fits = type(value) in kinds
    if isinstance(value, tuple | dict):
        fits &= all(isinstance(one, str) for one in (*value, *(value.values() if isinstance(value, dict) else ())))
    if not fits or (isinstance(value, float) and not math.isfinite(value)):
        expected = " or ".join(text for kind, text in _KINDS.items() if kind in kinds)
        raise UserError(f"{file}: {key} is {found!r}; expected {expected}, or a list of such.")
    if key in ("source", "models") and value not in NAMES and Path(value).is_dir():
        return os.path.abspath(value)  # it must mean the same to a process that works in another folder
    return value


def _kinds(hint) -> set[type]:
    members = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return {typing.get_origin(member) or member for member in members}


def _build(file: Path, settings: dict) -> RunConfig:
    try:
        return RunConfig(**settings)
    except UserError:
        tried = {"task": "sentiment", "method": "fine_tuning"}
        first = [name for name in ("task", "source", "method") if name in settings]
        for name in [*first, *(name for name in settings if name not in first)]:  # one more each time: whose fault?
            tried[name] = settings[name]
            try:
                RunConfig(**tried)
            except UserError as error:
                key = next(key for key, field in KEYS.items() if field == name)
                raise UserError(f"{file}, {key}: {error}") from error
        raise


class _Loader(yaml.SafeLoader):
    """YAML that refuses a key given twice, of which the stock loader silently takes the last."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _load(file: Path) -> dict:
    try:
        given = yaml.load(file.read_text(encoding="utf-8"), _Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: {getattr(error, 'strerror', None) or error}; expected a sweep file.") from error
    except yaml.YAMLError as error:
        raise UserError(f"{file} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(given, dict):
        raise UserError(f"{file}: expected `key: value` lines, found {type(given).__name__}.")
    return given

"""The runs of the arms of a comparison: one for each seed, alike in all else."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from mtlib.data.tasks import get_task
from mtlib.errors import UserError
from mtlib.runs.config import settings_of
from mtlib.runs.inputs import HELD_OUT


class Run(NamedTuple):
    """A run of an arm, with its values of the settings that `by` and `tuned` name."""

    task: str
    arm: str
    by: tuple
    tuned: tuple
    seed: int
    record: dict

    @property
    def cell(self) -> tuple:
        """Runs of one cell are averaged, so they must be alike."""
        return self.task, self.arm, self.by


def by_cell(runs: Iterable[Run]) -> dict[tuple, list[Run]]:
    """The runs of each cell, of which a table shows the mean."""
    cells: dict[tuple, list[Run]] = {}
    for run in runs:
        cells.setdefault(run.cell, []).append(run)
    return cells


def one_per_seed(runs: Sequence[Run]) -> list[Run]:
    """Of two runs with one seed the one that is scored on more sets.

    A run on dev data alone gives way to the whole one.

    Raises:
        UserError: two that are scored on as many.
    """
    chosen: dict[tuple, Run] = {}
    for run in runs:
        key = (run.cell, run.tuned, run.seed)
        other = chosen.setdefault(key, run)
        if other is run:
            continue
        if len(other.record["metrics"]) == len(run.record["metrics"]):
            raise _two_of_one_seed(run, other)
        chosen[key] = max(other, run, key=lambda run: len(run.record["metrics"]))
    return list(chosen.values())


def _two_of_one_seed(run: Run, other: Run) -> UserError:
    config = run.record["config"]
    other_config = other.record["config"]
    differing = [name for name in config if config[name] != other_config.get(name)]
    return UserError(
        f"two runs of {run.arm} have seed {run.seed}; they differ in "
        f"{', '.join(differing) or 'data or model'}. Say which one counts."
    )


def best_tuned(runs: Sequence[Run]) -> list[Run]:
    """Of each cell the runs with the tuned settings whose mean over seeds on dev data is best.

    Settings that were run with fewer seeds than others are out. Of equally good ones the lowest.
    """
    best = {}
    for cell, members in by_cell(runs).items():
        tried = defaultdict(list)
        for run in members:
            tried[run.tuned].append(_dev_accuracy(run.record))
        most_seeds = max(map(len, tried.values()))
        means = {
            tuned: fmean(accuracies)
            for tuned, accuracies in tried.items()
            if len(accuracies) == most_seeds
        }
        best[cell] = min(means, key=lambda tuned: (-means[tuned], [*map(sort_key, tuned)]))
    return [run for run in runs if run.tuned == best[run.cell]]


def check_alike(runs: Sequence[Run]) -> None:
    """Raise `UserError` unless the runs of each cell agree in all but the seed."""
    for first, *others in by_cell(runs).values():
        for run in others:
            if difference := first_difference(first.record, run.record):
                name, value, other_value = difference
                raise UserError(
                    f"the runs of {run.arm} are not alike: {name} is {value} with seed "
                    f"{first.seed} and {other_value} with seed {run.seed}. Name the setting in "
                    "`where`, in an arm or in `by`, or give other records."
                )


def first_difference(
    record: dict, other: dict, apart_from: Collection[str] = ()
) -> tuple[str, object, object] | None:
    """Name and values of something beside the seed in which two runs differ.

    Of the data only sets that both have count: one may be scored on more than the other.
    """
    values = _fixed_values(record)
    other_values = _fixed_values(other)
    for name, value in values.items():
        if name in apart_from or name not in other_values:
            continue
        if value != other_values[name]:
            return name, value, other_values[name]
    return None


def _fixed_values(record: dict) -> dict[str, object]:
    """What a run's numbers depend on beside its seed, by name.

    A setting that a record lacks has its default. The sets that it is scored on count by their
    content.
    """
    config = record["config"]
    settings = settings_of(config["method"])
    for name in ("seed", "sets", "splits"):
        del settings[name]
    values = {}
    for name, field in settings.items():
        value = config.get(name)
        if value is None:
            value = field.get_default(call_default_factory=True)
        values[name] = list(value) if isinstance(value, tuple) else value
    values["the hash of the model's files"] = record.get("model", {}).get("files_sha256")
    for name, description in record.get("data", {}).items():
        values[f"the hash of {name}"] = description["content_sha256"]
    return values


def _dev_accuracy(record: dict) -> float:
    """On what settings may be chosen by: held-out training examples, or else the task's dev set."""
    config = record["config"]
    metrics = record["metrics"]
    name = HELD_OUT
    if name not in metrics:
        source = config["source"]
        made = source.startswith("testbed")  # a record says with which strength and seed
        name = get_task(config["task"]).dev_set("testbed" if made else source)
    return metrics[name]["accuracy"]


def values_of(config: Mapping, names: Iterable[str]) -> tuple:
    """The values of these settings; None for one that the configuration lacks."""
    return tuple(config.get(name) for name in names)


def sort_key(value: object) -> tuple:
    """Sorts numbers by size; "all" (None) after them, words last."""
    if value is None:
        return 1, 0, ""
    return (0, value, "") if isinstance(value, int | float) else (2, 0, str(value))

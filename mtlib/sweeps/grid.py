"""The runs of a sweep: which records they have, and what they may cost."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtlib.errors import UserError
from mtlib.runs.config import RunConfig
from mtlib.runs.inputs import read_inputs
from mtlib.runs.records import TRAIN_SPANS, examples_used


@dataclass(frozen=True)
class GridRun:
    """A run of a sweep.

    Args:
        config: its configuration.
        file: name of its record; None where the data or the model could not be read to tell.
        examples: training examples of one epoch.
        tests: test examples.
        shipped: whether its record comes with the project, so that it need only be copied.
    """

    config: RunConfig
    file: str | None
    examples: int = 0
    tests: int = 0
    shipped: bool = False


def identify(configs: Sequence[RunConfig]) -> tuple[list[GridRun], UserError | None]:
    """The runs with the names of their records, and the last error where data or a model could not be read."""
    runs, trouble, unreadable = [], None, set()
    for config in configs:
        reads = config.task, config.method, config.source, config.model, config.values().get("masking")
        run = GridRun(config, None)
        if reads not in unreadable:  # once is enough: a server that does not answer takes its time
            try:
                inputs = read_inputs(config)
                name, train = inputs.record_path(Path()).name, examples_used(inputs.sets["train"])
                run = GridRun(config, name, train, _test_rows(inputs.sets), inputs.shipped_record() is not None)
            except UserError as error:
                trouble = error
                unreadable.add(reads)
        runs.append(run)
    return runs, trouble


def expected_seconds(run: GridRun, records: Sequence[dict]) -> float | None:
    """What the run will take if it goes as the records of its task, method and model did; None if there is none.

    The median of their seconds per training example and epoch, and that of their seconds per test example.
    """
    if run.file is None:
        return None
    public = run.config.public()
    training, testing = [], []
    for record in records:
        config, cost = record["config"], record["cost"]
        if record.get("diverged") or any(config[key] != public[key] for key in ("task", "method", "model")):
            continue  # a run that has diverged was not done in full
        training.append(cost["train_seconds"] / (examples_used(record["data"]["train"]) * config["epochs"]))
        testing.append(cost["evaluation_seconds"] / _test_rows(record["data"]))
    if not training:
        return None
    return statistics.median(training) * run.examples * public["epochs"] + statistics.median(testing) * run.tests


def _test_rows(sets: Mapping[str, Mapping]) -> int:
    return sum(description["rows"] for name, description in sets.items() if name not in ("train", TRAIN_SPANS))

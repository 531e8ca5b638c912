"""The runs of a sweep: which records they have, what they may cost, and what tells them apart."""

import itertools
import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtlib.errors import UserError
from mtlib.runs.config import RunConfig, all_settings
from mtlib.runs.inputs import Inputs, read_inputs, reads_spans, record_path, shipped_record
from mtlib.runs.records import TRAIN_SPANS, examples_used

_ALWAYS_SHOWN = ("task", "method", "model", "seed")


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


def numbers_of_runs(text: str, total: int) -> list[int]:
    """ "3,10-12" is [3, 10, 11, 12]; raise `UserError` for other text, and for runs that a sweep of `total` lacks."""
    numbers = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if match is None:
            raise UserError(f"--only is {text!r}; expected numbers of runs, as --dry-run lists them, such as 3,10-12.")
        first, last = int(match[1]), int(match[2] or match[1])
        if not 1 <= first <= last <= total:
            raise UserError(f"--only is {text!r}, but {part.strip()} is not among the runs 1 to {total} of this sweep.")
        numbers += range(first, last + 1)
    return list(dict.fromkeys(numbers))


def identify(configs: Sequence[RunConfig], cache: dict | None = None) -> tuple[list[GridRun], UserError | None]:
    """The runs with the names of their records, and the last error where data or a model could not be read.

    `cache`, passed to several calls, has each set and model read once; see `inputs.read_inputs`.
    """
    cache = {} if cache is None else cache
    identified, trouble, unreadable = [], None, set()
    for config in configs:
        settings = config.values()
        reads = repr([settings[name] for name in ("task", "source", "model", "sets", "splits", "train_size")])
        reads += str(reads_spans(config))
        run, inputs = GridRun(config, None), None
        try:
            if reads not in unreadable:
                inputs = read_inputs(config, cache)
        except UserError as error:
            trouble = error
            unreadable.add(reads)  # once is enough: a server that does not answer takes its time
        try:
            if inputs is not None:
                run = _with_record(config, inputs)
        except UserError as error:  # what this run alone reads: a treebank, word vectors
            trouble = error
        identified.append(run)
    return identified, trouble


def _with_record(config: RunConfig, inputs: Inputs) -> GridRun:
    return GridRun(
        config,
        record_path(config, Path(), inputs).name,
        examples_used(inputs.sets["train"]),
        _test_rows(inputs.sets),
        shipped_record(config, inputs) is not None,
    )


def expected_seconds(run: GridRun, records: Sequence[dict]) -> float | None:
    """What the run will take if it goes as the records of its task, method and model did; None if there is none.

    The median of their seconds per training example and epoch, and that of their seconds per test example. If some of
    the records saw as many examples as the run will, these alone count for the first: short ones spend more of their
    time on what comes before the training (IPT parses a treebank).
    """
    if run.file is None:
        return None
    public = run.config.public()
    training, testing, seen = defaultdict(list), [], run.examples * public["epochs"]
    for record in records:
        config, cost = record["config"], record["cost"]
        if record.get("diverged") or any(config[key] != public[key] for key in ("task", "method", "model")):
            continue  # a run that has diverged was not done in full
        examples = examples_used(record["data"]["train"]) * config["epochs"]
        training[examples].append(cost["train_seconds"] / examples)
        testing.append(cost["evaluation_seconds"] / _test_rows(record["data"]))
    if not training:
        return None
    per_example = training.get(seen) or itertools.chain(*training.values())
    return statistics.median(per_example) * seen + statistics.median(testing) * run.tests


def _test_rows(sets: Mapping[str, Mapping]) -> int:
    return sum(description["rows"] for name, description in sets.items() if name not in ("train", TRAIN_SPANS))


def columns(configs: Sequence[RunConfig]) -> dict[str, list]:
    """What tells the runs of a sweep apart: settings that vary, with every run's value, defaults filled in.

    A setting varies if two runs that read it differ. The others have None.
    """
    resolved = [config.resolved().values() for config in configs]
    written = [config.values() for config in configs]

    def varies(name: str) -> bool:  # as written too: the default sets vary with the task, no need to say so
        values, texts = (
            [settings[name] for settings in several if name in settings] for several in (resolved, written)
        )
        return any(value != values[0] and text != texts[0] for value, text in zip(values, texts, strict=True))

    return {
        name: [settings.get(name) for settings in resolved]
        for name in all_settings()
        if name in _ALWAYS_SHOWN or varies(name)
    }

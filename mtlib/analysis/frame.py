"""Records of any runs as one tidy table, and plain tables of methods and sets."""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from statistics import fmean

import pandas

from mtlib.data.tasks import split_type
from mtlib.runs.config import RunConfig, changed_settings
from mtlib.runs.inputs import HELD_OUT

# in per cent; see `frame`
MEASURES = ("accuracy", "original", "both", "consistency", "balanced", "positive")
_HEADING = ["task", "source", "model"]
_NOT_OF_AN_ARM = (*_HEADING, "method", "seed", "sets", "splits", "settings")


def frame(records: Iterable[dict], arms: Sequence[str] | None = None) -> pandas.DataFrame:
    """A row for each run and evaluation set. Diverged runs have none.

    Args:
        records: of any runs.
        arms: the name of each run's arm. By default its method, with the settings in which runs of
            that method differ.

    Columns: `arm`, the run's settings, `rates` in words, `set`, `kind` ("id" or "ood"); in per cent
    `accuracy`, `majority` (of the best constant answer) and `balanced` (mean over the gold labels).
    In sets of pairs `accuracy` is that of the edited halves; `original`, `both` (all halves) and
    `consistency` (both right) stand beside it. In sentiment, `positive` is the share of positive
    predictions among those that `accuracy` counts. Then `correct` of `n`; `steps`, `seconds` of
    training, `memory_mb`; `identity`.
    """
    records = list(records)
    if arms is None:
        arms = _arm_names(records)
    rows = []
    for arm, record in zip(arms, records, strict=True):
        for set_name, metrics in record["metrics"].items():
            row = _run_columns(arm, record)
            row["set"] = set_name
            row["kind"] = "id" if set_name == HELD_OUT else split_type(set_name)
            rows.append(row | measures(metrics))
    table = pandas.DataFrame(rows)
    expected = ("arm", *_HEADING, "seed", "set", "kind", "rates", *MEASURES, "majority")
    return table.assign(**{name: None for name in expected if name not in table})


def plain_tables(scores: pandas.DataFrame) -> dict[str, pandas.DataFrame]:
    """Tables of any runs by task, source and model: mean ± standard deviation over seeds.

    Args:
        scores: as `frame` makes them.
    """
    # a training has a record for every choice of sets that it was scored on
    scores = scores.drop_duplicates([*_HEADING, "arm", "seed", "set", *MEASURES])
    scores = scores.assign(set=_sets_and_splits(scores))
    tables = {}
    for heading, group in scores.groupby(_HEADING):
        table = group.groupby("arm", sort=False)["seed"].nunique().rename("seeds").to_frame()
        for title, values in values_by_column(
            group, ("accuracy", "original", "consistency")
        ).items():
            table[title] = values.groupby(group["arm"]).agg(_mean_and_deviation)
        tables[" · ".join(heading)] = table.fillna("not run").reset_index()
    return tables


def _sets_and_splits(scores: pandas.DataFrame) -> list[str]:
    """The name of each row's set, with the split where runs were scored on several of them."""
    names = list(scores["set"])
    # a configuration has the split of each set that has several
    chosen = [splits.get(name) for name, splits in zip(names, scores["splits"], strict=True)]
    splits_of = defaultdict(set)
    for name, split in zip(names, chosen, strict=True):
        splits_of[name].add(split)
    return [
        f"{name} ({split})" if len(splits_of[name]) > 1 else name
        for name, split in zip(names, chosen, strict=True)
    ]


def values_by_column(scores: pandas.DataFrame, shown: Sequence[str]) -> dict[str, pandas.Series]:
    """The values of each measure in `shown` on each set that has it.

    The key is the title of a column: the set, and the measure where it is not accuracy.
    """
    columns = {}
    for set_name, measure in itertools.product(dict.fromkeys(scores["set"]), shown):
        values = scores.loc[scores["set"] == set_name, measure].dropna()
        if len(values):
            title = set_name if measure == "accuracy" else f"{set_name} {measure}"
            columns[title] = values
    return columns


def measures(metrics: dict) -> dict:
    """What a run scored on a set, in per cent, and the counts; see `frame`."""
    labels = metrics.get("per_label", {})
    in_record = ("accuracy", "majority", "original", "consistency")
    shares = {name: metrics.get(name) for name in in_record}
    if labels:
        shares["balanced"] = fmean(by_label["accuracy"] for by_label in labels.values())
    if labels.keys() == {"positive", "negative"}:
        false_positives = labels["negative"]["n"] - labels["negative"]["correct"]
        shares["positive"] = (labels["positive"]["correct"] + false_positives) / metrics["n"]
    if "pairs" in metrics:
        correct_halves = metrics["original_correct"] + metrics["correct"]
        shares["both"] = correct_halves / (2 * metrics["pairs"])
    in_per_cent = {name: None if share is None else 100 * share for name, share in shares.items()}
    return in_per_cent | {"correct": metrics.get("correct"), "n": metrics.get("n")}


def _run_columns(arm: str, record: dict) -> dict:
    """What all rows of a run share."""
    config = record["config"]
    cost = record.get("cost", {})
    rates = [config.get("learning_rate"), config.get("classifier_learning_rate")]
    return {
        "arm": arm,
        **config,
        "rates": " / ".join(f"{rate:g}" for rate in rates if rate is not None),
        "steps": cost.get("steps"),
        "seconds": cost.get("train_seconds"),
        "memory_mb": cost.get("peak_memory_mb"),
        "identity": record["identity"],
    }


def _arm_names(records: Sequence[dict]) -> list[str]:
    """The method of each run and, in brackets, the settings in which runs of that method differ."""
    headings = [_heading(record["config"]) for record in records]
    settings_of_runs = [_distinguishing_settings(record["config"]) for record in records]
    comparable: dict[tuple, list[dict]] = defaultdict(list)
    for heading, settings in zip(headings, settings_of_runs, strict=True):
        comparable[heading].append(settings)
    varying = {heading: _varying(group) for heading, group in comparable.items()}
    names = []
    for heading, settings in zip(headings, settings_of_runs, strict=True):
        # in the order of its own settings, whichever run was read first
        shown = {name: value for name, value in settings.items() if name in varying[heading]}
        names.append(_arm_name(heading[-1], shown))
    return names


def _heading(config: dict) -> tuple:
    """What runs that are compared by default agree in; the method stands last."""
    return tuple(config[name] for name in (*_HEADING, "method"))


def _distinguishing_settings(config: dict) -> dict:
    """The settings in which two arms of one method may differ."""
    every_run = [name for name in RunConfig.model_fields if name not in _NOT_OF_AN_ARM]
    return {name: config.get(name) for name in every_run} | changed_settings(config)


def _varying(settings_of_runs: Collection[dict]) -> list[str]:
    """The settings of which these runs have more than one value."""
    names = dict.fromkeys(name for settings in settings_of_runs for name in settings)
    return [name for name in names if len({str(run.get(name)) for run in settings_of_runs}) > 1]


def _arm_name(method: str, settings: dict) -> str:
    if not settings:
        return method
    words = [f"{name} {'all' if value is None else value}" for name, value in settings.items()]
    return f"{method} ({', '.join(words)})"


def _mean_and_deviation(values: pandas.Series) -> str:
    if len(values) == 1:
        return f"{values.mean():.2f}"
    return f"{values.mean():.2f} ± {values.std():.2f}"

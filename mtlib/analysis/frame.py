"""Records of any runs as one tidy table, and the plain table of methods and sets."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean

import pandas

from mtlib.data.tasks import get_task, kind
from mtlib.errors import UserError
from mtlib.methods import METHODS
from mtlib.methods.settings import bias_for
from mtlib.runs.config import RunConfig
from mtlib.runs.inputs import HELD_OUT

MEASURES = ("accuracy", "original", "both", "consistency", "balanced", "positive")  # in per cent; see `frame`
_HEADING = ["task", "source", "model"]
_NOT_OF_AN_ARM = (*_HEADING, "method", "seed", "sets", "splits", "settings")


def frame(records: Iterable[dict], arms: Sequence[str] | None = None) -> pandas.DataFrame:
    """A line for each run and evaluation set; diverged runs have none.

    Args:
        records: of any runs.
        arms: the name of each run's arm; default its method and the settings that tell it from others of that method.

    Columns: `arm`, the run's settings, `rates` in words, `set`, `kind` ("id" or "ood"); in per cent `accuracy` and
    `majority` (the best constant answer's), `balanced` (mean over the gold labels); of sets of pairs, whose accuracy is
    on the edited halves, `original`, `both` (all halves) and `consistency` (both right); in sentiment `positive`, the
    share of these answers among those that `accuracy` counts; `correct` of `n`; `steps`, `seconds` of training,
    `memory_mb`; `identity`.
    """
    records = list(records)
    lines = [
        _run(arm, record) | {"set": name, "kind": "id" if name == HELD_OUT else kind(name)} | measures(metrics)
        for arm, record in zip(arms or _names(records), records, strict=True)
        for name, metrics in record["metrics"].items()
    ]
    table = pandas.DataFrame(lines)
    every = ("arm", *_HEADING, "seed", "set", "kind", "rates", *MEASURES, "majority")
    return table.assign(**{name: None for name in every if name not in table})


def plain_tables(scores: pandas.DataFrame) -> dict[str, pandas.DataFrame]:
    """Of the lines of `frame` a table for each task, source and model: mean ± standard deviation over seeds."""
    if scores.empty:
        raise UserError("no run records found; make some with `python -m mtlib run --out FOLDER`.")
    tables = {}
    for heading, here in scores.groupby(_HEADING):
        table = here.groupby("arm", sort=False)["seed"].nunique().rename("seeds").to_frame()
        for title, values in cells(here, ("accuracy", "original", "consistency")).items():
            table[title] = values.groupby(here["arm"]).agg(_spread)
        tables[" · ".join(heading)] = table.fillna("not run").reset_index()
    return tables


def cells(scores: pandas.DataFrame, measures: Sequence[str]) -> dict[str, pandas.Series]:
    """The values of each measure on each set that has it; the title names the set, and the measure if not accuracy."""
    found = {}
    for name, measure in itertools.product(dict.fromkeys(scores["set"]), measures):
        values = scores.loc[scores["set"] == name, measure].dropna()
        found |= {name if measure == "accuracy" else f"{name} {measure}": values} if len(values) else {}
    return found


def told(config: dict) -> dict:
    """The settings, but for learning rates, that a run's method reads and that differ from their defaults.

    The defaults of alpha and of the bias model are the task's.
    """
    if config["method"] not in METHODS:
        return {}
    task = get_task(config["task"])
    defaults = {name: setting.default for name, setting in METHODS[config["method"]].settings.model_fields.items()}
    defaults |= {"alpha": task.alpha} if "alpha" in defaults else {}
    defaults |= {"bias": bias_for(task.name, "by_task")} if config.get("bias") != "by_task" else {}
    return {
        name: config[name]
        for name, default in defaults.items()
        if config.get(name) not in (None, default) and not name.endswith("learning_rate")
    }


def measures(metrics: dict) -> dict:
    """What a run scored on a set, in per cent, and the counts; see `frame`."""
    labels = metrics.get("per_label", {})
    shares = {name: metrics.get(name) for name in ("accuracy", "majority", "original", "consistency")}
    if labels:
        shares["balanced"] = fmean(of_label["accuracy"] for of_label in labels.values())
    if labels.keys() == {"positive", "negative"}:
        wrong = labels["negative"]["n"] - labels["negative"]["correct"]
        shares["positive"] = (labels["positive"]["correct"] + wrong) / metrics["n"]
    if "pairs" in metrics:
        shares["both"] = (metrics["original_correct"] + metrics["correct"]) / (2 * metrics["pairs"])
    in_per_cent = {name: None if share is None else 100 * share for name, share in shares.items()}
    return in_per_cent | {"correct": metrics.get("correct"), "n": metrics.get("n")}


def _run(arm: str, record: dict) -> dict:
    config, cost = record["config"], record.get("cost", {})
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


def _names(records: Sequence[dict]) -> list[str]:
    """The method of each run and, in brackets, the settings in which runs of that method differ."""
    names, alike = [""] * len(records), defaultdict(dict)
    for row, config in enumerate(record["config"] for record in records):
        settings = {name: config.get(name) for name in RunConfig.model_fields if name not in _NOT_OF_AN_ARM}
        alike[*(config[name] for name in (*_HEADING, "method"))][row] = settings | told(config)
    for (*_, method), runs in alike.items():
        every = dict.fromkeys(name for settings in runs.values() for name in settings)
        varying = [name for name in every if len({str(settings.get(name)) for settings in runs.values()}) > 1]
        for row, own in runs.items():
            words = [f"{name} {'all' if own[name] is None else own[name]}" for name in varying if name in own]
            names[row] = f"{method} ({', '.join(words)})" if words else method
    return names


def _spread(values: pandas.Series) -> str:
    return f"{values.mean():.2f}" + (f" ± {values.std():.2f}" if len(values) > 1 else "")

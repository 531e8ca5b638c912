"""Run records as one tidy table, from which tables, verdicts and figures are made.

Runs that differ in their seed alone are one *row*. A row is named by its method and by the settings that tell it from
the other rows of that method. Precision is such a setting only where a seed was run in two precisions; otherwise it is
what the device had to offer, and runs in bf16 and in float32 are seeds of one row.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import pandas

from mtlib.analysis.row_names import method_of, name_of_row
from mtlib.analysis.statistics import accuracy_by_label, balanced_accuracy
from mtlib.data.tasks import kind
from mtlib.errors import UserError
from mtlib.methods import METHODS

HEADING = ("task", "source", "model")  # told apart in a table's heading rather than in a row's name
_NOT_A_SETTING = (*HEADING, "method", "seed", "sets", "gradient_diagnostics_steps")
# what two rows must share for their difference to be one of methods
_BUDGET = ("train_size", "epochs", "batch_size", "max_length", "eval_max_length", "splits", "hans_rule", "precision")
_RUN = [*HEADING, "method", "settings", "seed", "set"]
_MEASURES = ["accuracy", "original", "consistency"]  # the latter two of contrast sets
_COLUMNS = [*_RUN, "row", "budget", "precision", "kind", *_MEASURES, "balanced", "majority", "by_label", "correct", "n"]


def frame(records: Iterable[dict], name: Callable[[dict], str] | None = None) -> pandas.DataFrame:
    """A line per record and evaluation set; records of diverged runs have no scores and no line.

    Columns: `task`, `source`, `model`, `method`; `settings`, what tells the row from others of its method, as tables
    print it; `row`, its name in figures, or what `name` gives for a record's configuration; `budget`, `precision`,
    `seed`, `set`, `kind`; in per cent `accuracy`, `original`, `consistency`, `balanced`, `majority` and `by_label` (a
    dict); `correct` of `n`. Rows stand in the order of the table of methods.

    Raises:
        UserError: two runs of one row have one seed but other scores, so that no mean over seeds can be made.
    """
    records, lines = list(records), []
    budget = [setting for setting in _BUDGET if setting != "precision" or is_precision_compared(records)]
    for settings, row, record in _named(records):
        config = record["config"]
        run = {
            **{column: config[column] for column in (*HEADING, "method", "seed")},
            "settings": settings,
            "row": name(config) if name else row,
            "budget": tuple(str(config.get(setting)) for setting in budget),
            "precision": config.get("precision"),
        }
        lines += [run | _scores(metrics) | {"set": of, "kind": kind(of)} for of, metrics in record["metrics"].items()]
    scores = pandas.DataFrame(lines, columns=_COLUMNS).drop_duplicates([*_RUN, *_MEASURES])
    for run in scores[scores.duplicated(_RUN)].itertuples():
        raise UserError(
            f"two different runs of {run.method} have seed {run.seed} and the same settings; they differ on {run.set} "
            "(other weights or data under one name, another device?); put them into folders of their own and make a "
            "table of each."
        )
    return scores


def share_changed_at_the_end(records: Iterable[dict]) -> float | None:
    """Mean share of the masked tokens that the filling changes in a run's last epoch; None where nothing is filled.

    Where the log names no epochs, the last five entries of a run count.
    """
    shares = [statistics.fmean(shares) for record in records if (shares := _last_shares_changed(record))]
    return statistics.fmean(shares) if shares else None


def _last_shares_changed(record: dict) -> list[float]:
    entries = [entry for entry in record.get("history", ()) if entry.get("share_changed") is not None]
    if not all("epoch" in entry for entry in entries):
        entries = entries[-5:]
    elif entries:
        stage, begins = entries[-1].get("stage"), math.ceil(entries[-1]["epoch"]) - 1
        entries = [entry for entry in entries if entry.get("stage") == stage and entry["epoch"] > begins]
    return [entry["share_changed"] for entry in entries]


def frame_of_groups(records: Iterable[dict], set_name: str) -> pandas.DataFrame:
    """Like `frame`, a line per record and `group` of one set; HANS's heuristics are split by gold label."""
    lines = [
        {"row": row, "seed": record["config"]["seed"], "group": group, **_scores(metrics)}
        for _, row, record in _named(records)
        for group, metrics in _groups(record["metrics"][set_name]).items()
    ]
    if not lines:
        raise UserError(f"{set_name} has no groups; take a set that has some, for example testbed_overlap or hans.")
    return pandas.DataFrame(lines)


def by_row(records: Iterable[dict]) -> dict[str, list[dict]]:
    """The records of each row, by its name in figures, in their order."""
    groups = defaultdict(list)
    for _, row, record in _named(records):
        groups[row].append(record)
    return {row: groups[row] for row in in_order(groups)}


def in_order(rows: Iterable[str]) -> list[str]:
    """Names of rows in the order of figures: by the table of methods, a method's plain row first."""
    return sorted(set(rows), key=lambda row: (_place(method_of(row)), row))


def common_sets(records: Sequence[dict]) -> list[str]:
    """The evaluation sets that all records have, in the order of the first; diverged runs do not count."""
    scored = [record["metrics"] for record in records if not diverged(record)]
    sets = [name for name in scored[0] if all(name in metrics for metrics in scored)] if scored else []
    if not sets:
        raise UserError("the records have no evaluation set in common; take runs of one task and source.")
    return sets


def is_precision_compared(records: Iterable[dict]) -> bool:
    """Whether two of these runs, seed included, differ in their precision alone."""
    configs, precisions = [record["config"] for record in records if not diverged(record)], defaultdict(set)
    names = {name for config in configs for name in config} - {"precision", "sets", "gradient_diagnostics_steps"}
    for config in configs:
        precisions[tuple(str(_setting(config, name)) for name in names)].add(config.get("precision"))
    return any(len(of_run) > 1 for of_run in precisions.values())


def diverged(record: dict) -> bool:
    """Whether training went to NaN, so that the record has no scores."""
    return bool(record.get("diverged"))


def _named(records: Iterable[dict]) -> list[tuple[str, str, dict]]:
    """`(settings, row, record)` of every run that was scored, in the order of tables."""
    runs, named = _by_settings([record for record in records if not diverged(record)]), []
    for heading, method, settings in sorted(runs, key=_in_order_of_tables):
        siblings = [dict(other) for of, name, other in runs if (of, name) == (heading, method)]
        telling = telling_apart(dict(settings), siblings)
        text = ", ".join(f"{name} {value}" for name, value in telling.items())
        several = [value for i, value in enumerate(heading) if len({of[i] for of, *_ in runs}) > 1]
        row = name_of_row(method, telling, dict(settings), several)
        named += [(text, row, record) for record in runs[heading, method, settings]]
    return named


def _by_settings(records: Sequence[dict]) -> dict[tuple, list[dict]]:
    """Runs that differ in their seed alone, by `(heading, method, settings)`; settings are pairs of name and text."""
    not_settings = {*_NOT_A_SETTING} | (set() if is_precision_compared(records) else {"precision"})
    names = sorted({name for record in records for name in record["config"]} - not_settings)
    runs = defaultdict(list)
    for record in records:
        config = record["config"]
        settings = tuple((name, _as_text(name, _setting(config, name))) for name in names)
        runs[tuple(config[name] for name in HEADING), config["method"], settings].append(record)
    return runs


def _in_order_of_tables(key: tuple) -> tuple:
    heading, method, settings = key
    return heading, _place(method), [_in_order_of_size(text) for _, text in settings]


def telling_apart(settings: dict, siblings: list[dict]) -> dict:
    """The settings in which rows of one method differ.

    Learning rates, and bias models (which come with what is combined), only where nothing else tells the rows apart.
    """
    differing = {name: value for name, value in settings.items() if len({other.get(name) for other in siblings}) > 1}
    without_rates = [name for name in differing if not name.endswith("learning_rate")]
    without_bias = [name for name in without_rates if not name.startswith("bias")]
    for names in (without_bias, without_rates, list(differing)):
        if len({tuple(other.get(name) for name in names) for other in siblings}) == len(siblings):
            return {name: differing[name] for name in names}
    return {}


def method_settings(config: dict) -> dict:
    """What a run's method reads, by name, but for learning rates."""
    names = METHODS[config["method"]].reads if config["method"] in METHODS else ()
    return {name: _setting(config, name) for name in names if not name.endswith("learning_rate")}


def _setting(config: dict, name: str):
    """Its value, or the method's default where the record is older than the setting, or than its use by the method."""
    if config.get(name) is not None or config["method"] not in METHODS:
        return config.get(name)
    return getattr(METHODS[config["method"]].settings, name, None)


def _as_text(name: str, value) -> str:
    return "all" if name == "train_size" and value is None else str(value)


def _in_order_of_size(text: str) -> tuple[bool, float, str]:
    """A key that sorts a setting's values: numbers by size (1000, 4000, 16000), before words."""
    try:
        return False, float(text), ""
    except ValueError:
        return True, 0.0, text


def _place(method: str) -> int:
    """In the order of the paper's tables; a method that the table no longer has comes last."""
    return list(METHODS).index(method) if method in METHODS else len(METHODS)


def _scores(metrics: dict) -> dict:
    in_per_cent = {name: 100 * metrics[name] for name in (*_MEASURES, "majority") if name in metrics}
    counts = {name: metrics.get(name) for name in ("correct", "n")}
    return in_per_cent | counts | {"balanced": balanced_accuracy(metrics), "by_label": accuracy_by_label(metrics)}


def _groups(metrics: dict) -> dict[str, dict]:
    groups = {}
    for name, scores in metrics.get("per_group", {}).items():
        by_label = {f"{name}, gold {label}": cell for label, cell in scores.items() if isinstance(cell, dict)}
        groups |= by_label or {name: scores}
    return groups

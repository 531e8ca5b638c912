"""Comparisons as data: `data/comparisons` says which runs are compared, this module makes every table from it.

    from mtlib.analysis import comparisons
    comparisons.names()
    c = comparisons.load("peers_testbed")
    c.frame(); c.table(); c.differences()

An arm is one way of training: a name and the settings that make it. A run belongs to it if it has these settings and
those of `where`, and if all else that its method reads is at its default (learning rates may be any). Its runs differ
in their seed alone.
"""

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache, cached_property
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mtlib.analysis import examples, intervals, paper
from mtlib.analysis.frame import cells, differing, frame, plain_tables, told  # noqa: F401
from mtlib.analysis.intervals import Difference
from mtlib.data.tasks import TASKS, get_task
from mtlib.errors import UserError, one_of
from mtlib.paths import DATA_DIR
from mtlib.runs.inputs import HELD_OUT
from mtlib.runs.records import probabilities, read_records

BEHIND, CHANCE = 2.0, 2.0  # points: behind the base in distribution; above the majority class or guessing
_RESULTS = DATA_DIR / "results"


class Comparison(BaseModel):
    """Some arms, judged against one of them. The fields are the keys of a comparison in `data/comparisons`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    about: str = Field(description="one line: what is asked, on which data")
    records: tuple[str, ...] = Field(description="names of files in data/results, or paths of files and folders")
    where: dict = Field({}, description="what all runs have; a list: one of these values; an arm may say otherwise")
    arms: dict[str, dict] = Field(description="name and settings of each arm")
    base: str | None = Field(None, description="the arm that the others are compared with")
    changes: dict[str, tuple[str, str]] = Field({}, description="other pairs: what changes, then [with it, without it]")
    tuned: tuple[str, ...] = Field((), description="settings of which the best value counts: on dev data, first seed")
    by: tuple[str, ...] = Field((), description="settings of which every value has a row")
    sets: tuple[str, ...] = Field((), description="evaluation sets that are shown; none: all")
    measures: tuple[str, ...] = Field(("accuracy",), description="columns of the table for each set")
    paired: bool = Field(True, description="differences are paired by seed; false: Welch's interval")
    corrected: bool = Field(True, description="intervals on the m sets out of distribution have level 1 - 0.05 / m")
    obstacles: tuple[str, ...] = Field(("behind",), description="what takes a verdict away; see `_obstacles_of`")
    source: str | None = Field(
        None, description="of the test sets, for what single examples say: testbed, hub, a folder"
    )
    examples: str | None = Field(None, description="a .json in data/results with what they said: see `of_examples`")
    paper: dict[str, str] = Field({}, description="`model`, and the row of the paper's Table III of each arm")

    @model_validator(mode="after")
    def _check_names(self):
        named = {self.base, *(arm for pair in self.changes.values() for arm in pair), *self.paper} - {None, "model"}
        if unknown := named - self.arms.keys():
            raise ValueError(f"{', '.join(sorted(unknown))}: no such arm")
        return self

    @property
    def paths(self) -> list[Path]:
        """Of its records."""
        places = map(Path, self.records)
        return [path if path.suffix or path.is_dir() else _RESULTS / f"{path}.jsonl" for path in places]

    @cached_property
    def runs(self) -> list[tuple[str, dict]]:
        """Arm and record of each run that counts, in the order of the arms, then of `by` and seed."""
        groups: dict[tuple, dict] = {}
        for record in itertools.chain.from_iterable(map(_read, self.paths)):
            config = record["config"]
            if record.get("diverged") or (arm := self._arm_of(config)) is None:
                continue
            key = (config["task"], arm, *_values(config, (*self.by, *self.tuned)), config["seed"])
            other = groups.setdefault(key, record)
            if len(other["metrics"]) == len(record["metrics"]) and other is not record:
                raise UserError(
                    f"comparison {self.name}: two runs of {arm} have seed {config['seed']}; they differ in "
                    f"{', '.join(differing([other['config'], config])) or 'data or model'}. Say which one counts."
                )
            groups[key] = max(other, record, key=lambda run: len(run["metrics"]))  # a run on dev data alone gives way
        return self._at_best(groups)

    def frame(self) -> pandas.DataFrame:
        """A line for each run and set: see `frame`. With `source` or `examples` `auroc` too."""
        arms, records = zip(*self.runs, strict=True) if self.runs else ((), ())
        scores = frame(records, arms)
        scores = scores.assign(**{name: None for name in self.by if name not in scores})
        if self.source is not None:
            scores = scores.join(pandas.DataFrame(map(self._areas, scores["identity"], scores["set"])))
        elif self.examples is not None:
            scores = scores.merge(pandas.DataFrame(self._kept["auroc"]), "left", ["identity", "set"])
        return scores[scores["set"].isin(self.sets)].reset_index(drop=True) if self.sets else scores

    @property
    def tasks(self) -> list[str]:
        return [task for task in TASKS if task in {record["config"]["task"] for _, record in self.runs}]

    def differences(self, measure: str = "accuracy") -> pandas.DataFrame:
        """A line for each set and each arm but the base, then for each of `changes`.

        Columns: `change` (its words, or ""), `task`, `arm`, `base`, those of `by`, `set`, `kind`, `n` (seeds, or pairs
        of them); in points `mean`, `low` and `high`, the interval of `level`; `verdict`, whether it excludes 0;
        `paper`, the paper's difference in points, and `claim`, whether the interval excludes that ("" where the paper
        has none).
        """
        scores = self.frame()
        pairs = [("", arm, self.base) for arm in self.arms if self.base and arm != self.base]
        pairs += [(words, *pair) for words, pair in self.changes.items()]
        lines = []
        for (task, *values), here in scores.groupby(["task", *self.by], sort=False, dropna=False):
            by_arm = {key: runs.set_index("seed")[measure] for key, runs in here.groupby(["arm", "set"])}
            kinds = dict(zip(here["set"], here["kind"], strict=True))
            outside = sum(kind == "ood" for kind in kinds.values())
            obstacle_to = self._obstacles_of(here)
            for (change, arm, base), (name, of) in itertools.product(pairs, kinds.items()):
                if (arm, name) not in by_arm or (base, name) not in by_arm:
                    continue
                level = 1 - 0.05 / outside if self.corrected and not change and of == "ood" else 0.95
                shift = intervals.difference(by_arm[arm, name], by_arm[base, name], self.paired, level)
                obstacle = obstacle_to(arm, base, name) if of == "ood" else ""
                effect = self._effect(arm, base, name) if measure == "accuracy" else None
                lines.append({
                    "change": change, "task": task, "arm": arm, "base": base, **dict(zip(self.by, values, strict=True)),
                    "set": name, "kind": of, **asdict(shift), "level": level,
                    "verdict": intervals.verdict(shift, obstacle),
                    "paper": effect, "claim": intervals.claim(shift, effect, obstacle),
                })  # fmt: skip
        none = [
            "change",
            "task",
            "arm",
            "base",
            *self.by,
            "set",
            "kind",
            "n",
            "mean",
            "low",
            "high",
            "verdict",
            "paper",
        ]
        return pandas.DataFrame(lines, columns=None if lines else none)

    def bootstrap(self, measure: str = "accuracy", draws: int = 1000) -> pandas.DataFrame:
        """Differences to the base with 95 % intervals over examples and seeds, where both arms kept probabilities.

        Needs `source` or `examples`. `measure`: "accuracy" (of the edited halves in sets of pairs) or "both" halves.
        """
        if self.source is None:
            return pandas.DataFrame(self._kept["bootstrap"]).query("measure == @measure").drop(columns="measure")
        runs, lines = self.frame().query("set != @HELD_OUT"), []
        runs = runs.assign(right=list(map(self._right, runs["identity"], runs["set"], [measure] * len(runs))))
        for (name, *values), here in runs.dropna(subset="right").groupby(["set", *self.by], sort=False, dropna=False):
            by_arm = {arm: of_arm.set_index("seed")["right"] for arm, of_arm in here.groupby("arm", sort=False)}
            for arm in [other for other in by_arm if other != self.base and self.base in by_arm]:
                first, second = by_arm[arm], by_arm[self.base]
                first, second = first.align(second, join="inner") if self.paired else (first, second)
                if len(first):
                    shift = examples.bootstrap(np.stack(first), np.stack(second), self.paired, draws)
                    lines.append({"arm": arm, "base": self.base, **dict(zip(self.by, values, strict=True)), "set": name,
                                  "n": min(len(first), len(second)), "items": len(first.iloc[0]),
                                  **dict(zip(("mean", "low", "high"), shift, strict=True))})  # fmt: skip
        return pandas.DataFrame(lines)

    def of_examples(self) -> dict[str, list[dict]]:
        """What needs the test sets, as data that does without them: AUROC of each run, and both bootstraps."""
        scores, columns = self.frame(), ["identity", "set", "auroc", "auroc_original", "auroc_both"]
        areas = scores.dropna(subset="auroc")[columns].round(3)
        shifts = pandas.concat(self.bootstrap(name).assign(measure=name) for name in ("accuracy", "both"))
        shifts = shifts[shifts["n"] >= intervals.FEWEST_SEEDS]
        tables = {"auroc": areas, "bootstrap": shifts.round(3)}
        return {name: json.loads(table.to_json(orient="records")) for name, table in tables.items()}

    @cached_property
    def _kept(self) -> dict[str, list[dict]]:
        return json.loads((_RESULTS / self.examples).read_text())

    def table(self, task: str | None = None) -> pandas.DataFrame:
        """What a person reads, of one task (default: the first): a row for each arm, and for each value of `by`.

        Number of seeds, mean of each measure on each set in per cent; on the sets out of distribution the difference
        to the base with its interval and verdict, and on sets of which the paper has it, its effect and whether the
        interval excludes that.
        """
        task = task or self.tasks[0]
        scores, shifts = self.frame(), self.differences()
        scores, shifts = scores[scores["task"] == task], shifts[(shifts["task"] == task) & (shifts["change"] == "")]
        extra = [name for name in ("rates", "precision") if scores[name].nunique() > 1]
        columns, rows = cells(scores, self.measures), []
        for key, runs in scores.groupby(["arm", *self.by], sort=False, dropna=False):
            row = dict(zip(("arm", *self.by), key, strict=True)) | {"seeds": runs["seed"].nunique()}
            row |= {name: ", ".join(dict.fromkeys(runs[name].astype(str))) for name in extra}
            for title, values in columns.items():
                of_row = values[values.index.isin(runs.index)]
                row[title] = round(fmean(of_row), 1) if len(of_row) else ""
            rows.append(row | self._judged(_at(shifts, ("arm", *self.by), key), _at(scores, self.by, key[1:])))
        table = pandas.DataFrame(rows)
        table[[*self.by]] = table[[*self.by]].map(_value_in_words)
        return table.fillna("")

    def table_of_changes(self, task: str | None = None) -> pandas.DataFrame:
        """A row for each of `changes`: seeds, and on every set the difference in points with its 95 % interval."""
        shifts, rows = self.differences(), []
        shifts = shifts[(shifts["change"] != "") & (shifts["task"] == (task or self.tasks[0]))]
        for words, of_change in shifts.groupby("change", sort=False):
            cells = {line.set: _difference(line).text() for line in of_change.itertuples()}
            rows.append({"change": words, "seeds": of_change["n"].max(), **cells})
        return pandas.DataFrame(rows, columns=None if rows else ["change", "seeds"])

    def _obstacles_of(self, here: pandas.DataFrame) -> Callable[[str, str, str], str]:
        """Why a set out of distribution says nothing about two arms ("" if it does), by the scores of one task.

        "behind": one of them is more than two points behind the base in distribution (at the seeds that both have).
        "untrained": one is at most two points above the majority class there, on the task's dev set.
        "guessing": on this set both lie within two points of the majority class or, in balanced accuracy, of guessing.
        """
        inside, unfit = here[here["kind"] == "id"], {}
        if "behind" in self.obstacles:
            by_arm = inside.groupby(["arm", "seed"])["accuracy"].mean().unstack("arm")
            behind = by_arm.rsub(by_arm[self.base], axis="index").mean() if self.base in by_arm else pandas.Series()
            unfit = dict.fromkeys(behind.index[behind > BEHIND], "behind in distribution")
        means = here.groupby(["set", "arm"])[["accuracy", "majority", "balanced", "guess"]].mean()
        if "untrained" in self.obstacles:
            on_dev = means.loc[inside["set"].iloc[0]]
            idle = on_dev.index[on_dev["accuracy"] - on_dev["majority"] <= CHANCE]
            unfit |= {arm: f"{arm} did not train" for arm in idle}
        near = [(means[a] - means[b]).abs() <= CHANCE for a, b in (("accuracy", "majority"), ("balanced", "guess"))]

        def obstacle(arm: str, base: str, set_name: str) -> str:
            if arm in unfit or base in unfit:
                return unfit.get(arm) or unfit[base]
            guess = any(cells[set_name, arm] and cells[set_name, base] for cells in near)
            return "both only guess" if "guessing" in self.obstacles and guess else ""

        return obstacle

    def _judged(self, shifts: pandas.DataFrame, scores: pandas.DataFrame) -> dict:
        """The cells of a row of `table` that say what comes of the comparison with the base."""
        found, most = {}, scores.groupby("arm")["seed"].nunique()
        for line in shifts.itertuples():
            if line.kind == "ood" or pandas.notna(line.paper):
                found[f"better on {line.set}?"] = _in_words(line, most[[line.arm, line.base]].max())
            if pandas.notna(line.paper):
                found[f"the paper's effect on {line.set}?"] = f"{line.paper:+.1f}: {line.claim}"
        return found

    def _arm_of(self, config: dict) -> str | None:
        settings = told(config)
        for arm, own in self.arms.items():
            wanted = self.where | own
            named = {name for name in settings if name in wanted or name in self.by or name in self.tuned}
            if all(_fits(config.get(name), value) for name, value in wanted.items()) and settings.keys() <= named:
                return arm
        return None

    def _at_best(self, groups: dict[tuple, dict]) -> list[tuple[str, dict]]:
        """The runs in order; of `tuned` settings at the values that are best on dev data with the first seed.

        Of equally good values the lowest. The keys are task, arm, values of `by`, values of `tuned`, seed.
        """
        n, tried = 2 + len(self.by), defaultdict(list)
        for key, record in groups.items() if self.tuned else ():
            tried[key[:n]].append((key[-1], -_dev_accuracy(record), key[n:-1]))
        best = {row: min(found)[-1] for row, found in tried.items()}
        arms, kept = list(self.arms), [key for key in groups if best.get(key[:n], ()) == key[n:-1]]
        kept.sort(key=lambda key: (arms.index(key[1]), [_size(value) for value in key[2:n]], key[-1]))
        return [(key[1], groups[key]) for key in kept]

    def _areas(self, identity: str, set_name: str) -> dict[str, float]:
        chances = probabilities(identity, self.paths).get(set_name) if set_name != HELD_OUT else None
        return {} if chances is None else examples.areas(chances, examples.gold(set_name, self.source))

    def _right(self, identity: str, set_name: str, measure: str) -> np.ndarray | None:
        chances = probabilities(identity, self.paths).get(set_name)
        rows = examples.gold(set_name, self.source) if chances is not None else None
        return None if rows is None else examples.right(set_name, chances, rows, measure)

    def _effect(self, arm: str, base: str, set_name: str) -> float | None:
        if {arm, base} <= self.paper.keys():
            return paper.difference(self.paper[arm], self.paper[base], set_name, self.paper["model"])
        return None


def names() -> dict[str, str]:
    """Every comparison in `data/comparisons` with the line that says what it is about."""
    return {name: entry["about"] for name, entry in _declared().items()}


def load(name: str, records: Sequence[Path | str] = (), source: str | None = None) -> Comparison:
    """A comparison by its name.

    Args:
        name: one of `names()`.
        records: files or folders that take the place of those it names.
        source: where the test sets lie, for what single examples say: "testbed", "hub" or a folder of releases.

    Raises:
        UserError: there is none of this name, or what is declared is no comparison.
    """
    declared = _declared()
    if name not in declared:
        raise UserError(f"comparison is {name!r}; {one_of(name, declared)}")
    given = {"name": name, "source": source} | ({"records": tuple(map(str, records))} if records else {})
    try:
        return Comparison(**declared[name] | given)
    except ValidationError as error:
        raise UserError(f"comparison {name} in data/comparisons: {error}") from error


def _dev_accuracy(record: dict) -> float:
    """On what settings may be chosen by: held-out training examples where there are some, else the task's dev set."""
    metrics, config = record["metrics"], record["config"]
    name = HELD_OUT if HELD_OUT in metrics else get_task(config["task"]).dev_set(config["source"])
    return metrics[name]["accuracy"]


@cache
def _declared() -> dict[str, dict]:
    """Every file of `data/comparisons` maps names to comparisons; a name with a dot holds parts that several share."""
    files = sorted((DATA_DIR / "comparisons").glob("*.yaml"))
    entries = {name: entry for file in files for name, entry in yaml.safe_load(file.read_text()).items()}
    return {name: entry for name, entry in entries.items() if not name.startswith(".")}


def _read(path: Path) -> list[dict]:
    return read_records([path])


def _values(config: dict, names: Sequence[str]) -> tuple:
    return tuple(config.get(name) for name in names)


def _fits(value: object, wanted: object) -> bool:
    return value in wanted if isinstance(wanted, list) else value == wanted


def _value_in_words(value: object) -> str:
    return "all" if pandas.isna(value) else f"{value:g}" if isinstance(value, int | float) else str(value)


def _size(value: object) -> tuple:
    """Sorts numbers by size; "all" (None) after them, words last."""
    return (1, 0, "") if value is None else (0, value, "") if isinstance(value, int | float) else (2, 0, str(value))


def _at(table: pandas.DataFrame, names: Sequence[str], values: Sequence) -> pandas.DataFrame:
    """The lines that have these values; None among them too."""
    for name, value in zip(names, values, strict=True):
        table = table[table[name].isna() if pandas.isna(value) else table[name] == value]
    return table


def _difference(line) -> Difference:
    return Difference(line.mean, line.low, line.high, line.n)


def _in_words(line, seeds: int) -> str:
    """ "+1.2 [-0.3, +2.7]: not significantly different"; with the number of pairs where an arm has more seeds."""
    if line.n < intervals.FEWEST_SEEDS:
        return line.verdict
    return f"{_difference(line).text()}{f' ({line.n} seeds)' if line.n < seeds else ''}: {line.verdict}"

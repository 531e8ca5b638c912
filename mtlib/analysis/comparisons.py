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
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache, cached_property
from pathlib import Path
from statistics import fmean

import pandas
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mtlib.analysis import intervals, paper
from mtlib.analysis.frame import cells, frame, plain_tables, told  # noqa: F401
from mtlib.analysis.intervals import Difference
from mtlib.data.tasks import TASKS, get_task
from mtlib.errors import UserError, one_of
from mtlib.paths import DATA_DIR
from mtlib.runs.inputs import HELD_OUT
from mtlib.runs.records import read_records

BEHIND = 2.0  # points behind the base in distribution, above which nothing is said of an arm elsewhere
_RESULTS = DATA_DIR / "results"


class Comparison(BaseModel):
    """Some arms, judged against one of them. The fields are the keys of a comparison in `data/comparisons`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    about: str = Field(description="one line: what is asked, on which data")
    records: tuple[str, ...] = Field(description="names of files in data/results, or paths of files and folders")
    where: dict = Field({}, description="what all runs have; a list: one of these values; an arm may say otherwise")
    arms: dict[str, dict] = Field(description="name and settings of each arm")
    base: str | None = Field(None, description="the arm that every other one is compared with")
    changes: dict[str, tuple[str, str]] = Field({}, description="other pairs: what changes, then [with it, without it]")
    tuned: tuple[str, ...] = Field((), description="settings of which the best value counts: on dev data, first seed")
    by: tuple[str, ...] = Field((), description="settings of which every value has a row")
    sets: tuple[str, ...] = Field((), description="evaluation sets that are shown; none: all")
    measures: tuple[str, ...] = Field(("accuracy",), description="columns of the table for each set")
    paired: bool = Field(True, description="differences are paired by seed; false: Welch's interval")
    corrected: bool = Field(True, description="intervals on the m sets out of distribution have level 1 - 0.05 / m")
    examples: str | None = Field(None, description="a .json in data/results: what `examples.of_examples` says")
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
        for record in read_records(self.paths):
            config = record["config"]
            if record.get("diverged") or (arm := self._arm_of(config)) is None:
                continue
            key = (config["task"], arm, _values(config, self.by), _values(config, self.tuned), config["seed"])
            other = groups.setdefault(key, record)
            if len(other["metrics"]) == len(record["metrics"]) and other is not record:
                differing = ", ".join(name for name in config if config[name] != other["config"].get(name))
                raise UserError(
                    f"comparison {self.name}: two runs of {arm} have seed {config['seed']}; they differ in "
                    f"{differing or 'data or model'}. Say which one counts."
                )
            groups[key] = max(other, record, key=lambda run: len(run["metrics"]))  # a run on dev data alone gives way
        tried = sorted(groups, key=lambda key: (key[-1], -_dev_accuracy(groups[key]), key[3])) if self.tuned else ()
        best = {key[:3]: key[3] for key in reversed(tried)}  # with the first seed; of equally good values the lowest
        arms, kept = list(self.arms), [key for key in groups if best.get(key[:3], ()) == key[3]]
        kept.sort(key=lambda key: (arms.index(key[1]), [*map(_size, key[2])], key[-1]))
        return [(key[1], groups[key]) for key in kept]

    def frame(self) -> pandas.DataFrame:
        """A line for each run and set: see `frame`. With `examples` `auroc` too."""
        arms, records = zip(*self.runs, strict=True) if self.runs else ((), ())
        scores = frame(records, arms)
        scores = scores.assign(**{name: None for name in self.by if name not in scores})
        if self.examples is not None:
            scores = scores.merge(pandas.DataFrame(self._kept["auroc"]), "left", ["identity", "set"])
        return scores[scores["set"].isin(self.sets)].reset_index(drop=True) if self.sets else scores

    @property
    def tasks(self) -> list[str]:
        return [task for task in TASKS if task in {record["config"]["task"] for _, record in self.runs}]

    def differences(self) -> pandas.DataFrame:
        """Of accuracy: a line for each set and each arm but the base, then for each of `changes`.

        Columns: `change` (its words, or ""), `task`, `arm`, `base`, those of `by`, `set`, `kind`, `n` (seeds, or pairs
        of them); in points `mean`, `low` and `high`, the interval of `level`; `verdict`, whether it excludes 0;
        `paper`, the paper's difference in points, and `claim`, whether the interval excludes that ("" where the paper
        has none). Out of distribution there is no verdict on an arm that is more than two points behind the base in
        distribution, at the seeds that both have.
        """
        pairs = [("", arm, self.base) for arm in self.arms if self.base and arm != self.base]
        pairs += [(words, *pair) for words, pair in self.changes.items()]
        lines = []
        for (task, *values), here in self.frame().groupby(["task", *self.by], sort=False, dropna=False):
            by_arm = {key: runs.set_index("seed")["accuracy"] for key, runs in here.groupby(["arm", "set"])}
            kinds, behind = dict(zip(here["set"], here["kind"], strict=True)), self._behind(here)
            outside = sum(kind == "ood" for kind in kinds.values())
            for (change, arm, base), (name, kind) in itertools.product(pairs, kinds.items()):
                if (arm, name) not in by_arm or (base, name) not in by_arm:
                    continue
                level = 1 - 0.05 / outside if self.corrected and not change and kind == "ood" else 0.95
                shift = intervals.difference(by_arm[arm, name], by_arm[base, name], self.paired, level)
                obstacle = "behind in distribution" if kind == "ood" and behind & {arm, base} else ""
                effect = self._effect(arm, base, name)
                lines.append({
                    "change": change, "task": task, "arm": arm, "base": base, **dict(zip(self.by, values, strict=True)),
                    "set": name, "kind": kind, **asdict(shift), "level": level,
                    "verdict": intervals.verdict(shift, obstacle),
                    "paper": effect, "claim": intervals.claim(shift, effect, obstacle),
                })  # fmt: skip
        columns = ["change", "task", "arm", "base", *self.by, "set", "kind", "mean", "low", "high", "n", "level",
                   "verdict", "paper", "claim"]  # fmt: skip
        return pandas.DataFrame(lines, columns=columns)

    def bootstrap(self, measure: str = "accuracy") -> pandas.DataFrame:
        """Differences to the base with 95 % intervals over examples and seeds, as they are kept in `examples`.

        `measure`: "accuracy" (of the edited halves in sets of pairs) or "both" halves.
        """
        return pandas.DataFrame(self._kept["bootstrap"]).query("measure == @measure").drop(columns="measure")

    def table(self, task: str | None = None) -> pandas.DataFrame:
        """What a person reads, of one task (default: the first): a row for each arm, and for each value of `by`.

        Number of seeds, mean of each measure on each set in per cent; on the sets out of distribution the difference
        to the base with its interval and verdict, and on sets of which the paper has it, its effect and whether the
        interval excludes that.
        """
        task, rows = task or self.tasks[0], ["arm", *self.by]
        scores, shifts = (
            lines[lines["task"] == task].assign(**{name: lines[name].map(_value_in_words) for name in self.by})
            for lines in (self.frame(), self.differences())
        )
        grouped = scores.groupby(rows, sort=False)
        table = grouped["seed"].nunique().rename("seeds").to_frame()
        for name in (name for name in ("rates", "precision") if scores[name].nunique() > 1):
            table[name] = grouped[name].agg(lambda values: ", ".join(dict.fromkeys(values.astype(str))))
        for title, values in cells(scores, self.measures).items():
            table[title] = values.groupby([scores[name] for name in rows]).agg(lambda of: round(fmean(of), 1))
        for line in shifts[shifts["change"] == ""].to_dict("records"):
            row, other = (tuple(line[name] for name in (arm, *self.by)) for arm in ("arm", "base"))
            row, other = (row, other) if self.by else (row[0], other[0])
            if line["kind"] == "ood" or pandas.notna(line["paper"]):
                seeds = table.loc[[row, other], "seeds"].max()
                table.loc[row, f"better on {line['set']}?"] = _in_words(line, seeds)
            if pandas.notna(line["paper"]):
                table.loc[row, f"the paper's effect on {line['set']}?"] = f"{line['paper']:+.1f}: {line['claim']}"
        gaps = table.columns[table.isna().any()]
        return table.assign(**table[gaps].astype(object).fillna("")).reset_index()

    def table_of_changes(self, task: str | None = None) -> pandas.DataFrame:
        """A row for each of `changes` and value of `by`: seeds, on every set the difference with its 95 % interval."""
        shifts, rows = self.differences(), []
        shifts = shifts[(shifts["change"] != "") & (shifts["task"] == (task or self.tasks[0]))]
        for group, of_change in shifts.groupby(["change", *self.by], sort=False, dropna=False):
            by_set = {line["set"]: _difference(line).text() for line in of_change.to_dict("records")}
            named = dict(zip(("change", *self.by), group, strict=True))
            rows.append({**named, "seeds": of_change["n"].max(), **by_set})
        return pandas.DataFrame(rows, columns=None if rows else ["change", "seeds"])

    def _behind(self, here: pandas.DataFrame) -> set[str]:
        """The arms that are too far behind the base in distribution, by the scores of one task."""
        by_arm = here[here["kind"] == "id"].groupby(["arm", "seed"])["accuracy"].mean().unstack("arm")
        if self.base not in by_arm:
            return set()
        behind = by_arm.rsub(by_arm[self.base], axis="index").mean()
        return {*behind.index[behind > BEHIND]}

    def _arm_of(self, config: dict) -> str | None:
        settings = told(config)
        for arm, own in self.arms.items():
            wanted = self.where | own
            named = {name for name in settings if name in wanted or name in self.by or name in self.tuned}
            if all(_fits(config.get(name), value) for name, value in wanted.items()) and settings.keys() <= named:
                return arm
        return None

    def _effect(self, arm: str, base: str, set_name: str) -> float | None:
        if {arm, base} <= self.paper.keys():
            return paper.difference(self.paper[arm], self.paper[base], set_name, self.paper["model"])
        return None

    @cached_property
    def _kept(self) -> dict[str, list[dict]]:
        return json.loads((_RESULTS / self.examples).read_text())


def names() -> dict[str, str]:
    """Every comparison in `data/comparisons` with the line that says what it is about."""
    return {name: entry["about"] for name, entry in _declared().items()}


def load(name: str, records: Sequence[Path | str] = ()) -> Comparison:
    """A comparison by its name.

    Args:
        name: one of `names()`.
        records: files or folders that take the place of those it names.

    Raises:
        UserError: there is none of this name, or what is declared is no comparison.
    """
    declared = _declared()
    if name not in declared:
        raise UserError(f"comparison is {name!r}; {one_of(name, declared)}")
    given = {"name": name} | ({"records": tuple(map(str, records))} if records else {})
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


def _values(config: dict, names: Sequence[str]) -> tuple:
    return tuple(config.get(name) for name in names)


def _fits(value: object, wanted: object) -> bool:
    return value in wanted if isinstance(wanted, list) else value == wanted


def _value_in_words(value: object) -> str:
    return "all" if pandas.isna(value) else f"{value:g}" if isinstance(value, int | float) else str(value)


def _size(value: object) -> tuple:
    """Sorts numbers by size; "all" (None) after them, words last."""
    return (1, 0, "") if value is None else (0, value, "") if isinstance(value, int | float) else (2, 0, str(value))


def _difference(line: dict) -> Difference:
    return Difference(*(line[name] for name in ("mean", "low", "high", "n")))


def _in_words(line: dict, seeds: int) -> str:
    """ "+1.2 [-0.3, +2.7]: not significantly different"; with the number of pairs where an arm has more seeds."""
    if line["n"] < intervals.FEWEST_SEEDS:
        return line["verdict"]
    fewer = f" ({line['n']} seeds)" if line["n"] < seeds else ""
    return f"{_difference(line).text()}{fewer}: {line['verdict']}"

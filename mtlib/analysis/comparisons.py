"""Comparisons as data: `data/comparisons` says which runs are compared, this module makes tables.

    from mtlib.analysis import comparisons
    comparisons.names()
    c = comparisons.load("peers_testbed")
    c.frame(); c.table(); c.differences()

An arm is one way of training: a name and the settings that make it. A run belongs to it if it has
these settings and those of `where`, and if all else that its method reads is at its default
(learning rates may be any). All its runs agree in every setting, in the model's files and in the
data; they differ in their seed, and in what `by` names.
"""

import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path
from statistics import fmean

import pandas
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from mtlib.analysis import intervals, paper
from mtlib.analysis.arms import (
    Run,
    best_tuned,
    by_cell,
    check_alike,
    first_difference,
    one_per_seed,
    sort_key,
    values_of,
)
from mtlib.analysis.frame import MEASURES, frame, values_by_column
from mtlib.analysis.intervals import Difference
from mtlib.analysis.judging import Correction, Judge
from mtlib.data.tasks import TASKS
from mtlib.data.yaml_files import load_yaml
from mtlib.errors import UserError, one_of
from mtlib.methods import METHODS
from mtlib.paths import DATA_DIR
from mtlib.runs.config import all_settings, changed_settings
from mtlib.runs.records import read_records
from mtlib.settings import check_choice

# an arm that is more points behind the base in distribution gets no verdict out of distribution
MAX_BEHIND = 2.0
_RATES = ("learning_rate", "classifier_learning_rate", "mlm_head_learning_rate")
_RESULTS = DATA_DIR / "results"


class Comparison(BaseModel):
    """Some arms, judged against one of them.

    The fields are the keys of a comparison in `data/comparisons`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    about: str = Field(description="one line: what is asked, on which data")
    records: tuple[str, ...] = Field(description="names of files in data/results, or paths")
    where: dict = Field(
        {},
        description="what all runs have; a list: one of these values; an arm may say otherwise",
    )
    arms: dict[str, dict] = Field(description="name and settings of each arm")
    base: str | None = Field(None, description="the arm that every other one is compared with")
    changes: dict[str, tuple[str, str]] = Field(
        {},
        description="other pairs: what changes, then [with it, without it]",
    )
    tuned: tuple[str, ...] = Field(
        (),
        description="settings of which the best value counts: on dev data, mean over seeds",
    )
    by: tuple[str, ...] = Field((), description="settings of which every value has a row")
    measures: tuple[str, ...] = Field(("accuracy",), description="columns of the table, by set")
    paired: bool = Field(True, description="paired by seed; false: Welch's interval")
    correction: Correction = Field(
        "bonferroni",
        description=(
            "for the m sets out of distribution: bonferroni, intervals have level 1 - 0.05 / m; "
            "holm, they have 95 %, and the verdict Holm's correction"
        ),
    )
    level_within: float | None = Field(
        None,
        description="points: an arm this near to the base, by two one-sided tests, is level",
    )
    examples: str | None = Field(
        None,
        description="a .json in data/results that `data/examples.py` made",
    )
    paper: dict[str, str] = Field(
        {},
        description="`model`, and the row of the paper's Table III of each arm",
    )

    @model_validator(mode="after")
    def _check_names(self):
        in_changes = {arm for pair in self.changes.values() for arm in pair}
        named = {self.base, *in_changes, *self.paper} - {None, "model"}
        if unknown := named - self.arms.keys():
            raise ValueError(f"{', '.join(sorted(unknown))}: no such arm")
        return self

    @model_validator(mode="after")
    def _check_settings(self):
        of_arms = itertools.chain.from_iterable(self.arms.values())
        for name in (*self.where, *of_arms, *self.by, *self.tuned):
            if name not in all_settings():
                raise ValueError(f"there is no setting {name!r}; {one_of(name, all_settings())}")
        for settings in (self.where, *self.arms.values()):
            for name, choices in (("method", METHODS), ("task", TASKS)):
                for value in _listed(settings.get(name, [])):
                    check_choice(name, value, choices)
        return self

    @model_validator(mode="after")
    def _check_measures(self):
        if self.examples is None and (without := {*self.measures} - {*MEASURES}):
            raise ValueError(f"{min(without)}: no measure; {one_of(min(without), MEASURES)}")
        return self

    @property
    def paths(self) -> list[Path]:
        """Of its records."""
        return [_records_file(Path(name)) for name in self.records]

    @cached_property
    def runs(self) -> list[tuple[str, dict]]:
        """Arm and record of each run that counts, in the order of the arms, then of `by` and seed.

        Raises:
            UserError: two runs of an arm have the same seed, or are unlike in more than it.
        """
        candidates = self._candidates()
        try:
            found = one_per_seed(candidates)
            if self.tuned:
                found = best_tuned(found)
            check_alike(found)
            self._check_comparable(found)
        except UserError as error:
            raise UserError(f"comparison {self.name}: {error}") from error
        arms = list(self.arms)
        found.sort(key=lambda run: (arms.index(run.arm), [*map(sort_key, run.by)], run.seed))
        return [(run.arm, run.record) for run in found]

    def frame(self) -> pandas.DataFrame:
        """A line for each run and set: see `frame`. With `examples` `auroc` too."""
        arms = [arm for arm, _ in self.runs]
        records = [record for _, record in self.runs]
        scores = frame(records, arms)
        scores = scores.assign(**{name: None for name in self.by if name not in scores})
        if self.examples is not None:
            auroc = pandas.DataFrame(self.example_results["auroc"])
            scores = scores.merge(auroc, how="left", on=["identity", "set"])
        return scores

    @property
    def pairs(self) -> list[tuple[str, str, str]]:
        """What changes ("" for an arm against the base), an arm, and what it is compared with."""
        with_base = [("", arm, self.base) for arm in self.arms if self.base and arm != self.base]
        return with_base + [(words, *pair) for words, pair in self.changes.items()]

    @property
    def tasks(self) -> list[str]:
        found = {record["config"]["task"] for _, record in self.runs}
        return [task for task in TASKS if task in found]

    def _first_task(self) -> str:
        if not self.tasks:
            raise UserError(f"comparison {self.name}: no record belongs to one of its arms.")
        return self.tasks[0]

    @property
    def without_runs(self) -> list[str]:
        """The arms that no record belongs to."""
        found = {arm for arm, _ in self.runs}
        return [arm for arm in self.arms if arm not in found]

    @property
    def of_several_codes(self) -> list[str]:
        """The arms that average runs of several versions of mtlib's code."""
        versions = defaultdict(set)
        for arm, record in self.runs:
            cell = arm, values_of(record["config"], self.by), record["config"]["task"]
            versions[cell].add(record.get("environment", {}).get("code_sha256"))
        return list(dict.fromkeys(cell[0] for cell, hashes in versions.items() if len(hashes) > 1))

    def differences(self) -> pandas.DataFrame:
        """Of accuracy: a line for each set and each arm but the base, then for each of `changes`.

        Columns: `change` (its words, or ""), `task`, `arm`, `base`, those of `by`, `set`, `kind`,
        `n` (seeds, or pairs of them); in points `mean`, `low` and `high`, the interval of `level`;
        `verdict`, whether it excludes 0 (see `correction` and `level_within`); `paper`, the paper's
        difference in points, and `claim`, whether the interval excludes that ("" where the paper
        has none). Out of distribution there is no verdict on an arm that is more than two points
        behind the base in distribution, at the seeds that both have.
        """
        lines = []
        all_scores = self.frame()
        groups = all_scores.groupby(["task", *self.by], sort=False, dropna=False)
        for (task, *values), scores in groups:
            named = dict(zip(self.by, values, strict=True))
            if self.base not in {*scores["arm"]}:
                # a base that does not read the settings of `by` is the same for all their values
                of_base = all_scores[
                    (all_scores["arm"] == self.base) & (all_scores["task"] == task)
                ]
                unset = of_base[[*self.by]].isna().all(axis="columns")
                scores = pandas.concat([of_base[unset], scores])
            lines += [{"task": task} | named | line for line in self._differences_of(scores)]
        columns = ["change", "task", "arm", "base", *self.by, "set", "kind"]
        columns += ["mean", "low", "high", "n", "level", "verdict", "paper", "claim"]
        return pandas.DataFrame(lines, columns=columns)

    @cached_property
    def example_results(self) -> dict[str, list[dict]]:
        """What the file `examples` holds: lines of a table, as "auroc" and as "bootstrap"."""
        return json.loads((_RESULTS / self.examples).read_text())

    def table(self, task: str | None = None) -> pandas.DataFrame:
        """What a person reads, of one task (default: the first).

        A row for each arm, and for each value of `by`: number of seeds, mean of each measure on
        each set in per cent; on the sets out of distribution the difference to the base with its
        interval and verdict, and on sets of which the paper has it, its effect and whether the
        interval excludes that.
        """
        task = task or self._first_task()
        differences = self._of_task(self.differences(), task)
        table = self._means(self._of_task(self.frame(), task))
        for line in differences[differences["change"] == ""].to_dict("records"):
            row = self._row_of(line, "arm")
            base_row = self._row_of(line, "base")
            in_paper = pandas.notna(line["paper"])
            if line["kind"] == "ood" or in_paper:
                rows = [name for name in (row, base_row) if name in table.index]
                seeds = table.loc[rows, "seeds"].max()
                table.loc[row, f"better on {line['set']}?"] = _in_words(line, seeds)
            if in_paper:
                judged = f"{line['paper']:+.1f}: {line['claim']}"
                table.loc[row, f"the paper's effect on {line['set']}?"] = judged
        with_gaps = table.columns[table.isna().any()]
        filled = table[with_gaps].astype(object).fillna("")  # a column of numbers holds no ""
        return table.assign(**filled).reset_index()

    def table_of_changes(self, task: str | None = None) -> pandas.DataFrame:
        """A row for each of `changes` and value of `by`: seeds, differences, 95 % intervals."""
        task = task or self._first_task()
        differences = self.differences()
        of_changes = differences[(differences["change"] != "") & (differences["task"] == task)]
        groups = of_changes.groupby(["change", *self.by], sort=False, dropna=False)
        rows = []
        for values, of_change in groups:
            row = dict(zip(("change", *self.by), values, strict=True))
            row["seeds"] = of_change["n"].max()
            for line in of_change.to_dict("records"):
                row[line["set"]] = _difference(line).text()
            rows.append(row)
        return pandas.DataFrame(rows, columns=None if rows else ["change", "seeds"])

    # --- differences and tables ---

    def _differences_of(self, scores: pandas.DataFrame) -> Iterator[dict]:
        """Of the scores of one cell: a line for each pair of arms and each set that both have."""
        groups = scores.groupby(["arm", "set"])
        accuracies = {key: runs.set_index("seed")["accuracy"] for key, runs in groups}
        kinds = dict(zip(scores["set"], scores["kind"], strict=True))
        behind = self._behind(scores)
        judge = Judge(self.paired, self.correction, self.level_within)
        for change, arm, base in self.pairs:
            common = [name for name in kinds if {(arm, name), (base, name)} <= accuracies.keys()]
            scored = {name: (accuracies[arm, name], accuracies[base, name]) for name in common}
            effects = {name: self._paper_effect(arm, base, name) for name in common}
            obstacle = "behind in distribution" if behind & {arm, base} else ""
            for line in judge.lines(scored, kinds, effects, obstacle, corrected=not change):
                yield {"change": change, "arm": arm, "base": base} | line

    def _of_task(self, lines: pandas.DataFrame, task: str) -> pandas.DataFrame:
        """The lines of one task, with the values of `by` in words."""
        in_words = {name: lines[name].map(_value_in_words) for name in self.by}
        return lines[lines["task"] == task].assign(**in_words)

    def _means(self, scores: pandas.DataFrame) -> pandas.DataFrame:
        """A row for each arm and value of `by`: seeds, rates where they vary, mean measures."""
        rows = ["arm", *self.by]
        grouped = scores.groupby(rows, sort=False)
        table = grouped["seed"].nunique().rename("seeds").to_frame()
        for name in ("rates", "precision"):
            if scores[name].nunique() > 1 or (name == "rates" and self.tuned):
                table[name] = grouped[name].agg(_all_values)
        for title, values in values_by_column(scores, self.measures).items():
            if title in self.by:  # the set of held-out examples is called as the setting
                title = f"{title} accuracy"
            by_row = values.groupby([scores[name] for name in rows])
            table[title] = by_row.agg(lambda accuracies: round(fmean(accuracies), 1))
        return table

    def _row_of(self, line: dict, arm: str) -> tuple | str:
        """The row of a difference's arm or base in the table."""
        return tuple(line[name] for name in (arm, *self.by)) if self.by else line[arm]

    def _behind(self, scores: pandas.DataFrame) -> set[str]:
        """The arms that are too far behind the base in distribution, by the scores of one cell."""
        inside = scores[scores["kind"] == "id"]
        by_arm = inside.groupby(["arm", "seed"])["accuracy"].mean().unstack("arm")
        if self.base not in by_arm:
            return set()
        behind = -by_arm.sub(by_arm[self.base], axis="index").mean()
        return {*behind.index[behind > MAX_BEHIND]}

    # --- runs ---

    def _candidates(self) -> list[Run]:
        """The runs that belong to an arm and did not diverge."""
        found = []
        for record in read_records(self.paths):
            config = record["config"]
            arm = None if record.get("diverged") else self._arm_of(config)
            if arm is not None:
                by = values_of(config, self.by)
                tuned = values_of(config, self.tuned)
                found.append(Run(config["task"], arm, by, tuned, config["seed"], record))
        return found

    def _check_comparable(self, runs: Sequence[Run]) -> None:
        """Raise `UserError` where two arms that are compared differ in what neither of them names.

        Learning rates may differ, and what only one of the two methods reads.
        """
        first_of = {cell: members[0] for cell, members in by_cell(runs).items()}
        cells = dict.fromkeys((run.task, run.by) for run in runs)
        unset = (None,) * len(self.by)  # of a base that does not read these settings
        for (task, by), (_, arm, base) in itertools.product(cells, self.pairs):
            of_arm = first_of.get((task, arm, by))
            of_base = first_of.get((task, base, by)) or first_of.get((task, base, unset))
            if of_arm is None or of_base is None:
                continue
            named = {*self.arms[arm], *self.arms[base], *self.by, *self.tuned, *_RATES}
            if difference := first_difference(of_base.record, of_arm.record, named):
                name, value, other_value = difference
                raise UserError(
                    f"{base} and {arm} cannot be compared: {name} is {value} and {other_value}. "
                    "Name the setting in an arm, or give other records."
                )

    def _arm_of(self, config: dict) -> str | None:
        """The arm that a run of this configuration belongs to, if there is one."""
        changed = changed_settings(config).keys() - {*self.by, *self.tuned}
        for arm, settings in self.arms.items():
            wanted = self.where | settings
            fits = all(_fits(config.get(name), value) for name, value in wanted.items())
            if fits and changed <= wanted.keys():
                return arm
        return None

    def _paper_effect(self, arm: str, base: str, set_name: str) -> float | None:
        """The paper's difference in points, where it has both."""
        rows = self.paper
        if {arm, base} <= rows.keys():
            return paper.difference(rows[arm], rows[base], set_name, rows["model"])
        return None


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
    fields = declared[name] | {"name": name}
    if records:
        fields["records"] = tuple(map(str, records))
    try:
        return Comparison(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join([name, *map(str, first["loc"])])
        raise UserError(f"{place} in data/comparisons: {first['msg']}") from error


@cache
def _declared() -> dict[str, dict]:
    """Every file of `data/comparisons` maps names to comparisons.

    A name with a dot holds parts that several share.
    """
    entries: dict[str, dict] = {}
    file_of: dict[str, str] = {}
    for file in sorted((DATA_DIR / "comparisons").glob("*.yaml")):
        for name, entry in _read_file(file).items():
            if name.startswith("."):
                continue
            if name in entries:
                raise UserError(
                    f"data/comparisons: {name!r} stands twice, in {file_of[name]} and again in "
                    f"{file.name}; rename one of them."
                )
            entries[name] = entry
            file_of[name] = file.name
    return entries


def _read_file(file: Path) -> dict[str, dict]:
    try:
        return load_yaml(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise UserError(f"data/comparisons/{file.name} cannot be read: {reason}.") from error


def _records_file(path: Path) -> Path:
    return path if path.suffix or path.is_dir() else _RESULTS / f"{path}.jsonl.gz"


def _fits(value: object, wanted: object) -> bool:
    return value in _listed(wanted)


def _listed(wanted: object) -> list:
    return wanted if isinstance(wanted, list) else [wanted]


def _all_values(values: pandas.Series) -> str:
    return ", ".join(dict.fromkeys(values.astype(str)))


def _value_in_words(value: object) -> str:
    if pandas.isna(value):
        return "all"
    return f"{value:g}" if isinstance(value, int | float) else str(value)


def _difference(line: dict) -> Difference:
    return Difference(*(line[name] for name in ("mean", "low", "high", "n")))


def _in_words(line: dict, seeds: int) -> str:
    """ "+1.2 [-0.3, +2.7]: not significantly different".

    With the number of pairs where an arm has more seeds.
    """
    if line["n"] < intervals.FEWEST_SEEDS:
        return line["verdict"]
    fewer = f" ({line['n']} seeds)" if line["n"] < seeds else ""
    return f"{_difference(line).text()}{fewer}: {line['verdict']}"

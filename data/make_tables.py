"""The tables of the project's Markdown pages, made from the records.

    python -m data.make_tables

In a page a table stands between two comments. The first one says, in YAML, what it shows:

    <!-- table
    comparison: base
    arms: {fine-tuning: fine-tuning, Mask-tuning: equation 1}
    columns: {sst2: SST-2, "better on imdb_contrast?": IMDB contrast}
    -->
    ...
    <!-- end -->

`arms` and `columns` choose rows and columns of `Comparison.table` and rename them. Where that table
has a row for each value of a setting, `columns` maps the value to its columns.

With `measures` in place of `columns`, a map of "set measure" to words, arms are columns and
measures are rows. Each difference to the first arm has Welch's 95 % interval and, where a bootstrap
is kept, the one over items and seeds.

With `claims: report` each row is a claim of the paper and what came of it.

With `costs`, a list of comparisons and what they are called, each row is one of them (for each
number of training examples that it has), and fine-tuning and Mask-tuning are columns. With
`hours: all` the rows are the machines of all records.

With `leans`, a map of data sets to a map of "marked" and "other" to words, each of these groups of
suspects is a row, and `arms` are columns: the mean, the range of seeds, and that of words. The row
"auroc" says how well `leans` tells marked suspects from the others.

With `own_data`, which maps each data set of `data/results/own_data.csv` to a map of "set rows" to
words, these are the rows, and `recipes` are the columns.

With `remedies`, a map of the arms of `data/results/remedies.csv` to words, these are the rows, as
measured on `data`. An arm with several settings stands at the one that is best on `tuning`, which
is not shown.

With `base_sized`, which maps an arm of `data/results/brands_base.jsonl` to a map of arms to words,
these are the rows: the mean over seeds and their range on the sets of `columns`, and the difference
to the arm that they are mapped from on the set `differ_on`.
"""

import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pandas
import yaml

from data import followed
from mtlib.analysis import comparisons, intervals
from mtlib.analysis.claims import table as claim_table
from mtlib.paths import DATA_DIR
from mtlib.runs.records import read_records

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "data/README.md", "data/results/REPORT.md")
_EPOCHS = 3  # of `train`, where a record of `brands_base` names none
_BLOCK = re.compile(r"(<!-- table\n)(.*?)(-->\n)(?:.*?)(<!-- end -->)", flags=re.S)


def filled(page: str) -> str:
    """The page with each of its tables made anew."""
    return _BLOCK.sub(_made_anew, page)


def _made_anew(block: re.Match) -> str:
    start, spec, stop, end = block.groups()
    return f"{start}{spec}{stop}\n{_markdown(_table(yaml.safe_load(spec)))}\n\n{end}"


def _table(spec: dict) -> pandas.DataFrame:
    if "claims" in spec:
        return claim_table(whole=False)
    if "costs" in spec:
        return pandas.DataFrame(_costs(spec["costs"]))
    if "hours" in spec:
        return _hours()
    if "leans" in spec:
        return _leans(**spec)
    if "own_data" in spec:
        return _own_data(**spec)
    if "base_sized" in spec:
        return _base_sized(**spec)
    if "remedies" in spec:
        return _remedies(**spec)
    if "measures" in spec:
        return _measures(**spec)
    return _arms(**spec)


def _markdown(table: pandas.DataFrame) -> str:
    rows = [list(table.columns), ["---"] * len(table.columns)]
    rows += table.astype(str).to_numpy().tolist()
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _arms(
    comparison: str,
    arms: dict,
    columns: dict,
    task: str | None = None,
) -> pandas.DataFrame:
    """Arms as rows: chosen rows and columns of `Comparison.table`."""
    compared = comparisons.load(comparison)
    table = compared.table(task).set_index("arm")
    if compared.by:
        chosen = _columns_by_value(table, compared.by[0], arms, columns)
    else:
        chosen = table.loc[list(arms), list(columns)].rename(columns=columns)
    return chosen.rename(index=arms).reset_index().astype(object).fillna("")


def _columns_by_value(
    table: pandas.DataFrame, setting: str, arms: dict, columns: dict
) -> pandas.DataFrame:
    """Side by side the chosen columns of the rows with each value of a setting."""
    parts = []
    for value, columns_of_value in columns.items():
        part = table[table[setting] == value][list(columns_of_value)]
        parts.append(part.rename(columns=columns_of_value).reindex(list(arms)))
    return pandas.concat(parts, axis="columns")


def _measures(comparison: str, arms: dict, measures: dict) -> pandas.DataFrame:
    """Arms as columns: a row for each set and measure."""
    compared = comparisons.load(comparison)
    scores = compared.frame()
    rows = []
    for set_and_measure, words in measures.items():
        set_name, measure = set_and_measure.split()
        on_set = scores[scores["set"] == set_name]
        by_arm = on_set.pivot(index="seed", columns="arm", values=measure)
        kept = _kept_intervals(compared, set_name, measure)
        rows.append({"in per cent": words} | _against_first(by_arm, arms, kept))
    return pandas.DataFrame(rows).rename(columns=str.strip)


def _kept_intervals(
    compared: comparisons.Comparison,
    set_name: str,
    measure: str,
) -> dict[str, str]:
    """By arm: the interval over items and seeds, where one is kept."""
    if measure not in ("accuracy", "both"):
        return {}
    kept = pandas.DataFrame(compared.example_results["bootstrap"])
    kept = kept[(kept["measure"] == measure) & (kept["set"] == set_name)]
    return {row.arm: f"[{row.low:+.1f}, {row.high:+.1f}]" for row in kept.itertuples()}


def _costs(costs: list[dict]) -> Iterator[dict]:
    """A row for each comparison, task and number of training examples: time and memory.

    Args:
        costs: for each comparison its name (`comparison`), what its rows are called (`words`), and
            a condition on the runs (`where`, as of `DataFrame.query`).
    """
    for entry in costs:
        runs = comparisons.load(entry["comparison"]).frame().drop_duplicates("identity")
        runs = runs.query(entry["where"])
        words = entry["words"]
        for steps, runs_of_size in runs.groupby("steps"):
            means = runs_of_size.groupby("arm")[["seconds", "memory_mb"]].mean()
            seconds = means["seconds"]
            yield {
                "runs": words,
                "steps": f"{steps:,}",
                "a step, ms": _pair(1000 * seconds / steps, digits=0),
                "minutes": _pair(seconds / 60),
                "memory, GB": _pair(means["memory_mb"] * 2**20 / 1e9),
            }
            words = ""  # further rows of the comparison need no name


def _hours() -> pandas.DataFrame:
    """How long all recorded trainings and their evaluations took, by machine."""
    files = sorted((DATA_DIR / "results").rglob("*.jsonl.gz"))
    in_all_files = chain.from_iterable(read_records([file]) for file in files)
    # some lie in several files
    records = {(record["identity"], record["started"]): record for record in in_all_files}
    runs = pandas.DataFrame(
        {
            "machine": record["environment"]["device"],
            "trainings": 1,
            "process-hours": _seconds(record["cost"]) / 3600,
        }
        for record in records.values()
    )
    by_machine = runs.groupby("machine", as_index=False).sum()
    return by_machine.round({"process-hours": 1})


def _seconds(cost: dict) -> float:
    """Of a run's training and evaluation."""
    return cost["train_seconds"] + cost["evaluation_seconds"]


def _pair(by_arm: pandas.Series, digits: int = 1) -> str:
    """Fine-tuning's number, then Mask-tuning's."""
    return f"{by_arm['fine-tuning']:.{digits}f}; {by_arm['Mask-tuning']:.{digits}f}"


def _own_data(own_data: dict, recipes: dict) -> pandas.DataFrame:
    """Recipes as columns: a row for each part of a test set."""
    scores = pandas.read_csv(DATA_DIR / "results" / "own_data.csv")
    scores = scores.assign(part=scores["set"] + " " + scores["rows"])
    rows = []
    for data, parts in own_data.items():
        for part, words in parts.items():
            on_part = scores[(scores["data"] == data) & (scores["part"] == part)]
            by_recipe = on_part.pivot(index="seed", columns="recipe", values="accuracy")
            row = {"in per cent": words, "rows": on_part["n"].iloc[0]}
            rows.append(row | _against_first(by_recipe, recipes))
    return pandas.DataFrame(rows).rename(columns=str.strip)


def _remedies(remedies: dict, data: str, base: str, columns: dict) -> pandas.DataFrame:
    """A row for each arm: accuracy on sets of the data, and its difference to `base`."""
    records = pandas.read_csv(DATA_DIR / "results" / "remedies.csv", keep_default_na=False)
    records = records[records["data"] == data]
    scores = {arm: _at_its_best(records[records["arm"] == arm]) for arm in remedies}
    rows = []
    for arm, words in remedies.items():
        row = {"arm": words}
        for set_name, column in columns.items():
            accuracy = scores[arm][set_name]
            row[column] = f"{accuracy.mean():.1f}"
            shift = intervals.difference(accuracy, scores[base][set_name], paired=False)
            row["difference" + " " * len(row)] = "" if arm == base else shift.text()
        rows.append(row)
    return pandas.DataFrame(rows).rename(columns=str.strip)


def _at_its_best(of_arm: pandas.DataFrame) -> pandas.DataFrame:
    """Accuracy by seed and set, at the setting with the best mean on `tuning`."""
    tuned_on = of_arm[of_arm["set"] == "tuning"].groupby("setting")["accuracy"].mean()
    best = of_arm[of_arm["setting"] == tuned_on.idxmax()]
    return best.pivot(index="seed", columns="set", values="accuracy")


def _base_sized(base_sized: dict, differ_on: str, columns: dict) -> pandas.DataFrame:
    """A row for each arm of the base-sized model on the example."""
    scores = _base_sized_scores()
    rows = []
    for base, arms in base_sized.items():
        base_scores = scores[(scores["arm"] == base) & (scores["set"] == differ_on)]
        base_accuracy = base_scores.set_index("seed")["accuracy"]
        for arm, words in arms.items():
            of_arm = scores[scores["arm"] == arm]
            by_set = of_arm.pivot(index="seed", columns="set", values="accuracy")
            row = {"arm": words}
            for set_name, column in columns.items():
                row[column] = _mean_and_range(by_set[set_name])
            shift = intervals.difference(by_set[differ_on], base_accuracy, paired=False)
            row["difference"] = "" if arm == base else shift.text()
            rows.append(row)
    return pandas.DataFrame(rows)


def _mean_and_range(accuracy: pandas.Series) -> str:
    return f"{accuracy.mean():.1f} ({accuracy.min():.1f} to {accuracy.max():.1f})"


def _base_sized_scores() -> pandas.DataFrame:
    """Accuracy in per cent by arm (such as "masks left in, 3 epochs"), seed and set.

    A set that was also read with words masked is a further arm: "fine-tuning, words masked, 3
    epochs".
    """
    lines = []
    for line in (DATA_DIR / "results" / "brands_base.jsonl").read_text().splitlines():
        record = json.loads(line)
        for measured, share in record["accuracy"].items():
            set_name, comma, how = measured.partition(",")
            epochs = record["arguments"].get("epochs", _EPOCHS)
            arm = f"{record['arm']}{comma}{how}, {epochs:g} epochs"
            lines.append((arm, record["seed"], set_name, 100 * share))
    return pandas.DataFrame(lines, columns=["arm", "seed", "set", "accuracy"])


def _leans(leans: dict, arms: dict) -> pandas.DataFrame:
    """A row for each group of suspects of a data set."""
    lines = followed.frame()
    rows = []
    for data, groups in leans.items():
        for group, words in groups.items():
            row = {"points (following minus control)": words}
            for arm, name in arms.items():
                arm_lines = lines[(lines["data"] == data) & (lines["arm"] == arm)]
                row[name] = _followed(arm_lines, group)
            rows.append(row)
    return pandas.DataFrame(rows)


def _followed(lines: pandas.DataFrame, group: str) -> str:
    """What an arm follows: the mean over seeds, their range, and that of the words' means."""
    if lines.empty:
        return ""
    if group == "auroc":
        by_seed = followed.auroc_by_seed(lines)
        return f"{by_seed.mean():.0f} ({_seeds(by_seed)})"
    group_lines = lines[lines["group"] == group]
    by_seed = followed.by_seed(group_lines)
    by_word = followed.by_word(group_lines)["leans"]
    mean = round(by_seed.mean())  # a whole number, so that there is no -0
    return f"{mean} ({_seeds(by_seed)}; words {_range(by_word)})"


def _seeds(values: pandas.Series) -> str:
    return "one seed" if len(values) == 1 else f"seeds {_range(values)}"


def _range(values: pandas.Series) -> str:
    return f"{values.min():.0f} to {values.max():.0f}"


def _against_first(
    scores: pandas.DataFrame,
    arms: dict,
    kept_intervals: dict | None = None,
) -> dict[str, str]:
    """The cells of a row: each arm's mean over seeds, and its difference to the first arm.

    An arm without runs has empty cells. Blanks at their ends tell repeated column titles apart.

    Args:
        scores: `(seeds, arms)`.
        arms: columns of `scores`, and what the table calls them.
        kept_intervals: by arm, for a further column; None: there is no such column.
    """
    base, *others = arms
    row = {arms[base]: f"{scores[base].mean():.1f}"}
    for arm in others:
        mean = difference = ""
        if arm in scores:
            mean = f"{scores[arm].mean():.1f}"
            difference = intervals.difference(scores[arm], scores[base], paired=False).text()
        row[arms[arm]] = mean
        row["difference" + " " * len(row)] = difference
        if kept_intervals is not None:
            row["items and seeds" + " " * len(row)] = kept_intervals.get(arm, "")
    return row


if __name__ == "__main__":
    for name in PAGES:
        path = ROOT / name
        path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")

"""The tables that stood on the results pages before the rebuilding, cell for cell.

`tables.json` has them as they were printed, by page and part; `tables_now.yaml` says which comparisons have them now,
and which arms and changes have another name.
"""

import json
import re
from pathlib import Path
from statistics import fmean

import pandas
import pytest
import yaml

from mtlib.analysis import comparisons
from mtlib.analysis.intervals import Difference

PRINTED = json.loads((Path(__file__).parent / "tables.json").read_text())
NOW = yaml.safe_load((Path(__file__).parent / "tables_now.yaml").read_text())
HERE, RENAMED, RATES = NOW["here"], NOW["renamed"], NOW["rates"]
CASES = {
    f"{part}, {place}": (part, place) for part, tables in HERE.items() for place, here in enumerate(tables) if here
}


def renamed(name: str, comparison: str) -> str:
    known = RENAMED.get(f"{comparison}: {name}", RENAMED.get(name, name))
    return known.replace("(reconstruction)", "").replace("meta-learned ,", "meta-learned,").strip()


def key_of(row: dict, comparison: str) -> tuple:
    """Arm and size of a row."""
    name = next(iter(row.values()))
    if size := re.search(r"train_size (\w+)", name):
        size, name = size[1], re.sub(r"\(train_size \w+\)|train_size \w+, ", "", name).strip()
        return renamed(name, comparison), float("nan") if size == "all" else int(size)
    return (renamed(name, comparison).format(rates=RATES.get(row.get("rates"))),)


def lines(table: pandas.DataFrame, by: tuple[str, ...]) -> dict[tuple, dict]:
    return {
        tuple(row[name] if row[name] != "" else None for name in ("arm", *by)): row for row in table.to_dict("records")
    }


def at(table: pandas.DataFrame, names: tuple, values: tuple) -> pandas.DataFrame:
    """The lines that have these values; None among them too."""
    for name, value in zip(names, values, strict=True):
        table = table[table[name].isna() if pandas.isna(value) else table[name] == value]
    return table


def shown(value) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


@pytest.mark.parametrize("case", CASES)
def test_every_cell_is_as_it_was(case):
    part, place = CASES[case]
    printed, (name, task) = PRINTED[part][place], HERE[part][place].split()
    rows = [dict(zip(printed["columns"], row, strict=True)) for row in printed["rows"]]
    comparison = comparisons.load(name)
    check = {"change": changes, "method": with_deviations if "n" in printed["columns"] else judged, "": asked}
    checked = check.get(printed["columns"][0], judged)(comparison, task, rows)
    assert checked == sum(bool(cell) for row in printed["rows"] for cell in row[1:])


def judged(comparison: comparisons.Comparison, task: str, rows: list[dict]) -> int:
    """Means, and verdicts against the base."""
    here, checked = lines(comparison.table(task), comparison.by), 0
    for row in rows:
        line = here[key_of(row, comparison.name)]
        for column, text in list(row.items())[1:]:
            assert shown(line.get(column, "")) == text, (row, column)
            checked += bool(text)
    return checked


def changes(comparison: comparisons.Comparison, task: str, rows: list[dict]) -> int:
    here = comparison.table_of_changes(task).set_index("change").to_dict("index")
    for row in rows:
        line = here[renamed(row.pop("change"), comparison.name)]
        assert {name: str(line[name]) for name in row} == row
    return sum(map(len, rows))


def with_deviations(comparison: comparisons.Comparison, task: str, rows: list[dict]) -> int:
    """Mean ± standard deviation, and below it the difference to the base with its 95 % interval."""
    scores, checked, key = comparison.frame(), 0, ()
    plain = comparison.model_copy(update={"corrected": False})
    shifts = {measure: plain.differences(measure) for measure in ("accuracy", "original", "consistency")}
    for row in rows:
        is_difference = row["method"].startswith("·")
        key = key if is_difference else key_of(row, comparison.name)
        for column, text in list(row.items())[1:]:
            set_name, _, measure = column.partition(" ")
            table = shifts[measure or "accuracy"] if is_difference else scores
            of = at(table, ("task", "arm", *comparison.by), (task, *key))
            if is_difference and text:
                (line,) = of[(of["set"] == set_name) & (of["change"] == "")].itertuples()
                assert Difference(line.mean, line.low, line.high, line.n).text(2) == text
            elif column == "n":
                assert is_difference or of["seed"].nunique() == int(text)
            elif text:
                values = of.loc[of["set"] == set_name, measure or "accuracy"]
                assert f"{fmean(values):.2f} ± {values.std():.2f}" == text
            checked += bool(text)
    return checked


def asked(comparison: comparisons.Comparison, task: str, rows: list[dict]) -> int:
    """The study's questions: differences with uncorrected intervals, whatever verdict stood beside them."""
    shifts = comparison.model_copy(update={"corrected": False}).differences()
    for row in rows:
        arm, _, base = row["compared"].partition(" - ")
        for name, text in list(row.items())[3:]:
            if found := re.search(r"[+-][\d.]+ \[.*\]", text):
                of = at(shifts, ("arm", "base", "set"), (renamed(arm, "study"), renamed(base, "study"), name))
                assert found[0] in {
                    Difference(line.mean, line.low, line.high, line.n).text() for line in of.itertuples()
                }
    return sum(bool(cell) for row in rows for cell in list(row.values())[1:])

"""The tables of our Markdown pages, each made anew from the records.

In a page a table stands between two comments; the first says, in YAML, what it shows:

    <!-- table
    comparison: base
    arms: {fine-tuning: fine-tuning, Mask-tuning: equation 1}
    columns: {sst2: SST-2, "better on imdb_contrast?": IMDB contrast}
    -->
    ...
    <!-- end -->

`arms` and `columns` choose rows and columns of `Comparison.table` and rename them; where that has a row for each value
of a setting, `columns` maps the value to its columns. With `measures`, a map of "set measure" to words, in place of
`columns` the arms are columns and the measures rows, with Welch's 95 % interval of each difference to the first arm
and, where a bootstrap is kept, the one over items and seeds. With `claims: report` a row is a claim of the paper's and
what came of it (`mtlib.analysis.claims`). With `own_data`, for each data set of `data/results/own_data.csv` a map of
"set rows" to words, these are rows and `recipes` columns.
"""

import re

import pandas
import yaml

from mtlib.analysis import comparisons, intervals
from mtlib.analysis.claims import table as claim_table
from mtlib.paths import DATA_DIR

_BLOCK = re.compile(r"(<!-- table\n)(.*?)(-->\n)(?:.*?)(<!-- end -->)", flags=re.S)


def filled(page: str) -> str:
    """The page with each of its tables made anew."""
    return _BLOCK.sub(lambda found: f"{found[1]}{found[2]}{found[3]}\n{_markdown(found[2])}\n\n{found[4]}", page)


def _markdown(spec: str) -> str:
    content = yaml.safe_load(spec)
    makers = {"claims": _of_claims, "own_data": _of_own_data, "measures": _of_measures, "columns": _chosen}
    table = next(make for key, make in makers.items() if key in content)(**content)
    lines = [list(table.columns), ["---"] * len(table.columns), *table.astype(str).to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _of_claims(claims: str) -> pandas.DataFrame:
    return claim_table(whole=False)


def _chosen(comparison: str, arms: dict, columns: dict, task: str | None = None) -> pandas.DataFrame:
    compared = comparisons.load(comparison)
    table = compared.table(task).set_index("arm")
    if compared.by:
        parts = [table[table[compared.by[0]] == value][list(own)].rename(columns=own) for value, own in columns.items()]
        table = pandas.concat([part.reindex(list(arms)) for part in parts], axis="columns")
    else:
        table = table.loc[list(arms), list(columns)].rename(columns=columns)
    return table.rename(index=arms).reset_index().fillna("")


def _of_measures(comparison: str, arms: dict, measures: dict) -> pandas.DataFrame:
    compared, rows = comparisons.load(comparison), []
    scores = compared.frame()
    for place, words in measures.items():
        name, measure = place.split()
        values = scores[scores["set"] == name].pivot(index="seed", columns="arm", values=measure)
        kept = compared.bootstrap(measure) if measure in ("accuracy", "both") else pandas.DataFrame({"set": []})
        kept = kept[kept["set"] == name]
        ends = {line.arm: f"[{line.low:+.1f}, {line.high:+.1f}]" for line in kept.itertuples()}
        rows.append({"in per cent": words} | _against_first(values, arms, ends))
    return pandas.DataFrame(rows).rename(columns=str.strip)


def _of_own_data(own_data: dict, recipes: dict) -> pandas.DataFrame:
    scores, rows = pandas.read_csv(DATA_DIR / "results" / "own_data.csv"), []
    scores = scores.assign(place=scores["set"] + " " + scores["rows"])
    for data, place, words in ((data, *place) for data, places in own_data.items() for place in places.items()):
        here = scores[(scores["data"] == data) & (scores["place"] == place)]
        values = here.pivot(index="seed", columns="recipe", values="accuracy")
        rows.append({"in per cent": words, "rows": here["n"].iloc[0]} | _against_first(values, recipes))
    return pandas.DataFrame(rows).rename(columns=str.strip)


def _against_first(values: pandas.DataFrame, arms: dict, ends: dict | None = None) -> dict[str, str]:
    """Cells: each arm's mean over seeds, where there are runs, then its difference to the first one's, and `ends`."""
    base, *others = arms
    row = {arms[base]: f"{values[base].mean():.1f}"}
    for arm in others:
        ran = arm in values
        row[arms[arm]] = f"{values[arm].mean():.1f}" if ran else ""
        difference = intervals.difference(values[arm], values[base], paired=False).text() if ran else ""
        row["difference" + " " * len(row)] = difference
        if ends is not None:
            row["items and seeds" + " " * len(row)] = ends.get(arm, "")
    return row

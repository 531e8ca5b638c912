"""The paper's Tables I and III (`data/paper`), and what their own numbers say about them."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import pandas
from scipy import stats

from mtlib.methods import METHODS
from mtlib.paths import DATA_DIR

# the paper's data sets, as its columns name them, in ours; where it leaves open which one, the likeliest stands first
OUR_SETS = {
    "SST-2": ("sst2",),
    "IMDB-Cont": ("imdb_contrast",),
    "IMDB-CAD": ("imdb_cad",),
    "MNLI-m": ("mnli_m",),
    "MNLI-mm": ("mnli_mm",),
    "HANS": ("hans",),
    "AdvNLI": ("anli_r1", "anli_r2", "anli_r3"),
    "QQP": ("qqp",),
    "PAWS": ("paws_qqp", "paws_wiki"),
}
_OUR_NAMES = {method.paper: name for name, method in METHODS.items() if method.paper} | {"Fine-tuning": "fine_tuning"}


@cache
def _read() -> pandas.DataFrame:
    parts = [pandas.read_csv(DATA_DIR / "paper" / name) for name in ("table1.csv", "table3.csv")]
    cells = pandas.concat(parts, ignore_index=True)
    return cells.assign(method=cells["method"].replace(_OUR_NAMES))


def values() -> pandas.DataFrame:
    """Every cell of both tables: `table`, `model`, `method` (our name if any), `dataset`, `split`, `value`, `std`."""
    return _read().copy()


def grid(table: str) -> pandas.DataFrame:
    """`value` with a row per model and method and a column per data set, in the paper's order; NaN for none."""
    return _wide(table, "value")


def printed(table: str) -> pandas.DataFrame:
    """`grid` as the paper prints it: "92.43", "93.11 ± 0.1", "" for an empty cell."""
    values, deviations = _wide(table, "value"), _wide(table, "std")
    texts = values.map("{:.2f}".format, na_action="ignore").fillna("")
    return texts + deviations.map(" ± {:g}".format, na_action="ignore").fillna("")


def _wide(table: str, column: str) -> pandas.DataFrame:
    cells = _read()[_read()["table"] == table]
    rows = cells[["model", "method"]].drop_duplicates()
    return cells.pivot(index=["model", "method"], columns="dataset", values=column).loc[
        list(rows.itertuples(index=False, name=None)), list(OUR_SETS)
    ]


def disagreements() -> pandas.DataFrame:
    """Cells that Tables I and III both hold, with another value or another ±."""
    cells = _read()
    keys = ["model", "method", "dataset"]
    both = cells[cells["table"] == "I"].merge(cells[cells["table"] == "III"], on=keys, suffixes=(" in I", " in III"))
    other_std = both["std in I"].fillna(-1) != both["std in III"].fillna(-1)
    differs = (both["value in I"] != both["value in III"]) | other_std
    return both.loc[differs, [*keys, "value in I", "std in I", "value in III", "std in III"]].reset_index(drop=True)


def outliers() -> pandas.DataFrame:
    """Cells of Table III that lie more than 20 points off the median of their model and data set."""
    cells = _read()[_read()["table"] == "III"]
    cells = cells.assign(median=cells.groupby(["model", "dataset"])["value"].transform("median"))
    far = (cells["value"] - cells["median"]).abs() > 20
    return cells.loc[far, ["model", "method", "dataset", "value", "median"]]


def not_beaten(table: str) -> pandas.DataFrame:
    """Cells of a table that are not below Mask-tuning's of the same model: its claim is to be above them all."""
    wide = grid(table)
    ours = wide.xs("mask_tuning", level="method")
    rows = [
        {"model": model, "method": method, "dataset": name, "value": row[name], "Mask-tuning": ours.loc[model, name]}
        for (model, method), row in wide.iterrows()
        if method != "mask_tuning" and model in ours.index
        for name in OUR_SETS
        if row[name] >= ours.loc[model, name]
    ]
    return pandas.DataFrame(rows)


def change(method: str) -> pandas.DataFrame:
    """`method` minus fine-tuning in Table III, points: a row per model, a column per data set."""
    wide = grid("III")
    shift = wide.xs(method, level="method") - wide.xs("fine_tuning", level="method")
    return shift.round(2).loc[list(wide.index.unique(0))]


def difference(arm: str, base: str, set_name: str, model: str) -> float | None:
    """What Table III prints for one method minus another on one of our sets, in points; None where it has no cell."""
    columns = {sets[0]: name for name, sets in OUR_SETS.items()}
    wide = grid("III")
    rows = [(model, method) for method in (arm, base)]
    if set_name not in columns or not all(row in wide.index for row in rows):
        return None
    first, second = (wide.loc[row, columns[set_name]] for row in rows)
    return round(first - second, 2)


class Digits(NamedTuple):
    """How many of `tried` printed values are k / `n` in per cent to two digits; `by_chance` is the share expected.

    `p` is the probability of so many hits or more by chance (binomial, one-sided, not corrected for the number of
    sizes that were tried).
    """

    dataset: str
    n: int
    hits: int
    tried: int
    by_chance: float
    p: float


def digits(dataset: str, sizes: Sequence[int]) -> list[Digits]:
    """Which size of test set the printed digits of a column fit, if the rows without ± are single runs.

    The accuracy of one run on `n` examples is k / n. Values: the distinct ones of Table III's rows without ±
    (fine-tuning and the ablations, all models), rounded or cut off to two digits.
    """
    rows = _read().query("table == 'III' and dataset == @dataset and std.isna()")
    printed = {round(100 * value) for value in rows["value"]}  # in hundredths of a per cent
    results = []
    for n in sizes:
        reachable = {10_000 * k // n for k in range(n + 1)} | {(20_000 * k + n) // (2 * n) for k in range(n + 1)}
        hits, by_chance = len(printed & reachable), len(reachable) / 10_001
        p = float(stats.binom.sf(hits - 1, len(printed), by_chance))
        results.append(Digits(dataset, n, hits, len(printed), by_chance, p))
    return results

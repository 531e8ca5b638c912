"""The paper's Tables I and III (`data/paper`)."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import pandas
from scipy import stats

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


@cache
def cells() -> pandas.DataFrame:
    """Every cell of both tables: `table`, `model`, `method`, `dataset`, `split`, `value`, `std`."""
    parts = [pandas.read_csv(DATA_DIR / "paper" / name) for name in ("table1.csv", "table3.csv")]
    return pandas.concat(parts, ignore_index=True)


def table(name: str) -> pandas.DataFrame:
    """Table "I" or "III": a row for each model and method, a column for each data set, in per cent; NaN for none."""
    of_table = cells()[cells()["table"] == name]
    rows = list(of_table[["model", "method"]].drop_duplicates().itertuples(index=False, name=None))
    return of_table.pivot(index=["model", "method"], columns="dataset", values="value").loc[rows, list(OUR_SETS)]


def difference(method: str, base: str, set_name: str, model: str) -> float | None:
    """What Table III prints for one method minus another on one of our sets, in points; None where it has no cell."""
    column = {sets[0]: name for name, sets in OUR_SETS.items()}.get(set_name)
    first, second = (_table_3().get((model, row, column)) for row in (method, base))
    return None if first is None or second is None else round(first - second, 2)


@cache
def _table_3() -> dict[tuple[str, str, str], float]:
    printed = cells().query("table == 'III'").dropna(subset="value")
    return printed.set_index(["model", "method", "dataset"])["value"].to_dict()


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
    rows = cells().query("table == 'III' and dataset == @dataset and std.isna()")
    printed = {round(100 * value) for value in rows["value"]}  # in hundredths of a per cent
    results = []
    for n in sizes:
        reachable = {10_000 * k // n for k in range(n + 1)} | {(20_000 * k + n) // (2 * n) for k in range(n + 1)}
        hits, by_chance = len(printed & reachable), len(reachable) / 10_001
        p = float(stats.binom.sf(hits - 1, len(printed), by_chance))
        results.append(Digits(dataset, n, hits, len(printed), by_chance, p))
    return results

"""What recorded models follow: the lines that `data/sweeps/leans.py` has kept."""

import json

import pandas
from sklearn.metrics import roc_auc_score

from mtlib.paths import DATA_DIR

FILE = DATA_DIR / "results" / "leans.jsonl"


def frame() -> pandas.DataFrame:
    """A line of `leans` for each data set, arm, seed and suspect.

    `group` says whether a person had marked the word as misleading: "marked" or "other".
    """
    tables = []
    for line in FILE.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        table = pandas.DataFrame(record["lines"]["data"], columns=record["lines"]["columns"])
        run = {name: record[name] for name in ("data", "arm", "seed")}
        tables.append(table.assign(**run))
    lines = pandas.concat(tables, ignore_index=True)
    return lines.assign(group=lines["marked"].map({True: "marked", False: "other"}))


def by_word(lines: pandas.DataFrame) -> pandas.DataFrame:
    """For each suspect the mean of `leans` over seeds, the lowest seed and the highest."""
    by_suspect = lines.groupby("suspect", sort=False)["leans"]
    return by_suspect.agg(leans="mean", low="min", high="max").reset_index()


def by_seed(lines: pandas.DataFrame) -> pandas.Series:
    """The mean of `leans` over words, for each seed."""
    return lines.groupby("seed")["leans"].mean()


def auroc_by_seed(lines: pandas.DataFrame) -> pandas.Series:
    """In how many per cent of all pairs a marked word is followed more than another, by seed."""
    return lines.groupby("seed")[["marked", "leans"]].apply(
        lambda of_seed: 100 * roc_auc_score(of_seed["marked"].astype(bool), of_seed["leans"])
    )

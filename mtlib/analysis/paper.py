"""The paper's Tables I and III (`data/paper`)."""

from functools import cache

import pandas

from mtlib.paths import DATA_DIR

# our sets of which the paper has a column, and its name; where the paper leaves open which set, the likeliest
COLUMNS = {
    "sst2": "SST-2",
    "imdb_contrast": "IMDB-Cont",
    "imdb_cad": "IMDB-CAD",
    "mnli_m": "MNLI-m",
    "mnli_mm": "MNLI-mm",
    "hans": "HANS",
    "anli_r1": "AdvNLI",
    "qqp": "QQP",
    "paws_qqp": "PAWS",
}


def difference(method: str, base: str, set_name: str, model: str) -> float | None:
    """What the tables print for one method minus another on one of our sets, in points; None where there is no cell."""
    first, second = (_printed().get((model, row, COLUMNS.get(set_name))) for row in (method, base))
    return None if first is None or second is None else round(first - second, 2)


@cache
def _printed() -> dict[tuple[str, str, str], float]:
    """In per cent, by model, method and column; Mask-tuning's are Table III's, which once differ from Table I's."""
    cells = pandas.concat(pandas.read_csv(DATA_DIR / "paper" / f"table{i}.csv") for i in (1, 3)).dropna(subset="value")
    return cells.set_index(["model", "method", "dataset"])["value"].to_dict()

"""The paper's Tables I and III (`data/paper`)."""

from functools import cache

import pandas

from mtlib.paths import DATA_DIR

# The paper's column for each of our sets; the likeliest where the paper leaves open which it is.
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
    """The paper's accuracy of a method minus that of the base on one of our sets, in points.

    None where the tables lack one of the two cells.
    """
    column = COLUMNS.get(set_name)
    accuracy = _printed().get((model, method, column))
    base_accuracy = _printed().get((model, base, column))
    if accuracy is None or base_accuracy is None:
        return None
    return round(accuracy - base_accuracy, 2)


@cache
def _printed() -> dict[tuple[str, str, str], float]:
    """Accuracy in per cent by model, method and column.

    Where the two tables disagree on Mask-tuning, which happens once, Table III counts.
    """
    files = [DATA_DIR / "paper" / f"table{number}.csv" for number in (1, 3)]
    cells = pandas.concat(map(pandas.read_csv, files)).dropna(subset="value")
    return cells.set_index(["model", "method", "dataset"])["value"].to_dict()

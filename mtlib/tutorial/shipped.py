"""The project's own records, in the words of the notebooks. What a notebook says of them it computes when it runs."""

from collections.abc import Sequence

import pandas

from mtlib.analysis.frame import frame
from mtlib.analysis.frame import share_changed_at_the_end as share_changed_at_the_end  # for 05_diversity
from mtlib.analysis.row_names import label
from mtlib.analysis.statistics import AS_DIFFERENCE, FEWEST_SEEDS, paired_difference, verdict
from mtlib.paths import DATA_DIR
from mtlib.runs.records import read_records


def shipped(name: str) -> list[dict]:
    """The records of `data/results/NAME.jsonl`; none where the project does not have that file."""
    path = DATA_DIR / "results" / f"{name}.jsonl"
    return read_records([path]) if path.exists() else []


def compare(records: Sequence[dict], arm: str, base: str, set_name: str) -> str:
    """A sentence on two rows of records on one set: both means, and the difference paired by seed or why there is none.

    The means are over the seeds that both have, where there are any.

    `arm` and `base` are names of rows as figures have them (`mtlib.analysis.frame.by_row`). Fewer than three seeds in
    common give no verdict.
    """
    scores = frame(records)
    accuracy = scores[scores["set"] == set_name].pivot_table(index="seed", columns="row", values="accuracy")
    missing = [row for row in (arm, base) if row not in accuracy]
    if missing:
        return f"`{set_name}`: no record of {label(missing[0])} yet."
    points = (accuracy[arm] - accuracy[base]).dropna()
    if len(points):
        accuracy = accuracy.loc[points.index]  # a mean over other seeds would say something else than the difference
    means = ", ".join(f"{label(row)} {_mean(accuracy[row].dropna())}" for row in (arm, base))
    if len(points) < FEWEST_SEEDS:
        return f"`{set_name}`: {means}. Fewer than three seeds in common, so no verdict."
    shift = paired_difference(list(points))
    return f"`{set_name}`: {means}. Difference {shift.text()} points: {AS_DIFFERENCE[verdict(shift)]}."


def _mean(values: pandas.Series) -> str:
    return f"{values.mean():.1f} % ({len(values)} seed{'s' * (len(values) != 1)})"

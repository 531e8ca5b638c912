"""The paper's claims (`data/paper/claims.yaml`), each with what our records say about it."""

from functools import cache

import pandas
import yaml

from mtlib.analysis import comparisons, intervals, paper
from mtlib.paths import DATA_DIR

MODELS = ("BERT-base", "RoBERTa-base", "BART-base")


@cache
def claims() -> pandas.DataFrame:
    """A line for each claim: `claim`, `set`, `setting`, `mean`, `low`, `high`, `n`, `verdict`, and each of MODELS.

    `mean` is a difference in points, and its interval is Welch's at 95 % over seeds, whatever the comparison's own
    tables have: one rule for all claims, not corrected for their number. A model's column has the paper's difference
    (NaN: no such cell), and one named `MODEL?` whether the interval excludes it.
    """
    return pandas.DataFrame([_judged(**entry) for entry in yaml.safe_load(_FILE.read_text())])


_FILE = DATA_DIR / "paper" / "claims.yaml"


def _judged(
    claim: str, comparison: str, arm: str, base: str, set: str, setting: str, measure: str = "accuracy"
) -> dict:
    compared = comparisons.load(comparison)
    scores = compared.frame().query("set == @set")
    first, second = (scores[scores["arm"] == name].set_index("seed")[measure] for name in (arm, base))
    shift = intervals.difference(first, second, paired=False)
    line = {"claim": claim, "set": set, "setting": setting, **vars(shift), "verdict": intervals.verdict(shift)}
    for model in MODELS:
        rows = (compared.paper[arm], compared.paper[base])
        effect = paper.difference(*rows, set, model) if measure == "accuracy" else None
        line |= {model: effect, f"{model}?": intervals.claim(shift, effect)}
    return line

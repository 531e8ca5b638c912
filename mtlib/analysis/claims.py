"""The paper's claims (`data/paper/claims.yaml`), each with what our records say about it."""

from collections.abc import Sequence
from functools import cache

import pandas
import yaml

from mtlib.analysis import comparisons, intervals
from mtlib.analysis.paper import COLUMNS, difference
from mtlib.paths import DATA_DIR

MODELS = ("BERT-base", "RoBERTa-base", "BART-base")
_ANSWERS = {intervals.BETTER: "better", intervals.WORSE: "worse", intervals.OPEN: "no"}


@cache
def claims() -> pandas.DataFrame:
    """A line for each claim and set: `than`, `set`, `setting`, `report`, `mean`, `low`, `high`, `n`, `verdict`, MODELS.

    `mean` is a difference in points, and its interval is Welch's at 95 % over seeds, whatever the comparison's own
    tables have: one rule for all claims, not corrected for their number. A model's column has the paper's difference
    (NaN: no such cell), and one named `MODEL?` whether the interval excludes it. `n` is 0 where nothing was run.
    """
    entries = yaml.safe_load((DATA_DIR / "paper" / "claims.yaml").read_text())["claims"]
    return pandas.DataFrame([_judged(place, **entry) for entry in entries for place in entry["sets"]])


def table(whole: bool = True) -> pandas.DataFrame:
    """The claims as a person reads them, or those of the report; what a row shares with the one above is ""."""
    lines, rows = claims(), []
    for line in lines[whole | lines["report"]].to_dict("records"):
        effects = [f"{line[model]:+.1f}" for model in MODELS if pandas.notna(line[model])]
        answers = [line[f"{model}?"] for model in MODELS if line[f"{model}?"]]
        shift = intervals.Difference(*(line[name] for name in ("mean", "low", "high", "n")))
        rows.append(
            {
                "better than": line["than"],
                "on": line["on"],
                "paper: BERT, RoBERTa, BART": ", ".join(effects),
                "here": shift.text() if shift.n else "",
                "excludes 0?": _ANSWERS.get(line["verdict"], line["verdict"]),
                "excludes the paper's?": answers[0] if len({*answers}) == 1 else ", ".join(answers),
                "seeds": shift.n,
                "setting": line["setting"],
            }
        )
    shown = pandas.DataFrame(rows)
    repeated = shown[["better than", "setting"]].eq(shown[["better than", "setting"]].shift())
    return shown.mask(repeated.reindex(columns=shown.columns, fill_value=False), "")


def _judged(
    place: str,
    than: str,
    paper: str,
    sets: Sequence[str],
    comparison: str | Sequence[str] = (),
    arm: str = "",
    base: str = "",
    setting: str = "",
    report: bool | Sequence[str] = False,
) -> dict:
    name, _, measure = place.partition(" ")
    names = [comparison] if isinstance(comparison, str) else comparison
    shift = intervals.Difference(float("nan"), None, None, 0)
    if names:
        first, second = _scores(names[0], arm, name, measure), _scores(names[-1], base, name, measure)
        shift = intervals.difference(first, second, paired=False)
    line = {
        "than": than,
        "on": COLUMNS[name] + (", mean over labels" if measure else ""),
        "set": name,
        "setting": setting,
    }
    line |= {"report": report if isinstance(report, bool) else place in report}
    line |= vars(shift) | {"verdict": intervals.verdict(shift)}
    for model in MODELS:
        effect = None if measure else difference("Mask-tuning", paper, name, model)
        line |= {model: effect, f"{model}?": intervals.claim(shift, effect) if shift.n else ""}
    return line


def _scores(comparison: str, arm: str, name: str, measure: str) -> pandas.Series:
    scores = _frame(comparison)
    return scores[(scores["arm"] == arm) & (scores["set"] == name)].set_index("seed")[measure or "accuracy"]


@cache
def _frame(comparison: str) -> pandas.DataFrame:
    return comparisons.load(comparison).frame()

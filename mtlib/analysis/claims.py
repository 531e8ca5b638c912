"""The paper's claims (`data/paper/claims.yaml`), and what our records say about each."""

from collections.abc import Sequence
from functools import cache

import pandas

from mtlib.analysis import comparisons, intervals
from mtlib.analysis.paper import COLUMNS, difference
from mtlib.data.yaml_files import load_yaml
from mtlib.paths import DATA_DIR

MODELS = ("BERT-base", "RoBERTa-base", "BART-base")
_NAMES = {"imdb_contrast": "IMDB contrast", "anli_r1": "ANLI"}  # which the paper shortens
_FLOOR = 2  # points: an arm that is no more above the commonest answer has not learned the set
_NOT_RUN = intervals.Difference(float("nan"), None, None, 0)
_EXCLUDES_0 = {intervals.BETTER: "better", intervals.WORSE: "worse", intervals.OPEN: "no"}


@cache
def claims() -> pandas.DataFrame:
    """A row for each claim and set.

    Columns: `than`, `on`, `set`, `setting`, `report`, `mean`, `low`, `high`, `n`, `verdict`, and
    two for each of MODELS.

    `mean` is a difference in points. Its interval is Welch's at 95 % over seeds, whatever the
    comparison's own tables have: one rule for all claims, not corrected for their number. A model's
    column has the paper's difference (NaN where the paper has no such cell), and the one named
    `MODEL?` says whether the interval excludes it, but where neither arm is more than two points
    better than always giving the commonest label: a floor refutes nothing. `verdict` says whether
    the interval excludes 0, there too. `n` is 0 where nothing was run.
    """
    entries = load_yaml((DATA_DIR / "paper" / "claims.yaml").read_text(encoding="utf-8"))["claims"]
    rows = [_judged(measured_on, **entry) for entry in entries for measured_on in entry["sets"]]
    return pandas.DataFrame(rows)


def table(whole: bool = True) -> pandas.DataFrame:
    """All claims, or only those of the report, as a person reads them.

    A cell that repeats the one above is left empty.
    """
    shown = claims()
    if not whole:
        shown = shown[shown["report"]]
    table = pandas.DataFrame([_in_words(claim) for claim in shown.to_dict("records")])
    grouping = table[["better than", "setting"]]
    repeated = grouping.eq(grouping.shift())
    return table.mask(repeated.reindex(columns=table.columns, fill_value=False), "")


def _in_words(claim: dict) -> dict:
    effects = [f"{claim[model]:+.1f}" for model in MODELS if pandas.notna(claim[model])]
    judgements = [claim[f"{model}?"] for model in MODELS if claim[f"{model}?"]]
    if len({*judgements}) == 1:
        judgements = judgements[:1]
    observed = intervals.Difference(claim["mean"], claim["low"], claim["high"], claim["n"])
    return {
        "better than": claim["than"],
        "on": claim["on"],
        "paper: BERT, RoBERTa, BART": ", ".join(effects),
        "here": observed.text() if observed.n else "",
        "excludes 0?": _EXCLUDES_0.get(claim["verdict"], claim["verdict"]),
        "excludes the paper's?": ", ".join(judgements),
        "seeds": observed.n,
        "setting": claim["setting"],
    }


def _judged(
    measured_on: str,
    than: str,
    paper: str,
    sets: Sequence[str],
    comparison: str | Sequence[str] = (),
    arm: str = "",
    base: str = "",
    setting: str = "",
    report: bool | Sequence[str] = False,
) -> dict:
    """A claim on one set. The parameters are the keys of claims.yaml.

    Args:
        measured_on: a set, or a set and a measure: "hans balanced".
        comparison: the one with both arms, or the two that have `arm` and `base`.
    """
    set_name, _, measure = measured_on.partition(" ")
    measure = measure or "accuracy"
    in_paper = measure == "accuracy"
    names = [comparison] if isinstance(comparison, str) else comparison
    observed, obstacle = _NOT_RUN, ""
    if names:
        runs = _runs(names[0], arm, set_name)
        base_runs = _runs(names[-1], base, set_name)
        observed, obstacle = _observed(runs, base_runs, measure)
    row = {
        "than": than,
        "on": _NAMES.get(set_name, COLUMNS[set_name]) + ("" if in_paper else ", mean over labels"),
        "set": set_name,
        "setting": setting,
        "report": report if isinstance(report, bool) else measured_on in report,
        **vars(observed),
        "verdict": intervals.verdict(observed),
    }
    for model in MODELS:
        effect = difference("Mask-tuning", paper, set_name, model) if in_paper else None
        row[model] = effect
        row[f"{model}?"] = intervals.claim(observed, effect, obstacle) if observed.n else ""
    return row


def _observed(
    runs: pandas.DataFrame,
    base_runs: pandas.DataFrame,
    measure: str,
) -> tuple[intervals.Difference, str]:
    """The difference of two arms, and "floor" where neither has learned the set."""
    observed = intervals.difference(runs[measure], base_runs[measure], paired=False)
    is_floor = _at_floor(runs) and _at_floor(base_runs)
    return observed, "floor" if is_floor else ""


def _at_floor(runs: pandas.DataFrame) -> bool:
    return runs["accuracy"].mean() <= runs["majority"].mean() + _FLOOR


def _runs(comparison: str, arm: str, set_name: str) -> pandas.DataFrame:
    scores = _frame(comparison)
    chosen = scores[(scores["arm"] == arm) & (scores["set"] == set_name)]
    return chosen.set_index("seed")


@cache
def _frame(comparison: str) -> pandas.DataFrame:
    return comparisons.load(comparison).frame()

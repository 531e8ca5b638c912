"""Fit the plausibility proxy to the hand labels of cases.csv, and measure it: the numbers of README.md.

python data/plausibility/fit.py        # writes evidence.csv and weights.json, prints the tables; in about a minute
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas
from judge import FEATURES, WEIGHTS_FILE, PlausibilityJudge, features, plausibility_score
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix

from mtlib.diversity.annotation import agreement

HERE = Path(__file__).resolve().parent
N_FITTING = 282  # weights are fitted to the first two batches of cases.csv; the third was drawn to measure the judge on
RULES = {"judge": FEATURES, "tags alone": FEATURES[:3], "odds alone": FEATURES[3:], "constant": ()}


def main() -> None:
    cases = read_cases()
    evidence = PlausibilityJudge().evidence(cases)
    evidence.insert(0, "uid", cases["uid"])
    evidence.to_csv(HERE / "evidence.csv", index=False, float_format="%.4f")
    weights, table = measure_rules(read_evidence(), cases["plausible"])
    WEIGHTS_FILE.write_text(json.dumps(weights, indent=1) + "\n")
    print("\n".join([f"| {name} | {value:+.3f} |" for name, value in weights.items()] + table))


def read_cases() -> pandas.DataFrame:
    """The hand-labelled cases: `uid`, `task`, `text`, `start`, `end`, `predicted`, `plausible` (bool).

    In the file `text` is `fillings.marked_text`, and `original` what stood between the marks.
    """
    cases = pandas.read_csv(HERE / "cases.csv", keep_default_na=False)
    cases["plausible"] = cases["plausible"].astype(bool)
    parts = cases["text"].str.extract("^(.*)⟦(.*)⟧(.*)$", flags=re.DOTALL)  # before, filling, after
    text, start = parts[0] + cases["original"] + parts[2], parts[0].str.len()
    places = {"text": text, "start": start, "end": start + cases["original"].str.len(), "predicted": parts[1]}
    return cases[["uid", "task", "plausible"]].assign(**places)


def read_evidence() -> pandas.DataFrame:
    """What the default judge knows of each hand-labelled case, in order."""
    return pandas.read_csv(HERE / "evidence.csv", keep_default_na=False)


def fit_weights(
    evidence: pandas.DataFrame, plausible: Sequence[bool], names: Sequence[str] = FEATURES
) -> dict[str, float]:
    """Logistic regression of the labels on the features, with a ridge: weight 0 for features that are left out.

    Then the bias is moved until as many cases (or as near as ties allow) are called plausible as are labelled so: the
    judge is there to count shares, and the bias of least error calls too few plausible where most are not.
    """
    x = features(evidence)[:, [FEATURES.index(name) for name in names]]
    fitted = LogisticRegression(C=1.0, tol=1e-8).fit(x, plausible).coef_[0] if names else np.zeros(0)
    scores = np.unique(x @ fitted)  # ascending
    cuts = [scores[0] - 1, *((scores[1:] + scores[:-1]) / 2), scores[-1] + 1]
    bias = -float(min(cuts, key=lambda cut: abs((x @ fitted > cut).sum() - sum(plausible))))
    return {**dict.fromkeys(FEATURES, 0.0), **dict(zip(names, fitted.tolist(), strict=True)), "bias": bias}


def measure_rules(
    evidence: pandas.DataFrame, labels: pandas.Series, resamples: int = 2000
) -> tuple[dict[str, float], list[str]]:
    """The judge's weights, and the lines of README.md's table: how rules agree with the labels of the third batch.

    Beside the judge: the same fitted with the tags alone or the odds alone, and the constant answer.
    `judge, where fitted` is the judge on the cases that its weights were fitted to.
    """
    fitting, held_out = slice(N_FITTING), slice(N_FITTING, None)
    fitted = {name: fit_weights(evidence[fitting], labels[fitting], names) for name, names in RULES.items()}
    weights = {name: {key: round(value, 3) for key, value in by_key.items()} for name, by_key in fitted.items()}
    lines = []
    for name, part in [*((name, held_out) for name in RULES), ("judge, where fitted", fitting)]:
        verdicts = plausibility_score(evidence[part], weights[name.partition(",")[0]]) >= 0
        n, percent, kappa, low, high = agreement(labels[part], verdicts, resamples)
        counts = confusion_matrix(labels[part], verdicts, labels=[True, False]).ravel().tolist()
        cells = [name, n, f"{percent:.1f}", f"{kappa:.2f} [{low:.2f}, {high:.2f}]", *counts]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return weights["judge"], lines


if __name__ == "__main__":
    main()

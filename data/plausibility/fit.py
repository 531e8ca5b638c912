"""Fit the plausibility proxy to the hand labels of cases.csv, measure it, and write what is made here.

python data/plausibility/fit.py        # evidence.csv, weights.json and README.md, in about a minute
"""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from string import Template

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix

from mtlib.diversity.agreement import Agreement, agreement
from mtlib.diversity.fillings import unmarked
from mtlib.diversity.plausibility import FEATURES, WEIGHTS_FILE, Evidence, PlausibilityJudge, plausibility_score
from mtlib.errors import UserError

HERE = Path(__file__).resolve().parent
CASES_FILE, EVIDENCE_FILE = HERE / "cases.csv", HERE / "evidence.csv"
N_FITTING = 282  # weights are fitted to the first two batches of cases.csv; the third was drawn to measure the judge on
RULES = {"judge": FEATURES, "tags alone": FEATURES[:3], "odds alone": FEATURES[3:], "constant": ()}


def main() -> None:
    write_evidence(PlausibilityJudge(weights=dict.fromkeys((*FEATURES, "bias"), 0.0)).evidence(read_cases()))
    weights, measured = measure_rules(read_evidence())
    WEIGHTS_FILE.write_text(json.dumps(weights, indent=1) + "\n")
    (HERE / "README.md").write_text(card(weights, measured), encoding="utf-8")


def read_cases(path: Path = CASES_FILE) -> list[dict]:
    """The hand-labelled cases as rows: `uid`, `task`, `text`, `start`, `end`, `predicted`, `plausible` (bool).

    In the file `text` is `fillings.marked_text`, and `original` what stood between the marks.
    """
    with open(path, newline="", encoding="utf-8") as file:
        cases = list(csv.DictReader(file))
    if wrong := [case["uid"] for case in cases if case["plausible"] not in ("0", "1")]:
        raise UserError(f"{path}: plausible must be 0 or 1; it is not in {', '.join(wrong)}.")
    return [
        {"uid": case["uid"], "task": case["task"], "plausible": case["plausible"] == "1"}
        | unmarked(case["text"], case["original"])
        for case in cases
    ]


def read_evidence(path: Path = EVIDENCE_FILE) -> list[Evidence]:
    """The evidence on each hand-labelled case, in order, from the default judge."""
    with open(path, newline="", encoding="utf-8") as file:
        return [
            Evidence(row["original_tag"], row["filler_tag"], row["known_word"] == "1", float(row["log_odds"]),
                     float(row["neighbour_log_odds"]))
            for row in csv.DictReader(file)
        ]  # fmt: skip


def write_evidence(evidence: Sequence[Evidence], path: Path = EVIDENCE_FILE) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["uid", *(field.name for field in fields(Evidence))])
        for case, of_case in zip(read_cases(), evidence, strict=True):
            odds = (f"{of_case.log_odds:.4f}", f"{of_case.neighbour_log_odds:.4f}")
            writer.writerow([case["uid"], of_case.original_tag, of_case.filler_tag, int(of_case.known_word), *odds])


def fit_weights(
    evidence: Sequence[Evidence], plausible: Sequence[bool], features: Sequence[str] = FEATURES
) -> dict[str, float]:
    """Logistic regression of the labels on the features, with a ridge: weight 0 for features that are left out.

    Then the bias is moved until as many cases (or as near as ties allow) are called plausible as are labelled so: the
    judge is there to count shares, and the bias of least error calls too few plausible where most are not. Raises
    `UserError` where all labels are the same.
    """
    if len(set(plausible)) < 2:
        raise UserError("weights need plausible and implausible cases; all of these have the same label.")
    x = np.stack([of_case.features() for of_case in evidence])[:, [FEATURES.index(name) for name in features]]
    fitted = LogisticRegression(C=1.0, tol=1e-8).fit(x, plausible).coef_[0] if features else np.zeros(0)
    scores = np.unique(x @ fitted)  # ascending
    cuts = [scores[0] - 1, *((scores[1:] + scores[:-1]) / 2), scores[-1] + 1]
    bias = -float(min(cuts, key=lambda cut: abs((x @ fitted > cut).sum() - sum(plausible))))
    return {**dict.fromkeys(FEATURES, 0.0), **dict(zip(features, fitted.tolist(), strict=True)), "bias": bias}


@dataclass(frozen=True)
class Measured:
    """How a rule agrees with the hand labels of a set of cases; counts are of label, then rule."""

    agreement: Agreement
    both_plausible: int
    only_label: int
    only_rule: int
    both_implausible: int


def measure(labels: Sequence[bool], verdicts: Sequence[bool]) -> Measured:
    counts = confusion_matrix(labels, verdicts, labels=[True, False]).ravel().tolist()
    return Measured(agreement(labels, verdicts), *counts)


def measure_rules(evidence: Sequence[Evidence]) -> tuple[dict[str, float], dict[str, Measured]]:
    """The judge's weights, and what the judge and simpler rules reach on the cases held out, by rule.

    Beside the judge: the same fitted with the tags alone or the odds alone, and the constant answer.
    `judge, where fitted` is the judge on the cases that its weights were fitted to.

    Args:
        evidence: on each of `read_cases`, in order.
    """
    labels = [case["plausible"] for case in read_cases()]
    fitting, held_out = slice(N_FITTING), slice(N_FITTING, None)

    def measured(part: slice, weights: dict[str, float]) -> Measured:
        return measure(labels[part], [plausibility_score(of_case, weights) >= 0 for of_case in evidence[part]])

    fitted = {name: fit_weights(evidence[fitting], labels[fitting], features) for name, features in RULES.items()}
    rounded = {name: {key: round(value, 3) for key, value in weights.items()} for name, weights in fitted.items()}
    by_rule = {name: measured(held_out, weights) for name, weights in rounded.items()}
    return rounded["judge"], {**by_rule, "judge, where fitted": measured(fitting, rounded["judge"])}


def card(weights: dict[str, float], measured: dict[str, Measured]) -> str:
    """README.md, from card.md."""
    lines = []
    for name, of_rule in measured.items():
        n, percent, kappa, low, high = of_rule.agreement
        counts = (of_rule.both_plausible, of_rule.only_label, of_rule.only_rule, of_rule.both_implausible)
        cells = [name, n, f"{percent:.1f}", f"{kappa:.2f} [{low:.2f}, {high:.2f}]", *counts]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    cases, by_task = read_cases(), {}
    for case in cases:
        by_task.setdefault(case["task"], []).append(case["plausible"])
    return Template((HERE / "card.md").read_text(encoding="utf-8")).substitute(
        n=len(cases),
        plausible=sum(case["plausible"] for case in cases),
        by_task=", ".join(f"{task} {sum(labels)} of {len(labels)}" for task, labels in sorted(by_task.items())),
        rows="\n".join(lines),
        weights="\n".join(f"| {name} | {value:+.3f} |" for name, value in weights.items()),
    )


if __name__ == "__main__":
    main()

"""Plain verdicts, on records made up so that the answer is known."""

import pytest

from mtlib.study.claims import CLAIMS
from mtlib.study.plain import FAILS, HOLDS, MIXED, NOT_RUN, OPEN, Judged, judge, overall, panels, verdicts
from tests.study.test_claims import records

FINE, MASK = {"method": "fine_tuning"}, {"method": "mask_tuning"}
Q1, Q2 = CLAIMS[:2]


def study(dev: tuple[float, float], ood: tuple[float, float], wobble=(0.0, 0.001, 0.002)) -> list[dict]:
    """Fine-tuning and Mask-tuning, three seeds, on `sst2` (dev) and `imdb_cad`."""
    runs = []
    for arm, on_dev, on_ood in ((FINE, dev[0], ood[0]), (MASK, dev[1], ood[1])):
        made = records(arm, [on_dev + shift for shift in wobble], "sst2")
        for run, shift in zip(made, wobble if arm is FINE else wobble[::-1], strict=True):
            run["metrics"]["imdb_cad"] = {"accuracy": on_ood + shift, "majority": 0.5}
        runs += made
    return runs


@pytest.mark.parametrize(
    ("dev", "ood", "word", "obstacle"),
    [
        ((0.9, 0.9), (0.7, 0.8), HOLDS, ""),
        ((0.9, 0.9), (0.8, 0.7), FAILS, ""),
        ((0.9, 0.9), (0.7, 0.7), OPEN, ""),
        ((0.9, 0.51), (0.7, 0.8), OPEN, "Mask-tuning did not train"),
        ((0.9, 0.9), (0.51, 0.5), OPEN, "both only guess"),
    ],
)
def test_word_of_a_set(dev, ood, word, obstacle):
    judged = judge(Q1, study(dev, ood))
    assert judged["sentiment", "imdb_cad"][::2] == (word, obstacle)
    assert judged["sentiment", "imdb_contrast"] == Judged(NOT_RUN, None, "")


def test_an_arm_that_did_not_train_is_judged_on_no_set():
    assert judge(Q2, study((0.9, 0.51), (0.7, 0.8)))["sentiment", "sst2"].obstacle == "Mask-tuning did not train"
    assert judge(Q2, study((0.9, 0.8), (0.7, 0.8)))["sentiment", "sst2"].word == FAILS


def test_balanced_accuracy_near_guessing_says_nothing():
    runs = study((0.9, 0.9), (0.6, 0.69))
    for run in runs:
        run["metrics"]["imdb_cad"]["per_label"] = {"0": {"accuracy": 0.99}, "1": {"accuracy": 0.03}}
    assert judge(Q1, runs)["sentiment", "imdb_cad"].obstacle == "both only guess"


@pytest.mark.parametrize(
    ("words", "one"),
    [
        ([HOLDS, HOLDS, OPEN], HOLDS),
        ([HOLDS, OPEN], OPEN),
        ([HOLDS, NOT_RUN], HOLDS),
        ([FAILS], FAILS),
        ([HOLDS, FAILS], MIXED),
        ([OPEN, NOT_RUN], OPEN),
        ([NOT_RUN], NOT_RUN),
    ],
)
def test_one_word_for_a_claim(words, one):
    assert overall([Judged(word, None if word == NOT_RUN else 1.0, "") for word in words]) == one


def test_what_could_not_be_judged_has_no_say():
    assert overall([Judged(HOLDS, 1.0, ""), Judged(OPEN, 1.0, "both only guess")]) == HOLDS


def test_table_and_panels():
    table = verdicts(study((0.9, 0.51), (0.7, 0.8)))
    first = table.iloc[0]
    assert first["here"] == OPEN
    assert "sentiment: not run (imdb_contrast), Mask-tuning did not train (imdb_cad)" in first["why"]
    assert (table["here"] == NOT_RUN).sum() == 4
    shown = panels(study((0.9, 0.51), (0.7, 0.8)))["Q1, Q2", "mask_tuning", "fine_tuning"]
    assert [cell.set_name for cell in shown if cell.says_nothing] == ["imdb_cad", "sst2"]

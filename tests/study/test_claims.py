"""Verdicts by the plan's rules, on records made up so that the answer is known."""

import pytest

from mtlib.analysis.statistics import FAILS, HOLDS, NOT_RUN, OPEN
from mtlib.errors import UserError
from mtlib.runs.config import configure
from mtlib.study.arms import by_arm, scores_of_arms
from mtlib.study.claims import (
    CLAIMS,
    MIXED,
    Cell,
    Claim,
    by_set,
    cells,
    overall,
    panels,
    untrained,
    verdicts,
)
from mtlib.study.plan import points_of_curve
from mtlib.study.report import beside, by_label, cost, curves, markdown

Q1, Q2 = CLAIMS[:2]


def cells_of(claim: Claim, found: list[dict]) -> list[Cell]:
    return cells(claim, scores_of_arms(found))


def untrained_of(found: list[dict]) -> list[tuple[str, str]]:
    return untrained(scores_of_arms(found))


def records(arm: dict, accuracies: list[float], name="imdb_cad", task="sentiment", majority=0.5) -> list[dict]:
    return [
        {
            "config": configure(task=task, seed=seed, **arm).resolved().public(),
            "metrics": {name: {"accuracy": accuracy, "majority": majority}},
        }
        for seed, accuracy in enumerate(accuracies)
    ]


def cell(differences: list[float], claim: Claim = Q1, base=0.7) -> Cell:
    found = records({"method": "fine_tuning"}, [base] * len(differences))
    found += records({"method": "mask_tuning"}, [base + value for value in differences])
    return next(one for one in cells_of(claim, found) if one.set_name == "imdb_cad")


def test_difference_is_paired_and_in_points():
    found = cell([0.01, 0.02, 0.03])
    assert found.difference.mean == pytest.approx(2.0) and found.difference.n == 3
    # t(0.975, 2) = 4.3027, sd 1, n 3
    assert found.difference.high - found.difference.mean == pytest.approx(4.3027 / 3**0.5, rel=1e-4)


# sd 0.79 points, n 5: half a 95 % interval is 0.98 points, at the level for eight sets (t(0.996875, 4) = 5.2) 1.8
SPREAD = [0.004, 0.009, 0.014, 0.019, 0.024]


@pytest.mark.parametrize(
    ("differences", "word"),
    [
        ([0.020, 0.021, 0.019, 0.020, 0.020], HOLDS),
        ([-0.020, -0.021, -0.019, -0.020, -0.020], FAILS),
        (SPREAD, OPEN),  # the 95 % interval alone lies above 0
        ([-value for value in SPREAD], OPEN),
        ([value + 0.006 for value in SPREAD], HOLDS),
        ([value - 0.006 for value in SPREAD], OPEN),
        ([0.01, 0.01], NOT_RUN),
    ],
)
def test_word(differences, word):
    assert cell(differences).word == word


def test_sign_that_the_paper_expects_may_be_negative():
    lower = Claim("Q6", "lower", "mask_tuning", "fine_tuning", ("ood",), -1)
    assert cell([-0.020, -0.021, -0.019], lower).word == HOLDS
    assert cell([0.020, 0.021, 0.019], lower).word == FAILS
    own = Claim("Q7", "no sign", "mask_tuning", "fine_tuning", ("ood",), 0)
    assert cell(SPREAD, own).word == "" and cell(SPREAD, own).difference.mean == pytest.approx(1.4)


def test_fewer_sets_need_less():
    """Four sets in distribution (half an interval is 1.5 points), eight out of it (1.8); the mean is 1.65."""
    words = {}
    for task, name, of in (("nli", "mnli_mm", "id"), ("sentiment", "imdb_cad", "ood")):
        found = records({"method": "fine_tuning"}, [0.7] * 5, name, task)
        found += records({"method": "mask_tuning"}, [0.7 + value + 0.0025 for value in SPREAD], name, task)
        claim = Claim("Q1", "higher", "mask_tuning", "fine_tuning", (of,), 1)
        words[name] = next(one.word for one in cells_of(claim, found) if one.set_name == name)
    assert words == {"mnli_mm": HOLDS, "imdb_cad": OPEN}


def test_seeds_that_only_one_arm_has_are_left_out():
    found = records({"method": "fine_tuning"}, [0.7] * 5) + records({"method": "mask_tuning"}, [0.8] * 3)
    (one,) = [one for one in cells_of(Q1, found) if one.set_name == "imdb_cad"]
    assert one.difference.n == 3


def study(dev: tuple[float, float], ood: tuple[float, float], wobble=(0.0, 0.001, 0.002)) -> list[dict]:
    """Fine-tuning and Mask-tuning, three seeds, on `sst2` (dev) and `imdb_cad`."""
    runs = []
    arms = ({"method": "fine_tuning"}, wobble), ({"method": "mask_tuning"}, wobble[::-1])
    for (arm, shifts), on_dev, on_ood in zip(arms, dev, ood, strict=True):
        made = records(arm, [on_dev + shift for shift in shifts], "sst2")
        for run, shift in zip(made, shifts, strict=True):
            run["metrics"]["imdb_cad"] = {"accuracy": on_ood + shift, "majority": 0.5}
        runs += made
    return runs


def on(claim: Claim, runs: list[dict], name: str) -> Cell:
    return next(cell for cell in cells_of(claim, runs) if cell.set_name == name)


@pytest.mark.parametrize(
    ("dev", "ood", "word", "obstacle"),
    [
        ((0.9, 0.9), (0.7, 0.8), HOLDS, ""),
        ((0.9, 0.9), (0.8, 0.7), FAILS, ""),
        ((0.9, 0.9), (0.7, 0.7), OPEN, ""),
        ((0.9, 0.51), (0.7, 0.8), OPEN, "Mask-tuning did not train"),
        ((0.9, 0.9), (0.51, 0.5), OPEN, "both only guess"),
        ((0.9, 0.9), (0.51, 0.53), HOLDS, ""),  # one of them does more than guess
        ((0.9, 0.9), (0.33, 0.47), HOLDS, ""),  # far below the majority is not at chance
    ],
)
def test_a_set_that_says_nothing_gets_no_verdict(dev, ood, word, obstacle):
    cell = on(Q1, study(dev, ood), "imdb_cad")
    assert (cell.word, cell.obstacle) == (word, obstacle) and cell.difference is not None
    assert on(Q1, study(dev, ood), "imdb_contrast") == Cell("sentiment", "imdb_contrast", None, NOT_RUN)


def test_an_arm_that_did_not_train_is_judged_on_no_set():
    runs = study((0.9, 0.51), (0.7, 0.8))
    assert on(Q2, runs, "sst2").obstacle == "Mask-tuning did not train" and on(Q2, runs, "sst2").word == OPEN
    assert untrained_of(runs) == [("sentiment", "mask_tuning")]
    assert on(Q2, study((0.9, 0.8), (0.7, 0.8)), "sst2").word == FAILS
    assert by_set(runs, "sentiment").loc["Q1", "imdb_cad"].iloc[0].endswith("(Mask-tuning did not train)")


def test_balanced_accuracy_near_guessing_says_nothing():
    runs = study((0.9, 0.9), (0.6, 0.69))
    for run in runs:
        run["metrics"]["imdb_cad"]["per_label"] = {"0": {"accuracy": 0.99}, "1": {"accuracy": 0.03}}
    assert on(Q1, runs, "imdb_cad").obstacle == "both only guess"


def test_guessing_on_hans_is_one_of_two_labels():
    """Its task has three labels, but a model that guesses on HANS is right on half of each."""
    runs = records({"method": "fine_tuning"}, [0.7] * 3, "hans", "nli") + records(
        {"method": "mask_tuning"}, [0.6] * 3, "hans", "nli"
    )
    for run in runs:
        run["metrics"]["hans"]["per_label"] = {"0": {"accuracy": 0.95}, "1": {"accuracy": 0.06}}
    (found,) = [one for one in cells_of(Q1, runs) if one.set_name == "hans"]
    assert found.obstacle == "both only guess"


def test_the_grid_is_no_run_of_an_arm_and_an_arm_has_one_run_a_seed():
    main = records({"method": "fine_tuning"}, [0.70] * 3) + records({"method": "mask_tuning"}, [0.80] * 3)
    grid = records({"method": "mask_tuning", "learning_rate": 1e-4}, [0.1], name="sst2")
    assert cells_of(Q1, main + grid) == cells_of(Q1, main) and len(by_arm(main + grid)["sentiment", "mask_tuning"]) == 3
    with pytest.raises(UserError, match="2 records of sentiment, mask_tuning have seed 0"):
        cells_of(Q1, main + records({"method": "mask_tuning", "learning_rate": 1e-4}, [0.1]))


def test_diverged_runs_are_left_out():
    runs = records({"method": "fine_tuning"}, [0.7] * 4) + records({"method": "mask_tuning"}, [0.8] * 4)
    runs[-1] |= {"metrics": {}, "diverged": True}
    assert next(cell for cell in cells_of(Q1, runs) if cell.set_name == "imdb_cad").difference.n == 3
    assert len(by_arm(runs)["sentiment", "mask_tuning"]) == 3


@pytest.mark.parametrize(
    ("words", "one"),
    [
        ([HOLDS, HOLDS, OPEN], HOLDS),
        ([HOLDS, OPEN], OPEN),  # not more than half
        ([HOLDS, NOT_RUN], HOLDS),
        ([FAILS], FAILS),
        ([HOLDS, FAILS], MIXED),
        ([OPEN, NOT_RUN], OPEN),
        ([NOT_RUN], NOT_RUN),
    ],
)
def test_one_word_for_a_claim(words, one):
    assert overall([Cell("sentiment", "sst2", None, word) for word in words]) == one


def test_what_could_not_be_judged_has_no_say():
    assert overall([Cell("nli", "hans", None, HOLDS), Cell("nli", "anli_r1", None, OPEN, "both only guess")]) == HOLDS


def test_table_and_panels():
    table = verdicts(study((0.9, 0.51), (0.7, 0.8)))
    assert table.loc["Q1", "here"] == OPEN and (table["here"] == NOT_RUN).sum() == 4
    assert "sentiment: not run (imdb_contrast), Mask-tuning did not train (imdb_cad)" in table.loc["Q1", "why"]
    shown = panels(study((0.9, 0.51), (0.7, 0.8)))["Q1, Q2", "mask_tuning", "fine_tuning"]
    assert [cell.set_name for cell in shown if cell.obstacle] == ["imdb_cad", "sst2"]


def test_every_claim_names_arms_that_exist():
    from mtlib.study.plan import ARMS, VARIANTS

    names = {arm.name for arm in (*ARMS, *VARIANTS)}
    assert {name for claim in CLAIMS for name in (claim.arm, claim.base)} <= names
    assert {one.word for one in cells_of(Q1, [])} == {NOT_RUN}


FOUND = [
    *records({"method": "fine_tuning"}, [0.70, 0.72, 0.74]),
    *records({"method": "mask_tuning"}, [0.80]),
    *records({"method": "mask_tuning", "alpha": 0.1}, [0.99]),  # a point of the curve
]


class TestTables:
    def test_ours_beside_the_papers(self):
        table = beside("I", scores_of_arms(FOUND))
        assert table.loc[("fine_tuning", "paper: BERT-base"), "IMDB-CAD"] == "87.00"
        assert table.loc[("ipt", "paper: BERT-base"), "SST-2"] == ""
        assert table.loc[("fine_tuning", "here"), "IMDB-CAD"] == "72.0 ± 2.0 (3)"
        assert table.loc[("mask_tuning", "here"), "IMDB-CAD"] == "80.0 (1)"
        assert table.loc[("mask_tuning", "here"), "HANS"] == "not run"
        assert list(table.index.unique("method")) == [  # Table I has no ablations
            "fine_tuning", "learned_mixin", "product_of_experts", "confidence_regularization", "ipt", "mask_tuning",
            "span_cutoff", "hidden_cut", "Few-shot prompting",
        ]  # fmt: skip
        assert table.loc[("span_cutoff", "here")].eq("not run").all()
        assert table.loc["Few-shot prompting"].index.tolist() == ["paper: GPT-3"]
        assert table.loc[("Few-shot prompting", "paper: GPT-3"), ["HANS", "IMDB-CAD"]].tolist() == ["75.30", ""]
        assert table.loc[("mask_tuning", "paper: BERT-base"), "SST-2"] == "93.11 ± 0.1"
        assert len(beside("III", scores_of_arms(FOUND))) == 5 * 4

    def test_every_question_on_every_set(self):
        table = by_set(FOUND[:3] + records({"method": "fine_tuning", "epochs": 6.0}, [0.50] * 3)
                       + records({"method": "mask_tuning"}, [0.51, 0.51, 0.51]), "sentiment")  # fmt: skip
        assert list(table.columns[2:]) == ["sst2", "imdb_contrast", "imdb_cad"] and len(table) == len(CLAIMS) + 6
        printed = table[table["asked"] == "the same in the paper (BERT-base)"]
        assert list(printed.index) == ["Q1", "Q2", "Q3", "Q4", "Q5", "Q6"]
        assert (printed.loc["Q1", "imdb_contrast"], printed.loc["Q1", "sst2"]) == ("+3.7", "")  # 82.75 - 79.08
        table = table[~table.index.duplicated()]  # ours stand first
        assert table.loc["Q1", "imdb_cad"] == "does not hold here: -21.0 [-26.0, -16.0]"  # half: t 4.3027 x 2 / sqrt 3
        assert (table.loc["Q1", "imdb_contrast"], table.loc["Q1", "sst2"]) == ("not run", "")  # not a set of the claim
        assert table.loc["Q7", "imdb_cad"] == "+1.0 [+1.0, +1.0] (both only guess)"
        assert table.loc["Q8", "imdb_cad"] == "not run" and untrained_of(FOUND) == []

    def test_one_answer_more_often_gains_no_balanced_accuracy(self):
        def of(arm, no, yes):
            found = records(arm, [0.0] * len(no), name="paws_qqp", task="paraphrase")
            for record, *accuracies in zip(found, no, yes, strict=True):
                labels = {"paraphrase": {"accuracy": accuracies[0]}, "not paraphrase": {"accuracy": accuracies[1]}}
                record["metrics"]["paws_qqp"]["per_label"] = labels
            return found

        plain = of({"method": "fine_tuning"}, [0.5, 0.5, 0.5, 0.5], [0.4, 0.5, 0.6, 0.9])
        table = by_label(plain + of({"method": "mask_tuning"}, [0.1, 0.1, 0.1], [0.8, 0.9, 1.0]), "paraphrase")
        assert table["arm"].tolist() == ["fine_tuning", "mask_tuning"] and table["seeds"].tolist() == [4, 3]
        assert table["on each gold label"].iloc[1] == "not paraphrase 90.0, paraphrase 10.0"
        assert table["balanced"].tolist() == ["55.0 ± 10.8", "50.0 ± 5.0"]
        assert table["difference to fine_tuning"].tolist() == ["", "+0.0 [+0.0, +0.0]"]
        assert by_label(FOUND, "sentiment").empty  # from before labels were kept

    def test_curves_have_the_sets_that_all_points_have(self):
        points = {0.7: [0.51, 0.53], 0.1: [0.61, 0.63], 0.0: [0.71]}
        found = [one for alpha, scores in points.items()
                 for one in records({"method": "mask_tuning", "alpha": alpha}, scores, "hans", "nli")]  # fmt: skip
        found[0]["metrics"]["mnli_mm"] = {"accuracy": 0.5, "majority": 0.4}
        table = curves(found, "nli")
        assert list(table.columns) == ["value", "seeds", "hans"]
        assert table.values.tolist() == [["0", 1, "71.0"], ["0.1", 1, "61.0"], ["0.7", 1, "51.0"]]
        assert curves(found, "sentiment").empty

    def test_curves_have_the_balanced_accuracy_where_every_point_has_it(self):
        at = [{"method": "mask_tuning", "alpha": alpha} for alpha in (0.8, 0.1)]
        found = [one for arm in at for one in records(arm, [0.7, 0.7], "paws_qqp", "paraphrase")]
        for record in found:
            record["metrics"]["paws_qqp"]["per_label"] = {"paraphrase": {"accuracy": record["config"]["alpha"]},
                                                          "not paraphrase": {"accuracy": 0.9}}  # fmt: skip
        table = curves(found, "paraphrase")
        assert table["paws_qqp"].tolist() == ["70.0 ± 0.0"] * 2
        assert table["paws_qqp, balanced"].tolist() == ["50.0 ± 0.0", "85.0 ± 0.0"]
        del found[0]["metrics"]["paws_qqp"]["per_label"]
        assert list(curves(found, "paraphrase").columns) == ["value", "seeds", "paws_qqp"]

    def test_curves_have_one_run_a_seed_at_one_learning_rate(self):
        found = records({"method": "mask_tuning", "alpha": 0.1}, [0.7, 0.7]) + records({"method": "mask_tuning"}, [0.7])
        with pytest.raises(UserError, match=r"2 records of sentiment, alpha 0\.1 have seed 0"):
            curves(found + records({"method": "mask_tuning", "alpha": 0.1}, [0.8]), "sentiment")
        slower = records({"method": "mask_tuning", "alpha": 0.3, "learning_rate": 1e-5}, [0.8])
        with pytest.raises(
            UserError, match=r"curve of alpha has points at learning rates 1e-05, 0\.0005; expected one"
        ):
            curves(found + slower, "sentiment")
        apart = records({"method": "mask_tuning", "alpha": 0.3}, [0.7, 0.7, 0.7])[2:]  # another seed alone
        assert curves(found + apart, "sentiment").empty and points_of_curve(found + apart, "sentiment", "alpha") == {}

    def test_markdown(self):
        lines = markdown(beside("I", scores_of_arms(FOUND))).splitlines()
        assert lines[0].startswith("| method | model | SST-2 | IMDB-Cont |") and lines[1].startswith("| --- | --- |")
        assert lines[2].startswith("| fine_tuning | paper: BERT-base | 92.43 |") and len(lines) == 2 + 22

    def test_cost_is_a_ratio_of_medians(self):
        def costing(arm, seconds):
            found = records(arm, [0.5] * len(seconds))
            for one, value in zip(found, seconds, strict=True):
                one["cost"] = {"train_seconds": value, "peak_memory_mb": 1000, "steps": 10}
            return found

        table = cost(costing({"method": "fine_tuning"}, [9, 10, 30]) + costing({"method": "mask_tuning"}, [19, 21, 60]))
        assert table.loc[("sentiment", "mask_tuning"), "time / fine-tuning"] == 2.1
        assert table.loc[("sentiment", "mask_tuning"), "memory / fine-tuning"] == 1.0
        assert table.loc[("sentiment", "fine_tuning"), "runs"] == 3
        assert cost([]).empty
        alone = cost(costing({"method": "mask_tuning"}, [20]))
        assert alone["seconds"].tolist() == [20] and alone["time / fine-tuning"].isna().all()

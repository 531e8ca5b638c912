"""Verdicts by the plan's rules, on records made up so that the answer is known."""

import pytest

from mtlib.errors import UserError
from mtlib.runs.config import configure
from mtlib.study.claims import (
    CLAIMS,
    VERDICTS,
    Cell,
    Claim,
    beside,
    by_arm,
    by_label,
    by_set,
    cells,
    cost,
    curves,
    markdown,
    overall,
    summary,
    unlearned,
)
from mtlib.study.plan import points_of_curve

Q1 = CLAIMS[0]


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
    return next(one for one in cells(claim, found) if one.set_name == "imdb_cad")


def test_difference_is_paired_and_in_points():
    found = cell([0.01, 0.02, 0.03])
    assert found.difference.mean == pytest.approx(2.0) and found.difference.n == 3
    # t(0.975, 2) = 4.3027, sd 1, n 3
    assert found.difference.high - found.difference.mean == pytest.approx(4.3027 / 3**0.5, rel=1e-4)


# sd 0.79 points, n 5: half a 95 % interval is 0.98 points, at the level for eight sets (t(0.996875, 4) = 5.2) 1.8
SPREAD = [0.004, 0.009, 0.014, 0.019, 0.024]


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([0.020, 0.021, 0.019, 0.020, 0.020], "reproduced"),
        ([-0.020, -0.021, -0.019, -0.020, -0.020], "contradicted"),
        (SPREAD, "leaning"),
        ([-value for value in SPREAD], "leaning against"),
        ([value + 0.006 for value in SPREAD], "reproduced"),
        ([value - 0.006 for value in SPREAD], "undecided"),
        ([0.01, 0.01], "not run"),
    ],
)
def test_verdict(differences, verdict):
    assert cell(differences).verdict == verdict


def test_sign_that_the_paper_expects_may_be_negative():
    lower = Claim("Q6", "lower", "mask_tuning", "fine_tuning", ("ood",), -1)
    assert cell([-0.020, -0.021, -0.019], lower).verdict == "reproduced"
    assert cell([-value for value in SPREAD], lower).verdict == "leaning"
    own = Claim("Q7", "no sign", "mask_tuning", "fine_tuning", ("ood",), 0)
    assert cell(SPREAD, own).verdict == "" and cell(SPREAD, own).difference.mean == pytest.approx(1.4)


def test_fewer_sets_need_less():
    small = cells(Q1, [*records({"method": "fine_tuning"}, [0.7] * 5),
                       *records({"method": "mask_tuning"}, [0.7 + value + 0.001 for value in SPREAD])],
                  tasks=("sentiment",))  # fmt: skip
    assert [(one.set_name, one.verdict) for one in small] == [("imdb_contrast", "not run"), ("imdb_cad", "reproduced")]


def test_seeds_that_only_one_arm_has_are_left_out():
    found = records({"method": "fine_tuning"}, [0.7] * 5) + records({"method": "mask_tuning"}, [0.8] * 3)
    (one,) = [one for one in cells(Q1, found) if one.set_name == "imdb_cad"]
    assert one.difference.n == 3


def test_cells_at_chance_are_marked():
    found = [*records({"method": "fine_tuning"}, [0.50] * 3), *records({"method": "mask_tuning"}, [0.515] * 3)]
    assert [one.at_chance for one in cells(Q1, found) if one.set_name == "imdb_cad"] == [True]
    found = [*records({"method": "fine_tuning"}, [0.50] * 3), *records({"method": "mask_tuning"}, [0.53] * 3)]
    assert [one.at_chance for one in cells(Q1, found) if one.set_name == "imdb_cad"] == [False]


def test_far_below_the_majority_is_not_at_chance():
    found = [*records({"method": "fine_tuning"}, [0.33] * 3, majority=0.69),
             *records({"method": "mask_tuning"}, [0.47] * 3, majority=0.69)]  # fmt: skip
    assert not next(one for one in cells(Q1, found) if one.set_name == "imdb_cad").at_chance


def test_an_arm_that_has_not_learned_gets_no_verdict_out_of_distribution():
    """One answer to everything: no better than the majority in distribution, and right on most of PAWS."""

    def of(arm, dev, paws):
        found = records(arm, dev, name="qqp", task="paraphrase", majority=0.62)
        for record, accuracy in zip(found, paws, strict=True):
            record["metrics"]["paws_qqp"] = {"accuracy": accuracy, "majority": 0.72}
        return found

    plain = of({"method": "fine_tuning"}, [0.75, 0.76, 0.75], [0.40, 0.41, 0.42])
    for dev, verdicts in {0.635: ("contradicted", "not learned"), 0.645: ("contradicted", "reproduced")}.items():
        found = plain + of({"method": "mask_tuning"}, [dev] * 3, [0.72] * 3)
        of_set = {cell.set_name: cell for claim in CLAIMS[:2] for cell in cells(claim, found)}
        assert (of_set["qqp"].verdict, of_set["paws_qqp"].verdict) == verdicts
        assert of_set["paws_qqp"].difference.mean == pytest.approx(31.0) and not of_set["paws_qqp"].at_chance
    found += of({"method": "fine_tuning", "epochs": 6.0}, [0.62] * 3, [0.72] * 3)
    table = by_set(found, "paraphrase")
    assert table.loc["Q7", ["qqp", "paws_qqp"]].tolist() == ["+2.5 [+2.5, +2.5]", "not learned"]
    assert unlearned(found) == [("paraphrase", "fine_tuning (6 epochs)")]


def test_the_grid_is_no_run_of_an_arm_and_an_arm_has_one_run_a_seed():
    main = records({"method": "fine_tuning"}, [0.70] * 3) + records({"method": "mask_tuning"}, [0.80] * 3)
    grid = records({"method": "mask_tuning", "learning_rate": 1e-4}, [0.1], name="sst2")
    assert cells(Q1, main + grid) == cells(Q1, main) and len(by_arm(main + grid)["sentiment", "mask_tuning"]) == 3
    with pytest.raises(UserError, match="2 records of sentiment, mask_tuning have seed 0"):
        cells(Q1, main + records({"method": "mask_tuning", "learning_rate": 1e-4}, [0.1]))


def test_diverged_runs_are_left_out():
    runs = records({"method": "fine_tuning"}, [0.7] * 4) + records({"method": "mask_tuning"}, [0.8] * 4)
    runs[-1] |= {"metrics": {}, "diverged": True}
    assert next(cell for cell in cells(Q1, runs) if cell.set_name == "imdb_cad").difference.n == 3
    assert len(by_arm(runs)["sentiment", "mask_tuning"]) == 3


def test_overall():
    def of(*verdicts):
        return overall([Cell("sentiment", "sst2", None, verdict, False) for verdict in verdicts])

    assert of("reproduced", "reproduced", "undecided") == "reproduced"
    assert of("reproduced", "undecided") == "undecided"  # not more than half
    assert of("reproduced", "reproduced", "leaning against") == "mixed"
    assert of("contradicted", "contradicted", "undecided", "not run") == "contradicted"
    assert of("leaning", "leaning") == "undecided"
    assert of("not run", "not run") == "not run"
    assert of("reproduced", "not learned", "not learned") == "reproduced"
    assert of("not learned", "not run") == "not learned"


def test_every_claim_names_arms_that_exist():
    from mtlib.study.plan import ARMS, VARIANTS

    names = {arm.name for arm in (*ARMS, *VARIANTS)}
    assert {name for claim in CLAIMS for name in (claim.arm, claim.base)} <= names
    assert {one.verdict for one in cells(Q1, [])} == {"not run"} and "not run" in VERDICTS


FOUND = [
    *records({"method": "fine_tuning"}, [0.70, 0.72, 0.74]),
    *records({"method": "mask_tuning"}, [0.80]),
    *records({"method": "mask_tuning", "alpha": 0.1}, [0.99]),  # a point of the curve
]


class TestTables:
    def test_ours_beside_the_papers(self):
        table = beside("I", FOUND)
        assert table.loc[("fine_tuning", "paper: BERT-base"), "IMDB-CAD"] == "87.00"
        assert table.loc[("ipt", "paper: BERT-base"), "SST-2"] == ""
        assert table.loc[("fine_tuning", "here"), "IMDB-CAD"] == "72.0 ± 2.0 (3)"
        assert table.loc[("mask_tuning", "here"), "IMDB-CAD"] == "80.0 (1)"
        assert table.loc[("mask_tuning", "here"), "HANS"] == "not run"
        assert list(table.index.unique("method")) == [  # Table I has no ablations
            "fine_tuning", "learned_mixin", "product_of_experts", "confidence_regularization", "ipt", "mask_tuning",
            "span_cutoff", "hidden_cut",
        ]  # fmt: skip
        assert table.loc[("span_cutoff", "here")].eq("not run").all()
        assert len(beside("III", FOUND)) == 5 * 4

    def test_summary_counts_the_sets(self):
        table = summary(FOUND + records({"method": "sequential"}, [0.60, 0.62, 0.64]))
        assert table.loc["Q6", "verdict"] == "reproduced" and table.loc["Q6", "reproduced"] == 1
        assert (table.loc["Q1", "verdict"], table.loc["Q1", "sets with a verdict"]) == ("not run", "0 of 8")
        assert table.loc["Q6", "sets with a verdict"] == "1 of 12"
        assert (table.loc[:, list(VERDICTS[:-1])].sum(axis=1) == [0, 0, 0, 0, 0, 1]).all()

    def test_every_question_on_every_set(self):
        table = by_set(FOUND[:3] + records({"method": "fine_tuning", "epochs": 6.0}, [0.50] * 3)
                       + records({"method": "mask_tuning"}, [0.51, 0.51, 0.51]), "sentiment")  # fmt: skip
        assert list(table.columns[2:]) == ["sst2", "imdb_contrast", "imdb_cad"] and len(table) == len(CLAIMS)
        assert table.loc["Q1", "imdb_cad"] == "contradicted: -21.0 [-26.0, -16.0]"  # half: t 4.3027 x 2 / sqrt 3
        assert (table.loc["Q1", "imdb_contrast"], table.loc["Q1", "sst2"]) == ("not run", "")  # not a set of the claim
        assert table.loc["Q7", "imdb_cad"] == "+1.0 [+1.0, +1.0] (at chance)"
        assert table.loc["Q8", "imdb_cad"] == "not run" and unlearned(FOUND) == []

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
        lines = markdown(beside("I", FOUND)).splitlines()
        assert lines[0].startswith("| method | model | SST-2 | IMDB-Cont |") and lines[1].startswith("| --- | --- |")
        assert lines[2].startswith("| fine_tuning | paper: BERT-base | 92.43 |") and len(lines) == 2 + 21

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

"""Comparisons over arms, on hand-made records."""

import pytest

from mtlib.analysis.comparison import (
    ArmComparison,
    at_best_rates,
    at_common_settings,
    difference,
    scores,
    sets_outside,
    trained,
    verdict,
)
from mtlib.errors import UserError
from mtlib.methods import METHODS

SETS = ("testbed_sentiment", "testbed_contrast", "testbed_counterfactual")


def record(method="fine_tuning", seed=0, accuracies=(0.9, 0.1, 0.1), rate=1e-4, sets=SETS, **settings):
    return {
        "config": {"method": method, "seed": seed, "learning_rate": rate, "classifier_learning_rate": rate} | settings,
        "metrics": {name: {"accuracy": value} for name, value in zip(sets, accuracies, strict=True)},
    }


def seeds(method, *outside, inside=0.9, sets=SETS, **settings):
    others = len(sets) - 1
    return [record(method, i, (inside, *[score] * others), sets=sets, **settings) for i, score in enumerate(outside)]


BASE = seeds("fine_tuning", 0.10, 0.12, 0.14)
METHODS_COMPARED = ArmComparison(lambda config: config["method"], lambda arm: METHODS[arm].label, at_best_rates)


def chosen(*records):
    return METHODS_COMPARED.by_arm(records)


def test_the_rate_is_chosen_in_distribution_with_seed_0_and_the_lowest_of_equals():
    good, tempting = record(rate=1e-4), record(rate=2e-4, accuracies=(0.8, 0.9, 0.9))
    equal, later = record(rate=5e-5, seed=0), record(rate=5e-5, seed=1)
    assert chosen(later, tempting, good) == {"fine_tuning": [good]}
    assert chosen(later, tempting, good, equal) == {"fine_tuning": [equal, later]}
    slower = record(classifier_learning_rate=5e-5)
    assert chosen(good, slower) == {"fine_tuning": [slower]}
    lost = record("reweight") | {"diverged": True, "metrics": {}}
    arms = chosen(record("reweight", seed=1), record("span_cutoff"), lost, good)
    assert list(arms) == ["fine_tuning", "span_cutoff"], "an arm without a run of seed 0 has no rate yet"


def test_one_run_of_an_arm_and_seed():
    with pytest.raises(UserError, match=r"2 records of fine-tuning have seed 0 .*another precision"):
        chosen(record(precision="bf16"), record(precision="float32"))


@pytest.mark.parametrize(
    ("records", "word"),
    [
        (seeds("reweight", 0.80, 0.83, 0.86), "holds here"),
        (seeds("reweight", 0.01, 0.02, 0.05), "does not hold here"),
        (seeds("reweight", 0.01, 0.20, 0.14), "cannot be decided"),
        (seeds("reweight", 0.80, 0.83), "too few seeds (2 of 3)"),
        (seeds("reweight", 0.80, 0.83, 0.86, inside=0.87), "no verdict (behind in distribution)"),
        (seeds("reweight", 0.80, 0.83, 0.86, inside=0.89), "holds here"),
    ],
)
def test_verdicts(records, word):
    assert verdict(chosen(*BASE, *records), "reweight", "fine_tuning", "testbed_contrast") == word


def test_more_sets_make_the_interval_wider():
    many = (*SETS, "imdb_contrast", "imdb_cad", "hans")
    for sets, word in ((SETS[:2], "holds here"), (many, "cannot be decided")):  # t 4.30: 0.44 above 0; t 9.92
        close = seeds("reweight", 0.112, 0.128, 0.153, sets=sets)  # 1.2, 0.8, 1.3: mean 1.1, standard error 0.153
        base = seeds("fine_tuning", 0.10, 0.12, 0.14, sets=sets)
        assert difference(close, base, "testbed_contrast").mean == pytest.approx(1.1)
        assert verdict(chosen(*close, *base), "reweight", "fine_tuning", "testbed_contrast") == word
    assert difference(BASE, [], "testbed_contrast") is None


def test_table_has_a_row_for_each_arm_and_no_claim_about_fine_tuning():
    table = METHODS_COMPARED.table(chosen(*seeds("reweight", 0.80, 0.83, 0.86), *BASE))
    assert table["method"].tolist() == ["fine-tuning", "Reweight"] and table["seeds"].tolist() == [3, 3]
    assert table["testbed_contrast"].tolist() == [12.0, 83.0]
    # differences 70, 71, 72; Student's t with two degrees of freedom at 97.5 % is 6.205, times 1 / sqrt(3): 3.58
    assert table["better on testbed_contrast?"].tolist() == ["", "+71.0 [+67.4, +74.6]: significantly better"]
    assert "better on testbed_sentiment?" not in table
    assert METHODS_COMPARED.table({}).empty


def test_seeds_in_two_precisions_are_one_arm_and_the_table_says_so():
    mixed = [record("reweight", seed, precision=name) for seed, name in enumerate(("bf16", "float32"))]
    base = [record(seed=seed, precision="bf16") for seed in (0, 1)]
    table = METHODS_COMPARED.table(chosen(*mixed, *base))
    assert table["seeds"].tolist() == [2, 2] and table["precision"].tolist() == ["bf16", "bf16, float32"]
    assert "precision" not in METHODS_COMPARED.table(chosen(*base))


def test_without_fine_tuning_nobody_knows_what_is_trained():
    assert trained(chosen(record("reweight")), "reweight") is None


def test_what_is_trained_is_judged_on_the_seeds_that_both_have():
    base = [record(seed=0), record(seed=1), record(seed=2, accuracies=(0.99, 0.1, 0.1))]
    within = [record("reweight", seed, (0.885, 0.1, 0.1)) for seed in (0, 1)]  # of all three the mean is 93 %
    assert trained(chosen(*base, *within), "reweight") is True
    assert trained(chosen(*base, *within, record("reweight", 2, (0.94, 0.1, 0.1))), "reweight") is False


def test_what_says_which_tokens_are_masked_tells_arms_apart_and_leaves_them_in_one_comparison():
    random = seeds("mask_tuning", 0.1, 0.1, 0.1, epochs=8, masking="exact", mask_rate=0.05, alpha=0.6)
    named = {"masking": "salient_spans", "spacy_pipeline": "some_pipeline 1.0"}
    entities = [run | {"config": run["config"] | named} for run in random]
    other = [run | {"config": run["config"] | named | {"alpha": 0.2}} for run in random[:1]]
    arms = at_common_settings({"random": random, "entities": entities + other})
    assert arms == {"random": random, "entities": entities}


def test_a_new_comparison_is_a_declaration():
    """Methods under one masking, each with its own alpha: rates are common within a method, length to all."""
    masked = {"masking": "known_shortcut", "mask_rate": 1.0, "epochs": 8}
    ablations = ArmComparison(
        lambda config: config["method"] if config.get("masking") in (None, "known_shortcut") else None,
        lambda arm: METHODS[arm].label,
        at_common_settings,
        expectations=(("mask_tuning", "no_integrated_loss"),),
    )
    arms = ablations.by_arm(
        [
            *seeds("mask_tuning", 0.8, 0.81, 0.82, alpha=0.6, **masked),
            *seeds("no_integrated_loss", 0.7, 0.72, 0.71, alpha=0.0, **masked),
            *seeds("augmented", 0.3, **masked | {"epochs": 3}),
            *seeds("mask_tuning", 0.1, **masked | {"masking": "exact"}),
            *seeds("fine_tuning", 0.1, 0.12, 0.1, epochs=8),
            *seeds("fine_tuning", 0.2, 0.2, 0.2, 0.2, epochs=3),
        ]
    )
    assert {arm: len(records) for arm, records in arms.items()} == {
        "fine_tuning": 3, "mask_tuning": 3, "no_integrated_loss": 3,
    }  # fmt: skip
    lines = ablations.verdicts(arms)
    assert lines["set"].tolist() == sets_outside(arms) == ["testbed_contrast", "testbed_counterfactual"]
    assert lines["difference"].tolist() == pytest.approx([10, 10]) and lines["seeds"].tolist() == [3, 3]
    assert lines["verdict"].tolist() == ["holds here"] * 2
    assert scores(arms).groupby("arm")["gap"].mean()["mask_tuning"] == pytest.approx(90 - 81)

"""The comparison of the other methods: arms, chosen rates, verdicts and costs, on hand-made records."""

import json

import pytest
from datasets import Dataset

from mtlib.data.tasks import get_task
from mtlib.paths import DATA_DIR, MINI_MODEL_DIR
from mtlib.plm import SharedPLM
from mtlib.runs.config import BUNDLED_MODEL, configure
from mtlib.runs.records import SCHEMA_VERSION
from mtlib.study import peers
from mtlib.study.step_cost import step_costs

SETS = ("testbed_sentiment", "testbed_contrast", "testbed_counterfactual")


def record(method="fine_tuning", seed=0, scores=(0.9, 0.1, 0.1), rate=1e-4, seconds=100.0, **settings):
    of_arm = peers.ARMS[method] | settings | {"learning_rate": rate, "classifier_learning_rate": rate}
    return {
        "config": configure("sentiment", seed=seed, **of_arm).resolved().public(),
        "metrics": {name: {"accuracy": score} for name, score in zip(SETS, scores, strict=True)},
        "cost": {"train_seconds": seconds},
    }


def test_arms_and_their_labels():
    combined = record("mask_tuning + product_of_experts")["config"]
    assert peers.arm_of(combined) == "mask_tuning + product_of_experts"
    plain = record("mask_tuning")["config"]
    assert peers.arm_of(plain) == "mask_tuning"
    older = {name: value for name, value in plain.items() if name != "fill_mode"}  # the setting is younger
    assert peers.arm_of(older) == "mask_tuning"
    older = combined | dict.fromkeys(("bias_weight", "entropy_weight", "cut_ratio"))  # Mask-tuning once read none
    assert peers.arm_of(older) == peers.arm_of(combined) is not None
    assert peers.arm_of(combined | {"bias_weight": 0.5}) is None
    without_mlm = peers.arm_of(combined | {"alpha": 0.0})
    assert without_mlm == "mask_tuning + product_of_experts, alpha 0"
    assert peers.label(without_mlm) == "Mask-tuning (balanced) + product of experts, alpha 0"
    assert peers.arm_of(combined | {"alpha": 0.3}) is None
    auxiliary = record("mask_tuning + reweight, no refilling")["config"]
    assert peers.arm_of(auxiliary) == "mask_tuning + reweight, no refilling"
    assert peers.arm_of(auxiliary | {"classifier_reads": None}) == "mask_tuning + reweight"
    assert peers.label(peers.arm_of(auxiliary)) == "Mask-tuning (balanced) + Reweight, no refilling"
    assert peers.arm_of(plain | {"classifier_reads": "original"}) == "mask_tuning, no refilling"  # none of the plan's
    for other in ({"update": "joint"}, {"mask_rate": 0.3}, {"fill_mode": "eval"}, {"fixed_masks": True}):
        assert peers.arm_of(plain | other) is None, other
    assert peers.label(peers.arm_of(combined)) == "Mask-tuning (balanced) + product of experts"
    assert peers.label("span_cutoff") == "Span Cutoff"
    assert peers.label("mask_tuning + span_cutoff") == "Mask-tuning (balanced) + Span Cutoff"
    other = peers.arm_of(plain | {"classification": "validated_or_dropped"})
    assert peers.label(other) == "Mask-tuning + validated or dropped"


def test_seed_by_seed_has_a_row_for_each_training_and_none_for_other_methods(tmp_path):
    data = {"data": {"train": {"rows": 4000}}}
    elsewhere = {
        "schema_version": SCHEMA_VERSION,
        "identity": "nli",
        "config": {"task": "nli", "method": "fine_tuning"},
        "metrics": {},
    }
    for name in ("testbed", "peers_reference", "peers_trial", "peers_long", "peers_rows", "peers_base"):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(elsewhere) + "\n")
    runs = [record(scores=(0.9, 0.1 + seed / 10, 0.2), seed=seed) | data for seed in (1, 0)]
    others = {"update": "joint"}, {"classification": "original_and_refilled"}
    runs += [record("mask_tuning", **settings) | data for settings in others]
    augmented = record() | data
    augmented["config"] |= {"method": "augmented"}
    large = record() | data
    large["config"] |= {"model": "some-base"}
    table = peers.seed_by_seed(tmp_path, [*runs, augmented, large])
    assert list(table.index) == ["fine-tuning", "fine-tuning"]
    assert table["model"].tolist() == ["bundled", "base-sized"] and table["seeds"].tolist() == [2, 1]
    assert table["testbed_contrast"].tolist() == ["10.0, 20.0", "10.0"]


def of_real_data(method, task="sentiment", **settings):
    """A run with the task's own bias model, on a folder of releases."""
    arm = {name: value for name, value in peers.ARMS[method].items() if name != "bias"}
    config = configure(task, **{"source": str(DATA_DIR), "train_size": 4000, "seed": 0} | arm | settings)
    sets = get_task(task).evaluation_sets("folder")
    return {
        "schema_version": SCHEMA_VERSION,
        "identity": f"{task} {method} {settings}",
        "config": config.resolved().public() | {"source": "folder"},
        "metrics": {name: {"accuracy": 0.5} for name in sets},
    }


def test_on_real_data_the_bias_model_is_the_tasks_own(tmp_path):
    left_out = [
        of_real_data("fine_tuning", train_size=1000),
        of_real_data("fine_tuning", epochs=6),
        of_real_data("reweight", bias_folds=2),
        of_real_data("mask_tuning", update="joint"),
        of_real_data("fine_tuning", "paraphrase", epochs=6),
        one_set := of_real_data("fine_tuning", seed=3),
    ]
    del one_set["metrics"]["imdb_cad"]
    files = {
        "peers_sst2": [of_real_data("reweight")],
        "sizes": [of_real_data("mask_tuning"), *left_out],
        "auxiliary_sst2": [of_real_data("mask_tuning", seed=3)],
        "peers_sst2_rates": [of_real_data("hidden_cut")],
        "peers_qqp": [of_real_data("learned_mixin", "paraphrase")],
        "peers_mnli": [of_real_data("reweight", "nli")],
        "study": [of_real_data("fine_tuning", "paraphrase", learning_rate=1e-4), *left_out],
    }
    for name, records in files.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    runs = peers.on_real_data(tmp_path)
    arms = {title: [peers.arm_of(run["config"]) for run in of_title] for title, of_title in runs.items()}
    assert arms == {
        "SST-2 and edited reviews": ["reweight", "mask_tuning", "mask_tuning"],
        "SST-2 and edited reviews, classifier at 1e-4": ["hidden_cut"],
        "QQP and PAWS": ["learned_mixin", "fine_tuning"],
        "MNLI, HANS and ANLI": ["reweight"],
    }
    assert runs["SST-2 and edited reviews"][0]["config"]["bias"] == "bag_of_words"
    assert runs["QQP and PAWS"][0]["config"]["bias"] == "lexical_overlap"
    assert runs["MNLI, HANS and ANLI"][0]["config"]["bias"] == "overlap"
    own = of_real_data("product_of_experts", "nli", bias="token_overlap")["config"]
    assert peers.arm_of(own) == "product_of_experts, token overlap"
    assert peers.label(peers.arm_of(own)) == "product of experts, token overlap"
    assert peers.arm_of(own | {"bias_weight": 0.5}) is None
    assert peers.arm_of(of_real_data("reweight", "nli", bias="token_overlap")["config"]) not in peers.EVERY_ARM


def test_a_bias_model_has_one_row_for_each_task():
    def run(task, bias, *right):
        stages = [{"bias_accuracy": share, "bias_calibration_error": 0.01} for share in right]
        return {
            "config": {"task": task, "bias": bias},
            "metrics": {"dev": {"majority": 0.5}},
            "cost": {"stages": [{}, *stages]},
        }

    groups = {
        "SST-2": [run("sentiment", None), run("sentiment", "bag_of_words", 0.6), run("sentiment", "bag_of_words", 0.7)],
        "SST-2 at another rate": [run("sentiment", "bag_of_words", 0.8)],
        "MNLI": [run("nli", "overlap", 0.4), run("nli", "token_overlap", 0.3)],
    }
    table = peers.bias_models(groups)
    assert list(zip(table.index, table["bias model"], table["right"], strict=True)) == [
        ("SST-2", "bag of words", 70.0),
        ("MNLI", "overlap", 40.0),
        ("MNLI", "token overlap", 30.0),
    ]


@pytest.mark.parametrize("arm", peers.ARMS)
def test_the_settings_of_an_arm_make_that_arm(arm):
    assert peers.arm_of(configure("sentiment", **peers.ARMS[arm]).resolved().public()) == arm


@pytest.mark.parametrize(
    ("arm", "trainings", "passes", "parameters"),
    [
        ("fine_tuning", 1, 1, 0),
        ("learned_mixin", 1, 1, 384 + 1),
        ("product_of_experts", 1, 1, 3 * (2 * 2 + 2)),
        ("confidence_regularization", 2, 2, 0),
        ("span_cutoff", 1, 2, 0),
        ("hidden_cut", 1, 2, 0),
        ("mask_tuning + product_of_experts", 1, 2, 3 * (2 * 2 + 2)),
        ("mask_tuning + reweight", 1, 2, 0),
        ("mask_tuning + learned_mixin", 1, 2, 384 + 1),
        ("mask_tuning + confidence_regularization", 2, 3, 0),
        ("mask_tuning + span_cutoff", 1, 3, 0),
        ("mask_tuning + reweight, alpha 0", 1, 2, 0),
        ("mask_tuning + reweight, no refilling", 1, 2, 0),
    ],
)
def test_cost_of_a_step(arm, trainings, passes, parameters):
    ids = [[2, 50, 60, 70, 3], [2, 80, 90, 3]]
    examples = Dataset.from_dict(
        {
            "input_ids": ids,
            "attention_mask": [[1] * len(row) for row in ids],
            "labels": [0, 1],
            "bias_features": [[1.0, 0.0], [0.0, 1.0]],
            "bias_log_probabilities": [[-0.1, -2.3], [-2.3, -0.1]],
            "teacher_probabilities": [[0.9, 0.1], [0.2, 0.8]],
        }
    )
    configs = {name: configure("sentiment", **peers.ARMS[name]) for name in ("fine_tuning", arm)}
    costs = step_costs(configs, examples, repeats=1)
    cost, plain = costs.loc[arm], costs.loc["fine_tuning"]
    assert (cost["trainings"], cost["passes"], cost["parameters"]) == (trainings, passes, parameters)
    assert cost["seconds"] > 0
    if arm == "confidence_regularization":
        assert cost["megabytes"] == pytest.approx(plain["megabytes"], rel=0.01), "one of its trainings at a time"
    elif arm.startswith("mask_tuning"):  # the two passes are not held at once, but two views of the second are
        views = 2 if arm.endswith("span_cutoff") else 1
        plm = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2)
        copy = sum(p.nbytes for p in plm.mlm.parameters()) / 2**20
        held = views * plain["megabytes"] + (0 if arm.endswith("alpha 0") else copy)
        assert cost["megabytes"] == pytest.approx(held, rel=0.05)
    else:
        assert cost["megabytes"] == pytest.approx(passes * plain["megabytes"], rel=0.05)


def test_the_comparisons_of_a_base_sized_model():
    """Each has fine-tuning beside other methods, on one task and one training set: the one with the shortcut."""
    groups = peers.with_a_base_sized_model(DATA_DIR / "results")
    assert [{run["config"]["task"] for run in runs} for runs in groups.values()] == [{"sentiment"}, {"nli"}, {"nli"}]
    for runs in groups.values():
        assert {"fine_tuning", "reweight"} < set(peers.PEERS.by_arm(runs))
        assert len({run["data"]["train"]["content_sha256"] for run in runs}) == 1
        assert all(run["config"]["model"] != BUNDLED_MODEL for run in runs)

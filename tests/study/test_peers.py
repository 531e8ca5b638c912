"""The comparison of the other methods: arms, chosen rates, verdicts and costs, on hand-made records."""

import re

import pytest
from datasets import Dataset

from mtlib.paths import DATA_DIR
from mtlib.runs.config import command_line, configure
from mtlib.study import peers

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
    for other in ({"update": "joint"}, {"mask_rate": 0.3}, {"fill_mode": "eval"}, {"fixed_masks": True}):
        assert peers.arm_of(plain | other) is None, other
    assert peers.label(peers.arm_of(combined)) == "Mask-tuning (balanced) + product of experts"
    assert peers.label("span_cutoff") == "Span Cutoff"


@pytest.mark.parametrize("arm", peers.ARMS)
def test_arms_are_those_of_the_script(arm):
    assert peers.arm_of(configure("sentiment", **peers.ARMS[arm]).resolved().public()) == arm
    script = (DATA_DIR / "results" / "peers_study.sh").read_text()
    named = re.search(r"ensembles=\((.*)\)\nothers=\((.*)\)", script)
    names = [
        name.replace("mask_tuning_poe", "mask_tuning + product_of_experts") for name in " ".join(named.groups()).split()
    ]
    assert sorted(names) == sorted(peers.ARMS)
    words = command_line(configure("sentiment", **peers.ARMS[arm]))
    settings = {word for word in words if word.startswith("--")} - {"--task", "--method"}
    assert all(word in script for word in settings)


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
    cost = peers.step_cost(configure("sentiment", **peers.ARMS[arm]), examples, repeats=1)
    assert (cost["trainings"], cost["passes"], cost["parameters"]) == (trainings, passes, parameters)
    assert cost["seconds"] > 0

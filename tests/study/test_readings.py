"""The comparison of other readings of Mask-tuning: its arms, and the seeds that count, on hand-made records."""

import pytest

from mtlib.runs.config import configure
from mtlib.study.readings import READINGS, arm_of

SETS = ("sst2", "imdb_contrast", "imdb_cad")


def record(method, scores, seed=0, train_size=16_000, **settings):
    config = configure("sentiment", method, seed=seed, source="hub", train_size=train_size, **settings)
    metrics = {name: {"accuracy": accuracy} for name, accuracy in zip(SETS, scores, strict=True)}
    return {"config": config.resolved().public(), "metrics": metrics}


@pytest.mark.parametrize(
    ("method", "settings", "arm"),
    [
        ("fine_tuning", {}, "fine_tuning"),
        ("mask_tuning", {"update": "balanced"}, "refilled text (balanced)"),
        ("mask_tuning", {"update": "balanced", "fill_mode": "eval"}, "refilled in evaluation mode"),
        (
            "mask_tuning",
            {"update": "balanced", "classification": "original_and_refilled"},
            "original and refilled text",
        ),
        ("mask_tuning", {"update": "joint"}, None),
        ("mask_tuning", {"update": "balanced", "train_size": 4_000}, None),
    ],
)
def test_arms(method, settings, arm):
    assert arm_of(record(method, (0.8, 0.7, 0.7), **settings)["config"]) == arm


def test_means_are_over_the_seeds_that_all_arms_have():
    runs = [record("fine_tuning", (0.8, 0.7 + seed / 10, 0.7), seed) for seed in range(3)]
    runs += [record("mask_tuning", (0.8, 0.6, 0.6), seed, update="balanced", fill_mode="eval") for seed in range(2)]
    table = READINGS.table(READINGS.by_arm(runs)).set_index("method")
    assert table["seeds"].tolist() == [2, 2]
    assert table.loc["original text (fine-tuning)", "imdb_contrast"] == 75.0  # of 70 and 80, without seed 2's 90
    assert table.loc["refilled in evaluation mode", "better on imdb_cad?"] == "too few seeds (2 of 3)"
    assert READINGS.by_arm([]) == {}

"""The comparisons on real reviews: their arms, on hand-made records."""

import pytest

from mtlib.runs.config import configure
from mtlib.study.reviews import PRETRAINING, REFILLING, arm_of, label

SETS = ("sst2", "imdb_contrast", "imdb_cad")


def record(method, scores, seed=0, **settings):
    config = configure("sentiment", method, seed=seed, source="hub", **settings).resolved().public()
    return {"config": config, "metrics": {name: {"accuracy": s} for name, s in zip(SETS, scores, strict=True)}}


def test_refilling_is_compared_with_fine_tuning_and_with_random_masks():
    runs = []
    for seed in range(3):
        runs += [
            record("fine_tuning", (0.8, 0.7, 0.7), seed),
            record("mask_tuning", (0.8, 0.6, 0.6), seed, update="balanced"),
            record(
                "mask_tuning",
                (0.79, 0.5 - seed / 100, 0.5 + seed / 100),
                seed,
                update="balanced",
                masking="attribution_most",
            ),
        ]
    arms = REFILLING.by_arm(runs)
    assert {*arms} == {"fine_tuning", "exact:0.05", "attribution_most:0.05"}
    verdicts = REFILLING.verdicts(arms).set_index(["than", "set"])["verdict"]
    assert verdicts["most attributed, 5 %"].tolist() == ["holds here"] * 2
    assert verdicts["pointed span"].tolist() == ["not run"] * 2


@pytest.mark.parametrize(
    ("method", "settings", "arm", "words"),
    [
        ("fine_tuning", {"epochs": 6}, "fine_tuning", "nothing (6 epochs)"),
        ("fine_tuning", {}, "fine_tuning (3 epochs)", "nothing (3 epochs)"),
        ("intermediate_pretraining", {"masking": "original"}, "original:0.15", "random, all predicted, 15 %"),
        ("intermediate_pretraining", {"masking": "supervised"}, "supervised", "pointed span"),
        ("mask_tuning", {}, None, None),
    ],
)
def test_arms_of_pretraining(method, settings, arm, words):
    assert arm_of(record(method, (0.8, 0.7, 0.7), **settings)["config"]) == arm
    assert arm is None or label(arm) == words


def test_pretraining_is_compared_with_fine_tuning_for_as_long():
    runs = [record("fine_tuning", (0.8, 0.7, 0.7), seed, epochs=epochs) for seed in range(3) for epochs in (3, 6)]
    runs += [record("intermediate_pretraining", (0.8, 0.8 + seed / 100, 0.7 + seed / 100), seed) for seed in range(3)]
    table = PRETRAINING.table(PRETRAINING.by_arm(runs)).set_index("method")
    # differences 10, 11, 12 and 0, 1, 2: Student's t with two degrees of freedom at 97.5 % is 6.205, / sqrt(3) = 3.58
    assert table.loc["random, 15 %", "better on imdb_contrast?"] == "+11.0 [+7.4, +14.6]: significantly better"
    assert table.loc["random, 15 %", "better on imdb_cad?"] == "+1.0 [-2.6, +4.6]: not significantly different"
    assert table.loc["nothing (6 epochs)", "better on imdb_contrast?"] == ""

"""The row that Table III lacks: which runs it is compared with."""

import pytest

from mtlib.runs.config import configure
from mtlib.study.ablations import WITHOUT_REFILLING


@pytest.mark.parametrize(
    ("method", "settings", "arm"),
    [
        ("fine_tuning", {}, "fine_tuning"),
        ("mask_tuning", {"update": "balanced"}, "refilled"),
        ("mask_tuning", {"update": "balanced", "classifier_reads": "original"}, "original"),
        ("mask_tuning", {"update": "joint"}, None),
        ("mask_tuning", {"update": "balanced", "classification": "reweight"}, None),
        ("reweight", {}, None),
    ],
)
def test_arms(method, settings, arm):
    config = configure("sentiment", method, **settings).resolved().public()
    assert WITHOUT_REFILLING.arm_of(config) == arm
    older = {name: value for name, value in config.items() if name != "classifier_reads"}
    assert WITHOUT_REFILLING.arm_of(older) == ("refilled" if arm == "original" else arm)

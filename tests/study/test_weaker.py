"""Strength 0.5: which runs stand in the table of learning rates, and what the pages say of it."""

import pytest

from mtlib.analysis.comparison import FINE_TUNING, in_distribution, sets_outside, verdict
from mtlib.paths import DATA_DIR
from mtlib.study.ablations import with_settings
from mtlib.study.weaker import RATES, arm_of, at_several_rates, label

RUN = {"method": "mask_tuning", "masking": "exact", "mask_rate": 0.05, "epochs": 8,
       "learning_rate": 1e-4, "classifier_learning_rate": 1e-3}  # fmt: skip
FINE_TUNED = RUN | {"method": FINE_TUNING, "masking": None, "mask_rate": None}


@pytest.mark.parametrize(
    ("config", "arm"),
    [
        (FINE_TUNED | {"classifier_learning_rate": 1e-4}, FINE_TUNING),
        (FINE_TUNED, "fine_tuning 0.0001 0.001"),
        (FINE_TUNED | {"epochs": 16}, None),
        (RUN, "exact:0.05 0.0001 0.001"),
        (RUN | {"mask_rate": 0.15}, None),
        (RUN | {"classifier_reads": "original"}, None),
        (RUN | {"method": "no_integrated_loss"}, None),
        (RUN | {"masking": "known_shortcut", "mask_rate": 1.0}, "known_shortcut:1 0.0001 0.001"),
    ],
)
def test_arms(config, arm):
    assert arm_of(config) == arm
    assert arm is None or label(arm) == {"f": "fine-tuning (no masks)", "e": "random, 5 %"}.get(
        arm[0], "shortcut's words, all of them"
    )


def test_the_rates_called_fine_tunings_best_are():
    """By the plan's rule: the highest mean in distribution."""
    of_arms = RATES.by_arm(at_several_rates(DATA_DIR / "results"))
    means = {arm: sum(map(in_distribution, runs)) / len(runs) for arm, runs in of_arms.items() if len(runs) == 5}
    assert max((arm for arm in means if arm.startswith(FINE_TUNING)), key=means.get) == FINE_TUNING


def test_what_the_page_says_of_them():
    page = (DATA_DIR / "results" / "POLICIES.md").read_text()
    arms = RATES.by_arm(at_several_rates(DATA_DIR / "results"))
    lowest = min(map(in_distribution, arms[FINE_TUNING]))
    assert f"both at 1e-4 fine-tuning has {lowest:.1f} % or more with every seed" in page
    for arm in arms.keys() - {FINE_TUNING}:
        for name in sets_outside(arms):
            assert verdict(arms, arm, FINE_TUNING, name) != "holds here", f"{arm} is better on {name}"


def test_frequent_tokens_train_well_with_the_joint_update_alone():
    page, results = (DATA_DIR / "results" / "POLICIES.md").read_text(), DATA_DIR / "results"
    files = [results / "policies_weaker.jsonl", results / "processor" / "policies_weaker.jsonl"]
    runs = [run for file in files for run in with_settings(file, masking="frequency_frequent", method="mask_tuning")]
    of = {key: [] for key in (("balanced", 0.6), ("joint", 0.6), ("joint", 0.05))}
    for run in runs:
        of[run["config"]["update"], run["config"]["alpha"]].append(in_distribution(run))
    assert list(map(len, of.values())) == [8, 5, 2]
    low, high = min(of["balanced", 0.6]), max(of["balanced", 0.6])
    assert f"end with {low:.0f} to {high:.0f} % in distribution" in page
    assert f"With the joint update all five seeds have {min(of['joint', 0.6]):.1f} % or more" in page
    assert f"fine-tuning lags have {min(of['joint', 0.05]):.1f} % or more even at alpha 0.05" in page

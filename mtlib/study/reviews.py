"""Which words are masked, on real reviews: the fourth and the fifth comparison of `data/results/PLAN_policies.md`."""

from mtlib.analysis import policies
from mtlib.analysis.comparison import FINE_TUNING, ArmComparison
from mtlib.analysis.policy_names import PolicyAtRate

_SHORTER = "fine_tuning (3 epochs)"
_LABELS = {FINE_TUNING: "nothing (6 epochs)", _SHORTER: "nothing (3 epochs)"}

REFILLING = policies.in_training_by(
    "mask_tuning", (("exact:0.05", "supervised"), ("exact:0.05", "attribution_most:0.05"))
)


def arm_of(config: dict) -> str | None:
    """Of intermediate pre-training: its policy, and fine-tuning for as long, which the others are compared with."""
    if config["method"] == "intermediate_pretraining":
        return str(PolicyAtRate.of(config))
    if config["method"] != FINE_TUNING:
        return None
    return {6: FINE_TUNING, 3: _SHORTER}.get(config["epochs"])


def label(arm: str) -> str:
    return _LABELS.get(arm) or PolicyAtRate.parse(arm).label


PRETRAINING = ArmComparison(arm_of, label, choose=lambda arms: arms)

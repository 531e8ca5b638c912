"""A shortcut of strength 0.5: fine-tuning and Mask-tuning at several learning rates (`PLAN_policies.md`)."""

from collections.abc import Mapping
from pathlib import Path

from mtlib.analysis import policies
from mtlib.analysis.comparison import FINE_TUNING, ArmComparison
from mtlib.analysis.policy_names import PolicyAtRate
from mtlib.runs.records import read_records

_ARMS = (FINE_TUNING, str(PolicyAtRate("exact", 0.05)), str(PolicyAtRate("known_shortcut", 1)))
_BEST = (1e-4, 1e-4)  # fine-tuning's, of the pairs of rates that were tried, by mean accuracy in distribution


def arm_of(config: Mapping) -> str | None:
    """Fine-tuning, random masks of 5 % or masks on all of the shortcut, with the rates but for fine-tuning at its best.

    None for other runs: other masks, another length, without refilling.
    """
    arm, pair = policies.arm(config), (config["learning_rate"], config["classifier_learning_rate"])
    if config["method"] not in (FINE_TUNING, "mask_tuning") or arm not in _ARMS:
        return None
    if config["epochs"] != 8 or config.get("classifier_reads") == "original":
        return None
    return arm if arm == FINE_TUNING and pair == _BEST else " ".join((arm, *map(str, pair)))


def label(arm: str) -> str:
    return policies.label(arm.split()[0])


RATES = ArmComparison(arm_of, label, choose=lambda arms: arms)


def at_several_rates(results: Path) -> list[dict]:
    """The runs at strength 0.5 of both files of records."""
    return read_records([results / f"{name}.jsonl" for name in ("policies_weaker_rates", "policies_weaker")])

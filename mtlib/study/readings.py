"""Other readings of what Mask-tuning trains on: block 10 of `data/results/PLAN2.md`."""

from mtlib.analysis.comparison import FINE_TUNING, ArmComparison, Arms

_CLASSIFIED = {
    "fine_tuning": "refilled text (balanced)",
    "original_and_refilled": "original and refilled text",
    "validated_or_original": "refilled, the original where the answer changes",
    "validated_or_dropped": "refilled, dropped where the answer changes",
}
_ROWS = 16_000


def arm_of(config: dict) -> str | None:
    """What is classified, in words; fine-tuning by its name. None for runs of another size or update."""
    if config.get("train_size") != _ROWS:
        return None
    if config["method"] == FINE_TUNING:
        return FINE_TUNING
    if config.get("update") != "balanced":
        return None
    return "refilled in evaluation mode" if config["fill_mode"] == "eval" else _CLASSIFIED[config["classification"]]


def label(arm: str) -> str:
    return "original text (fine-tuning)" if arm == FINE_TUNING else arm


def at_common_seeds(arms: Arms) -> Arms:
    """The runs of the seeds that every arm has, so that means and differences speak of the same runs."""
    seeds = [{run["config"]["seed"] for run in runs} for runs in arms.values()]
    common = set.intersection(*seeds) if seeds else set()
    return {arm: [run for run in runs if run["config"]["seed"] in common] for arm, runs in arms.items() if common}


READINGS = ArmComparison(arm_of, label, at_common_seeds)

"""Which part of Mask-tuning matters: Table III where the method works, and the row that the table lacks.

Where it works: on the testbed, with every word of the planted shortcut masked. The missing row keeps the masked-LM loss
and leaves the refilling out: the classifier reads the original text.
"""

from pathlib import Path

from mtlib.analysis.comparison import FINE_TUNING, ArmComparison, at_best_rates
from mtlib.runs.records import read_records

STEPS = 2000
_READS = {"refilled": "Mask-tuning (balanced): the refilled text", "original": "without refilling: the original text"}


def told_the_words(results: Path) -> list[dict]:
    """The runs of the third comparison in `data/results/PLAN_policies.md`, fine-tuning among them, of equal length.

    The balanced update and fine-tuning are those of the comparison of policies.
    """
    return [
        record
        for record in read_records([results / "ablations.jsonl", results / "policies.jsonl"])
        if record["cost"]["steps"] == STEPS and _arm_told(record["config"])
    ]


def _arm_told(config: dict) -> bool:
    return config["masking"] is None or (config["masking"], config["mask_rate"]) == ("known_shortcut", 1)


def as_printed(results: Path) -> list[dict]:
    """The runs on the testbed as the paper prints the method: equation 1 (the joint update), 5 % masked at random."""
    return with_settings(results / "policies.jsonl", update="joint", masking="exact", mask_rate=0.05)


def without_refilling(results: Path) -> list[dict]:
    """The control of what is masked: 30 % at random, with the masked-LM loss; the classifier reads the original."""
    return with_settings(results / "ablations.jsonl", classifier_reads="original", masking="exact", mask_rate=0.3)


def with_settings(file: Path, **settings) -> list[dict]:
    return [record for record in read_records([file]) if settings.items() <= record["config"].items()]


def reading_originals(results: Path) -> list[dict]:
    """The runs on SST-2 and edited reviews with and without refilling, and fine-tuning of equal length."""
    files = [results / f"{name}.jsonl" for name in ("auxiliary_sst2", "sizes", "peers_sst2")]
    return [record for record in read_records(files) if record["config"]["train_size"] == 4000]


def _arm_of(config: dict) -> str | None:
    """What the classifier reads, with the balanced update; fine-tuning by its name."""
    if config["method"] == FINE_TUNING:
        return FINE_TUNING
    if config.get("update") != "balanced" or config.get("classification") not in (None, "fine_tuning"):
        return None
    return config.get("classifier_reads") or "refilled"


def _label(arm: str) -> str:
    return "fine-tuning: the original text" if arm == FINE_TUNING else _READS[arm]


WITHOUT_REFILLING = ArmComparison(_arm_of, _label, at_best_rates, (("original", "refilled"),))

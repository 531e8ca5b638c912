"""The rows of Table III where Mask-tuning works: on the testbed, with every word of the planted shortcut masked."""

from pathlib import Path

from mtlib.runs.records import read_records

STEPS = 2000


def told_the_words(results: Path) -> list[dict]:
    """The runs of the third comparison in `data/results/PLAN_policies.md`, fine-tuning among them, of equal length.

    The balanced update and fine-tuning are those of the comparison of policies.
    """
    return [
        record
        for record in read_records([results / "ablations.jsonl", results / "policies.jsonl"])
        if record["cost"]["steps"] == STEPS and record["config"]["masking"] in (None, "known_shortcut")
    ]

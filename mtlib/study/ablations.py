"""The rows of Table III where Mask-tuning works: on the testbed, with every word of the planted shortcut masked."""

from pathlib import Path

from mtlib.runs.records import read_records


def told_the_words(results: Path) -> list[dict]:
    """The runs of the third comparison in `data/results/PLAN_policies.md`, fine-tuning among them: 2,000 steps each.

    The balanced update and fine-tuning are those of the comparison of policies.
    """
    policies = read_records([results / "policies.jsonl"])
    return [
        *read_records([results / "ablations.jsonl"]),
        *(record for record in policies if _as_long(record["config"])),
    ]


def _as_long(config: dict) -> bool:
    return config["epochs"] == 8 and config["masking"] in (None, "known_shortcut")

"""SST-2 with the base-sized model: longer trainings, other rates of the trunk, other masks.

The plans: `data/results/PLAN2.md`, block 1, and `data/results/PLAN_policies.md`.
"""

from pathlib import Path

from mtlib.analysis.comparison import Arms
from mtlib.analysis.frame import by_row
from mtlib.runs.records import read_records
from mtlib.study.plan import arm_of


def longer(row: str) -> str:
    """The name of the arm that trains for twice as long as `row`."""
    return f"{row}, 6 epochs"


def by_length(results: Path) -> Arms:
    """The arms of the comparison by their rows, those of twice the epochs under `longer`."""
    twice = by_row(read_records([results / "base_long.jsonl"]))
    return by_row(read_records([results / "base.jsonl"])) | {longer(row): runs for row, runs in twice.items()}


def at_several_rates(results: Path) -> list[dict]:
    """The runs with seed 0 of the arms whose rate of the trunk was tried: at the comparison's rate and at others."""
    runs = read_records([results / "base_grid.jsonl"])
    tried = {arm_of(run["config"]) for run in runs}
    for run in read_records([results / "base.jsonl"]):
        if run["config"]["seed"] == 0 and arm_of(run["config"]) in tried:
            runs.append(run)
    return runs


def with_policies(results: Path) -> list[dict]:
    """The runs of other masking policies, and those of fine-tuning and of random masks beside them."""
    return read_records([results / "base.jsonl", results / "base_policies.jsonl"])

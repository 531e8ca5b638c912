"""SST-2 with the base-sized model: longer trainings, other rates of the trunk, other masks.

The plans: `data/results/PLAN2.md`, block 1, and `data/results/PLAN_policies.md`.
"""

from pathlib import Path

import pandas

from mtlib.analysis.comparison import Arms, accuracy
from mtlib.analysis.frame import by_row, common_sets
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
    grid = read_records([results / "base_grid.jsonl"])
    tried, plain = {arm_of(run["config"]) for run in grid}, read_records([results / "base.jsonl"])
    return grid + [run for run in plain if run["config"]["seed"] == 0 and arm_of(run["config"]) in tried]


def rates(results: Path) -> pandas.DataFrame:
    """Accuracy on each set, in per cent, by arm and rate of the trunk; one seed."""
    runs = at_several_rates(results)
    runs.sort(key=lambda run: (arm_of(run["config"]), run["config"]["learning_rate"]))
    lines = [
        {"arm": arm_of(run["config"]), "trunk's rate": f"{run['config']['learning_rate']:.0e}"}
        | {name: f"{accuracy(run, name):.1f}" for name in common_sets(runs)}
        for run in runs
    ]
    return pandas.DataFrame(lines).set_index("arm")


def with_policies(results: Path) -> list[dict]:
    """The runs of other masking policies, and those of fine-tuning and of random masks beside them."""
    return read_records([results / "base.jsonl", results / "base_policies.jsonl"])

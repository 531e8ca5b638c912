"""The study's records by the arms of its plan."""

from collections.abc import Iterable

import pandas

from mtlib.analysis.comparison import check_one_run_a_seed, group_by_arm
from mtlib.analysis.frame import frame
from mtlib.data.tasks import TASKS
from mtlib.study.plan import EVERY_ARM, arm_of, split


def by_arm(records: Iterable[dict]) -> dict[tuple[str, str], list[dict]]:
    """Records by task and arm, in the order of the study's arms. Without the grid, points of curves, and diverged runs.

    Raises:
        UserError: records that are not of one study, or two of one arm and seed.
    """
    arms = group_by_arm(split(records)[1], lambda config: (config["task"], arm_of(config)))
    order = [(task, arm.name) for task in TASKS for arm in EVERY_ARM if (task, arm.name) in arms]
    for task, arm in order:
        check_one_run_a_seed(arms[task, arm], f"{task}, {arm}")
    return {key: arms[key] for key in order}


def scores_of_arms(records: Iterable[dict]) -> pandas.DataFrame:
    """`frame` of the runs in `by_arm`, whose rows are named by their arms, with the points `above_majority`."""
    scores = frame([record for group in by_arm(records).values() for record in group], arm_of)
    order = [*TASKS, *(arm.name for arm in EVERY_ARM)]
    in_order = scores.sort_values(["task", "row"], key=lambda names: names.map(order.index), ignore_index=True)
    return in_order.assign(above_majority=in_order["accuracy"] - in_order["majority"])


def by_seed(scores: pandas.DataFrame, measure: str, *arms: str) -> pandas.DataFrame:
    """One set's scores with a line per seed and a column per arm; NaN where an arm was not run."""
    return scores.pivot(index="seed", columns="row", values=measure).reindex(columns=list(dict.fromkeys(arms)))

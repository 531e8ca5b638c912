"""The verdict on each claim of the paper in plain words: holds here, does not hold here, cannot be decided, not run."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import pandas

from mtlib.analysis.figures.style import label
from mtlib.analysis.statistics import FAILS, HOLDS, NOT_RUN, OPEN
from mtlib.data.tasks import TASKS
from mtlib.study.claims import AT_CHANCE, CLAIMS, Cell, Claim, by_pair, cells, scores_of_arms, unlearned

MIXED = "holds on some sets, not on others"


class Judged(NamedTuple):
    """A claim on one evaluation set: the verdict, the difference in points, and why it could not be judged, if so."""

    word: str
    points: float | None
    obstacle: str


def verdicts(records: Sequence[dict]) -> pandas.DataFrame:
    """A row for each claim of the paper: `claim`, the verdict `here`, and `why`, task by task."""
    rows = []
    for claim in (claim for claim in CLAIMS if claim.sign):
        judged = judge(claim, records)
        by_task = {task: {name: cell for (of, name), cell in judged.items() if of == task} for task in TASKS}
        why = "; ".join(f"{task}: {_reasons(by_set)}" for task, by_set in by_task.items() if by_set)
        rows.append({"claim": claim.text, "here": overall(judged.values()), "why": why})
    return pandas.DataFrame(rows)


def judge(claim: Claim, records: Sequence[dict]) -> dict[tuple[str, str], Judged]:
    """The claim on every set that it is about, by task and set.

    The rules of the study (`claims`), and two more that only ever take a verdict away. An arm that did not train (at
    most two points above the majority class in distribution) is judged on no set. Where both arms guess (accuracy
    within two points of the majority class, or balanced accuracy within two points of that of guessing) a set says
    nothing.
    """
    untrained, balanced = set(unlearned(records)), _balanced(records)
    judged = {}
    for cell in cells(claim, records):
        idle = [label(arm) for arm in (claim.arm, claim.base) if (cell.task, arm) in untrained]
        chance = 100 / len(TASKS[cell.task].labels)
        levels = [balanced.get((cell.task, cell.set_name, arm)) for arm in (claim.arm, claim.base)]
        guess = all(level is not None and abs(level - chance) <= AT_CHANCE for level in levels)
        judged[cell.task, cell.set_name] = _judged(cell, idle, cell.at_chance or guess)
    return judged


def panels(records: Sequence[dict]) -> dict[tuple[str, str, str], list[Cell]]:
    """`claims.panels` of the paper's claims alone; what could not be judged counts as at chance, so it is hollow."""

    def judged_cells(claim: Claim) -> list[Cell]:
        judged = judge(claim, records)
        return [
            replace(cell, at_chance=bool(judged[cell.task, cell.set_name].obstacle)) for cell in cells(claim, records)
        ]

    return by_pair([claim for claim in CLAIMS if claim.sign], judged_cells)


def overall(judged: Iterable[Judged]) -> str:
    """One word for a claim: that of more than half of the sets that could be judged."""
    run = [cell for cell in judged if cell.word != NOT_RUN]
    words = Counter(cell.word for cell in run if not cell.obstacle)
    if words[HOLDS] and words[FAILS]:
        return MIXED
    for word in (HOLDS, FAILS):
        if 2 * words[word] > words.total():
            return word
    return OPEN if run else NOT_RUN


def _judged(cell: Cell, untrained: list[str], guessing: bool) -> Judged:
    if cell.difference is None:
        return Judged(NOT_RUN, None, "")
    if untrained:
        return Judged(OPEN, cell.difference.mean, f"{' and '.join(untrained)} did not train")
    if guessing:
        return Judged(OPEN, cell.difference.mean, "both only guess")
    word = {"reproduced": HOLDS, "contradicted": FAILS}.get(cell.verdict, OPEN)
    return Judged(word, cell.difference.mean, "")


def _reasons(by_set: dict[str, Judged]) -> str:
    """The sets with one word and reason together; the difference in points where it was judged."""
    sets = defaultdict(list)
    for name, cell in by_set.items():
        judged = cell.points is not None and not cell.obstacle
        sets[cell.obstacle or cell.word].append(f"{name} {cell.points:+.1f}" if judged else name)
    return ", ".join(f"{reason} ({', '.join(names)})" for reason, names in sets.items())


def _balanced(records: Sequence[dict]) -> dict[tuple[str, str, str], float]:
    """Mean balanced accuracy by task, set and arm, in per cent."""
    scores = scores_of_arms(records).dropna(subset="balanced")
    return scores.groupby(["task", "set", "row"])["balanced"].mean().to_dict()

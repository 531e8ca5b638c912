"""What the study's records say about the paper's claims, by the rules that `data/results/PLAN.md` set beforehand."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas

from mtlib.analysis.row_names import label
from mtlib.analysis.statistics import (
    FAILS,
    FEWEST_SEEDS,
    HOLDS,
    NOT_RUN,
    OPEN,
    Difference,
    paired_difference,
    verdict,
)
from mtlib.data.registry import get_set
from mtlib.data.tasks import TASKS, kind
from mtlib.study import paper
from mtlib.study.arms import by_seed, scores_of_arms

AT_CHANCE = 2.0  # points, to the majority class or to the balanced accuracy of guessing
_PRINTED = "BERT-base"  # the paper's model that the bundled one is most like
MIXED = "holds on some sets, not on others"


@dataclass(frozen=True)
class Claim:
    """The paper says: `arm` minus `base` has this sign on sets of these kinds. Sign 0: a question of our own."""

    question: str
    text: str
    arm: str
    base: str
    kinds: tuple[str, ...]
    sign: int


CLAIMS = (
    Claim("Q1", "Mask-tuning generalises better", "mask_tuning", "fine_tuning", ("ood",), 1),
    Claim("Q2", "Mask-tuning improves in-distribution accuracy", "mask_tuning", "fine_tuning", ("id",), 1),
    Claim("Q3", "the integrated loss is essential", "mask_tuning", "no_integrated_loss", ("id", "ood"), 1),
    Claim("Q4", "augmenting helps a little", "augmented", "fine_tuning", ("id", "ood"), 1),
    Claim("Q5", "augmenting is far behind Mask-tuning", "mask_tuning", "augmented", ("id", "ood"), 1),
    Claim("Q6", "sequential training lowers accuracy", "sequential", "fine_tuning", ("id", "ood"), -1),
    Claim("Q7", "at equal cost", "mask_tuning", "fine_tuning (6 epochs)", ("id", "ood"), 0),
    Claim("Q8", "alternating instead of joint update", "mask_tuning (alternating)", "mask_tuning", ("id", "ood"), 0),
    Claim("Q11", "two trunks instead of one", "mask_tuning (separate trunks)", "mask_tuning", ("id", "ood"), 0),
    Claim("Q11", "sampled instead of likeliest word", "mask_tuning (sampled fill)", "mask_tuning", ("id", "ood"), 0),
    Claim("Q11", "Bernoulli instead of exact masks", "mask_tuning (Bernoulli)", "mask_tuning", ("id", "ood"), 0),
)


OF_THE_PAPER = tuple(claim for claim in CLAIMS if claim.sign)


@dataclass(frozen=True)
class Cell:
    """A claim on one evaluation set.

    Args:
        task, set_name: where.
        difference: paired by seed, in points, with its 95 % t interval; None below three seeds in common.
        decisive: the same with the interval that decides the verdict; where there is none to decide, that of 95 %.
        word: the verdict: `HOLDS`, `FAILS`, `OPEN` or `NOT_RUN` of `mtlib.analysis.statistics`. For a question without
            an expected sign it is "", unless it was not run.
        obstacle: why the set says nothing, else "". An arm did not train: its mean on the task's dev set is at most two
            points above the majority class, so it hardly does better than one answer to everything, which is no
            generalisation even where that answer is often right. Or both arms only guess: their means lie within two
            points of the set's majority class, or their balanced accuracies within two points of guessing. It takes the
            verdict away: the word is `OPEN`.
    """

    task: str
    set_name: str
    difference: Difference | None
    word: str
    obstacle: str = ""
    decisive: Difference | None = None


def cells(claim: Claim, scores: pandas.DataFrame) -> list[Cell]:
    """The claim on every set of its kinds, sets that were not run included, from `scores_of_arms`.

    With m such sets the interval that decides has level 1 - 0.05 / m (Bonferroni).
    """
    sets = [(task, name) for task in TASKS for name in TASKS[task].evaluation_sets("hub") if kind(name) in claim.kinds]
    idle = [(task, arm) for task, arm in untrained(scores) if arm in (claim.arm, claim.base)]
    on = dict(list(scores.groupby(["task", "set"])))
    return [
        _cell(
            claim, task, name, on.get((task, name), scores.iloc[:0]), len(sets), [arm for of, arm in idle if of == task]
        )
        for task, name in sets
    ]


def overall(cells: Iterable[Cell]) -> str:
    """One word for a claim: that of more than half of the sets that could be judged."""
    run = [cell for cell in cells if cell.word != NOT_RUN]
    words = Counter(cell.word for cell in run if not cell.obstacle)
    if words[HOLDS] and words[FAILS]:
        return MIXED
    for word in (HOLDS, FAILS):
        if 2 * words[word] > words.total():
            return word
    return OPEN if run else NOT_RUN


def verdicts(records: Iterable[dict]) -> pandas.DataFrame:
    """A row for each claim of the paper: its question, `claim`, the verdict `here`, and `why`, task by task."""
    rows, scores = [], scores_of_arms(records)
    for claim in OF_THE_PAPER:
        found = cells(claim, scores)
        by_task = {task: [cell for cell in found if cell.task == task] for task in TASKS}
        why = "; ".join(f"{task}: {_reasons(of_task)}" for task, of_task in by_task.items() if of_task)
        rows.append({"": claim.question, "claim": claim.text, "here": overall(found), "why": why})
    return pandas.DataFrame(rows).set_index("")


def by_set(records: Iterable[dict], task: str) -> pandas.DataFrame:
    """Every question on every set of a task: difference in points, 95 % interval; for the paper's claims a verdict.

    Below each of these stands the difference that the paper prints.
    """
    rows, scores = [], scores_of_arms(records)
    for claim in CLAIMS:
        texts = {cell.set_name: _text(cell) for cell in cells(claim, scores) if cell.task == task}
        rows.append({"": claim.question, "asked": claim.text, "compared": f"{claim.arm} - {claim.base}", **texts})
        if claim.sign:
            printed = {name: paper.difference(claim.arm, claim.base, name, _PRINTED) for name in texts}
            texts = {name: f"{points:+.1f}" for name, points in printed.items() if points is not None}
            rows.append({"": claim.question, "asked": f"the same in the paper ({_PRINTED})", "compared": "", **texts})
    names = TASKS[task].evaluation_sets("hub")
    return pandas.DataFrame(rows, columns=["", "asked", "compared", *names]).set_index("").fillna("")


def panels(records: Iterable[dict], claims: Iterable[Claim] = CLAIMS) -> dict[tuple[str, str, str], list[Cell]]:
    """The cells of claims about the same two arms together, where any of them was run: what `figures.claims` draws.

    The keys are the questions and the names of the two arms.
    """
    scores, asked, of_pair = scores_of_arms(records), defaultdict(list), defaultdict(list)
    for claim in claims:
        asked[claim.arm, claim.base].append(claim.question)
        of_pair[claim.arm, claim.base] += cells(claim, scores)
    return {
        (", ".join(asked[pair]), *pair): found
        for pair, found in of_pair.items()
        if any(cell.difference is not None for cell in found)
    }


def untrained(scores: pandas.DataFrame) -> list[tuple[str, str]]:
    """Task and arm where the mean over all seeds on the dev set is at most two points above the majority class."""
    on_dev = scores[scores["set"] == scores["task"].map(lambda task: TASKS[task].dev_set("hub"))]
    means = on_dev.groupby(["task", "row"], sort=False)["above_majority"].mean()
    return list(means.index[means <= AT_CHANCE])


def _cell(claim: Claim, task: str, set_name: str, on_set: pandas.DataFrame, m: int, idle: Sequence[str]) -> Cell:
    """The claim on one of `m` sets, by the scores on it."""
    accuracy = by_seed(on_set, "accuracy", claim.arm, claim.base).dropna()
    if len(accuracy) < FEWEST_SEEDS:
        return Cell(task, set_name, None, NOT_RUN)
    points = accuracy[claim.arm] - accuracy[claim.base]
    above = by_seed(on_set, "above_majority", claim.arm, claim.base).loc[accuracy.index].mean()
    # all seeds of an arm count: some records are from before balanced accuracy was kept
    guessing = 100 / len(get_set(set_name).label_names)  # HANS has two labels, though its task has three
    over_guessing = by_seed(on_set, "balanced", claim.arm, claim.base).mean() - guessing
    obstacle = ""
    if idle:
        obstacle = f"{' and '.join(map(label, idle))} did not train"
    elif (above.abs() <= AT_CHANCE).all() or (over_guessing.abs() <= AT_CHANCE).all():
        obstacle = "both only guess"
    level = 1 - 0.05 / m if claim.sign else 0.95
    word = verdict(paired_difference(list(claim.sign * points), level)) if not obstacle else OPEN
    return Cell(
        task, set_name, paired_difference(list(points)), word if claim.sign else "", obstacle,
        paired_difference(list(points), level),
    )  # fmt: skip


def _text(cell: Cell) -> str:
    if cell.difference is None:
        return cell.word
    difference = cell.difference.text()
    if cell.obstacle:
        return f"{difference} ({cell.obstacle})"
    return f"{cell.word}: {difference}" if cell.word else difference


def _reasons(cells: Iterable[Cell]) -> str:
    """The sets with one word and reason together; the difference in points where it was judged."""
    sets = defaultdict(list)
    for cell in cells:
        judged = cell.difference is not None and not cell.obstacle
        name = f"{cell.set_name} {round(cell.difference.mean, 1) + 0.0:+.1f}" if judged else cell.set_name
        sets[cell.obstacle or cell.word].append(name)
    return ", ".join(f"{reason} ({', '.join(names)})" for reason, names in sets.items())

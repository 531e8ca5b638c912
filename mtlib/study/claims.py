"""What the study's records say about the paper's claims, by the rules that `data/results/PLAN.md` set beforehand."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas

from mtlib.analysis.comparison import check_one_run_a_seed, group_by_arm
from mtlib.analysis.figures.style import label
from mtlib.analysis.frame import common_sets, frame
from mtlib.analysis.statistics import (
    FAILS,
    FEWEST_SEEDS,
    HOLDS,
    NOT_RUN,
    OPEN,
    Difference,
    paired_difference,
    spread,
    verdict,
)
from mtlib.analysis.tables import pipe_table
from mtlib.data.tasks import TASKS, kind
from mtlib.methods import METHODS
from mtlib.study import paper
from mtlib.study.plan import EVERY_ARM, arm_of, points_of_curve, split

AT_CHANCE = 2.0  # points, to the majority class or to the balanced accuracy of guessing
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


def cells(claim: Claim, records: Iterable[dict], tasks: Sequence[str] = tuple(TASKS)) -> list[Cell]:
    """The claim on every set of its kinds, sets that were not run included.

    With m such sets the interval that decides has level 1 - 0.05 / m (Bonferroni).
    """
    return _cells(claim, scores_of_arms(records), tasks)


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
        cells = _cells(claim, scores)
        by_task = {task: [cell for cell in cells if cell.task == task] for task in TASKS}
        why = "; ".join(f"{task}: {_reasons(of_task)}" for task, of_task in by_task.items() if of_task)
        rows.append({"": claim.question, "claim": claim.text, "here": overall(cells), "why": why})
    return pandas.DataFrame(rows).set_index("")


def by_set(records: Iterable[dict], task: str) -> pandas.DataFrame:
    """Every question on every set of a task: difference in points, 95 % interval; for the paper's claims a verdict."""
    rows, scores = [], scores_of_arms(records)
    for claim in CLAIMS:
        texts = {cell.set_name: _text(cell) for cell in _cells(claim, scores) if cell.task == task}
        rows.append({"": claim.question, "asked": claim.text, "compared": f"{claim.arm} - {claim.base}", **texts})
    names = TASKS[task].evaluation_sets("hub")
    return pandas.DataFrame(rows, columns=["", "asked", "compared", *names]).set_index("").fillna("")


def untrained(records: Iterable[dict]) -> list[tuple[str, str]]:
    """Task and arm where the mean over all seeds on the dev set is at most two points above the majority class."""
    return _untrained(scores_of_arms(records))


def panels(records: Iterable[dict], claims: Iterable[Claim] = CLAIMS) -> dict[tuple[str, str, str], list[Cell]]:
    """The cells of claims about the same two arms together, where any of them was run: what `figures.claims` draws.

    The keys are the questions and the names of the two arms.
    """
    scores, asked, cells = scores_of_arms(records), defaultdict(list), defaultdict(list)
    for claim in claims:
        asked[claim.arm, claim.base].append(claim.question)
        cells[claim.arm, claim.base] += _cells(claim, scores)
    return {
        (", ".join(asked[pair]), *pair): cells_of_pair
        for pair, cells_of_pair in cells.items()
        if any(cell.difference is not None for cell in cells_of_pair)
    }


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


def beside(table: str, records: Iterable[dict]) -> pandas.DataFrame:
    """The paper's Table "I" or "III", ours below each method: mean ± sd (seeds) in per cent, or "not run".

    Cells that are empty in the paper are empty.
    """
    scores, wide, rows = scores_of_arms(records), paper.grid(table), []
    ours = scores.groupby(["row", "set"])["accuracy"].agg(lambda values: f"{spread(list(values))} ({len(values)})")
    for method in filter(METHODS.get, wide.index.unique("method")):
        printed = [model for model in wide.index.unique("model") if (model, method) in wide.index]
        for model in printed:
            values = wide.loc[(model, method)].map("{:.2f}".format, na_action="ignore").fillna("")
            rows.append({"method": method, "model": f"paper: {model}", **values})
        if printed:
            texts = {name: ours.get((method, sets[0]), "not run") for name, sets in paper.OUR_SETS.items()}
            rows.append({"method": method, "model": "here", **texts})
    return pandas.DataFrame(rows).set_index(["method", "model"])


def by_label(records: Iterable[dict], task: str) -> pandas.DataFrame:
    """Accuracy on each gold label of every set of a task, and their mean (balanced accuracy), in per cent.

    An arm that only gives one answer more often, whatever the text, gains accuracy where that answer is common; its
    balanced accuracy tends to that of a guess. With the difference to fine-tuning, paired by seed. Records from
    before it was kept are left out.
    """
    scores, rows = scores_of_arms(records).dropna(subset="by_label"), []
    for name in TASKS[task].evaluation_sets("hub"):
        on_set = scores[(scores["task"] == task) & (scores["set"] == name)]
        for arm, group in on_set.groupby("row", sort=False):
            balanced = _by_seed(on_set, "balanced", arm, "fine_tuning")
            points = list((balanced[arm] - balanced["fine_tuning"]).dropna()) if arm != "fine_tuning" else []
            means = pandas.DataFrame(list(group["by_label"])).mean()
            rows.append({
                "set": name, "arm": arm, "seeds": len(group),
                "on each gold label": ", ".join(f"{label} {mean:.1f}" for label, mean in means.items()),
                "balanced": spread(list(group["balanced"])),
                "difference to fine_tuning":
                    _difference_text(paired_difference(points)) if len(points) >= FEWEST_SEEDS else "",
            })  # fmt: skip
    return pandas.DataFrame(rows, columns=None if rows else ["set"]).set_index("set")


def curves(records: Sequence[dict], task: str) -> pandas.DataFrame:
    """The points of a task's alpha and masking-rate curves: mean ± sd in per cent, at the seeds and sets all have.

    Balanced accuracy (`by_label`) follows the accuracy on a set where all of them have it.
    """
    rows = []
    for setting in ("alpha", "mask_rate"):
        points = points_of_curve(records, task, setting)
        if len(points) < 2:
            continue
        sets = common_sets([record for group in points.values() for record in group])
        scores = pandas.concat([frame(group).assign(value=value) for value, group in points.items()])
        measures = {
            f"{name}{suffix}": (name, measure)
            for name in sets
            for suffix, measure in (("", "accuracy"), (", balanced", "balanced"))
            if scores.loc[scores["set"] == name, measure].notna().all()
        }
        for value, group in scores.groupby("value"):
            texts = {text: spread(list(group.loc[group["set"] == name, measure]))
                     for text, (name, measure) in measures.items()}  # fmt: skip
            rows.append({"setting": setting, "value": f"{value:g}", "seeds": group["seed"].nunique(), **texts})
    return pandas.DataFrame(rows, columns=None if rows else ["setting"]).set_index("setting").fillna("not run")


def cost(records: Iterable[dict]) -> pandas.DataFrame:
    """Medians over the runs of every arm: seconds of training, peak memory, and both by fine-tuning's."""
    costs = [{"task": task, "arm": arm, **record["cost"]}
             for (task, arm), group in by_arm(records).items() for record in group]  # fmt: skip
    if not costs:
        return pandas.DataFrame(columns=["task", "arm"]).set_index(["task", "arm"])
    runs = pandas.DataFrame(costs).groupby(["task", "arm"], sort=False)
    medians = runs[["train_seconds", "peak_memory_mb"]].median()
    plain = medians.xs("fine_tuning", level="arm").reindex(medians.index, level="task")
    ratios = (medians / plain).round(2)
    return pandas.DataFrame({
        "runs": runs.size(),
        "steps": runs["steps"].first(),
        "seconds": medians["train_seconds"].round().astype(int),
        "peak memory, MB": medians["peak_memory_mb"].round().astype(int),
        "time / fine-tuning": ratios["train_seconds"],
        "memory / fine-tuning": ratios["peak_memory_mb"],
    })  # fmt: skip


def markdown(table: pandas.DataFrame) -> str:
    """A table for a README, with its index in the first columns."""
    flat = table.reset_index()
    return pipe_table(flat.columns, flat.itertuples(index=False), words=len(flat.columns))


def _cells(claim: Claim, scores: pandas.DataFrame, tasks: Sequence[str] = tuple(TASKS)) -> list[Cell]:
    """`cells`, from `scores_of_arms`."""
    sets = [(task, name) for task in tasks for name in TASKS[task].evaluation_sets("hub") if kind(name) in claim.kinds]
    idle = {task: [label(arm) for of, arm in _untrained(scores) if of == task and arm in (claim.arm, claim.base)]
            for task in tasks}  # fmt: skip
    on = dict(list(scores.groupby(["task", "set"])))
    return [_cell(claim, *key, on.get(key, scores.iloc[:0]), len(sets), idle[key[0]]) for key in sets]


def _cell(claim: Claim, task: str, set_name: str, on_set: pandas.DataFrame, m: int, untrained: Sequence[str]) -> Cell:
    """The claim on one of `m` sets, by the scores on it."""
    accuracy = _by_seed(on_set, "accuracy", claim.arm, claim.base).dropna()
    if len(accuracy) < FEWEST_SEEDS:
        return Cell(task, set_name, None, NOT_RUN)
    points = accuracy[claim.arm] - accuracy[claim.base]
    above = _by_seed(on_set, "above_majority", claim.arm, claim.base).loc[accuracy.index].mean()
    # all seeds of an arm count: some records are from before balanced accuracy was kept
    over_guessing = _by_seed(on_set, "balanced", claim.arm, claim.base).mean() - 100 / len(TASKS[task].labels)
    obstacle = ""
    if untrained:
        obstacle = f"{' and '.join(untrained)} did not train"
    elif (above.abs() <= AT_CHANCE).all() or (over_guessing.abs() <= AT_CHANCE).all():
        obstacle = "both only guess"
    word = verdict(paired_difference(list(claim.sign * points), 1 - 0.05 / m)) if not obstacle else OPEN
    return Cell(task, set_name, paired_difference(list(points)), word if claim.sign else "", obstacle)


def _untrained(scores: pandas.DataFrame) -> list[tuple[str, str]]:
    """`untrained`, from `scores_of_arms`."""
    on_dev = scores[scores["set"] == scores["task"].map(lambda task: TASKS[task].dev_set("hub"))]
    means = on_dev.groupby(["task", "row"], sort=False)["above_majority"].mean()
    return list(means.index[means <= AT_CHANCE])


def _by_seed(scores: pandas.DataFrame, measure: str, *arms: str) -> pandas.DataFrame:
    """One set's scores with a line per seed and a column per arm; NaN where an arm was not run."""
    return scores.pivot(index="seed", columns="row", values=measure).reindex(columns=list(dict.fromkeys(arms)))


def _text(cell: Cell) -> str:
    if cell.difference is None:
        return cell.word
    difference = _difference_text(cell.difference)
    if cell.obstacle:
        return f"{difference} ({cell.obstacle})"
    return f"{cell.word}: {difference}" if cell.word else difference


def _reasons(cells: Iterable[Cell]) -> str:
    """The sets with one word and reason together; the difference in points where it was judged."""
    sets = defaultdict(list)
    for cell in cells:
        judged = cell.difference is not None and not cell.obstacle
        name = f"{cell.set_name} {cell.difference.mean:+.1f}" if judged else cell.set_name
        sets[cell.obstacle or cell.word].append(name)
    return ", ".join(f"{reason} ({', '.join(names)})" for reason, names in sets.items())


def _difference_text(difference: Difference) -> str:
    return f"{difference.mean:+.1f} [{difference.low:+.1f}, {difference.high:+.1f}]"

"""What the study's records say about the paper's claims, by the rules that `data/results/PLAN.md` set beforehand."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas

from mtlib.analysis.tables import Difference, paired_difference
from mtlib.data.tasks import TASKS, kind
from mtlib.study import paper
from mtlib.study.plan import ARMS, VARIANTS, arm_of, check_one_run_a_seed, curve, split

FEWEST_SEEDS = 3
AT_CHANCE = 2.0  # points to the majority class
VERDICTS = ("reproduced", "leaning", "undecided", "leaning against", "contradicted", "not learned", "not run")


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


@dataclass(frozen=True)
class Cell:
    """A claim on one evaluation set.

    Args:
        task, set_name: where.
        difference: paired by seed, in points, with its 95 % t interval; None below three seeds in common.
        verdict: one of `VERDICTS`; "" for a question without an expected sign. "not learned": out of distribution, and
            an arm's mean on the task's dev set is at most two points above the majority class. It is hardly better
            than one answer to everything, which is no generalisation even where that answer is often right.
        at_chance: both arms' means lie within two points of the set's majority class: the cell tells nothing.
    """

    task: str
    set_name: str
    difference: Difference | None
    verdict: str
    at_chance: bool

    @property
    def says_nothing(self) -> bool:
        return self.at_chance or self.verdict == "not learned"


def cells(claim: Claim, records: Iterable[dict], tasks: Sequence[str] = tuple(TASKS)) -> list[Cell]:
    """The claim on every set of its kinds, "not run" included.

    With m such sets the interval that decides has level 1 - 0.05 / m (Bonferroni).
    """
    found = defaultdict(dict)  # (task, arm, set) -> seed -> metrics
    for (task, arm), group in by_arm(records).items():
        for record in group:
            for name, metrics in record["metrics"].items():
                found[task, arm, name][record["config"]["seed"]] = metrics
    places = [
        (task, name) for task in tasks for name in TASKS[task].evaluation_sets("hub") if kind(name) in claim.kinds
    ]
    results = []
    for task, name in places:
        ours, theirs = found[task, claim.arm, name], found[task, claim.base, name]
        seeds = sorted(ours.keys() & theirs.keys())
        if len(seeds) < FEWEST_SEEDS:
            results.append(Cell(task, name, None, "not run", False))
            continue
        points = [100 * (ours[seed]["accuracy"] - theirs[seed]["accuracy"]) for seed in seeds]
        verdict = _verdict(points, claim.sign, len(places)) if claim.sign else ""
        dev = TASKS[task].dev_set("hub")
        if kind(name) == "ood" and any(
            _above_majority(found[task, arm, dev], seeds) <= AT_CHANCE for arm in (claim.arm, claim.base)
        ):
            verdict = "not learned"
        at_chance = all(abs(_above_majority(side, seeds)) <= AT_CHANCE for side in (ours, theirs))
        results.append(Cell(task, name, paired_difference(points), verdict, at_chance))
    return results


def with_verdict(found: Sequence[Cell]) -> list[Cell]:
    """The cells that a claim's word is over."""
    return [cell for cell in found if cell.verdict not in ("not learned", "not run")]


def overall(found: Sequence[Cell]) -> str:
    """One word for a claim, over the sets with a verdict: "reproduced", "contradicted", "mixed", "undecided"."""
    counts = Counter(cell.verdict for cell in with_verdict(found))
    if not counts:
        return "not learned" if any(cell.verdict == "not learned" for cell in found) else "not run"
    better, worse = counts["reproduced"] + counts["leaning"], counts["contradicted"] + counts["leaning against"]
    if better and worse:
        return "mixed"
    for word in ("reproduced", "contradicted"):
        if not (worse if word == "reproduced" else better) and 2 * counts[word] > counts.total():
            return word
    return "undecided"


def summary(records: Sequence[dict]) -> pandas.DataFrame:
    """A row per claim of the paper: its verdict, and how many sets got which."""
    rows = []
    for claim in CLAIMS:
        if claim.sign:
            found = cells(claim, records)
            counts = Counter(cell.verdict for cell in found)
            rows.append({
                "": claim.question,
                "claim": claim.text,
                "compared": f"{claim.arm} - {claim.base}",
                "paper says": "> 0" if claim.sign > 0 else "< 0",
                "verdict": overall(found),
                "sets with a verdict": f"{len(with_verdict(found))} of {len(found)}",
                **{word: counts[word] for word in VERDICTS[:-1]},
                "at chance": sum(cell.at_chance for cell in found),
            })  # fmt: skip
    return pandas.DataFrame(rows).set_index("")


def by_set(records: Sequence[dict], task: str) -> pandas.DataFrame:
    """Every question on every set of a task: difference in points, 95 % interval; for the paper's claims a verdict."""
    rows = []
    for claim in CLAIMS:
        texts = {cell.set_name: _cell_text(cell) for cell in cells(claim, records) if cell.task == task}
        rows.append({"": claim.question, "asked": claim.text, "compared": f"{claim.arm} - {claim.base}", **texts})
    names = TASKS[task].evaluation_sets("hub")
    return pandas.DataFrame(rows, columns=["", "asked", "compared", *names]).set_index("").fillna("")


def unlearned(records: Iterable[dict]) -> list[tuple[str, str]]:
    """Task and arm where the mean over all seeds on the dev set is at most two points above the majority class."""
    found = []
    for (task, arm), group in by_arm(records).items():
        dev = TASKS[task].dev_set("hub")
        by_seed = {record["config"]["seed"]: record["metrics"].get(dev) for record in group}
        scored = {seed: metrics for seed, metrics in by_seed.items() if metrics}
        if _above_majority(scored, list(by_seed)) <= AT_CHANCE:
            found.append((task, arm))
    return found


def panels(records: Sequence[dict]) -> dict[str, list[Cell]]:
    """The comparisons that were run, for `figures.claims`: claims about the same two arms together."""
    asked, found = defaultdict(list), defaultdict(list)
    for claim in CLAIMS:
        asked[claim.arm, claim.base].append(claim.question)
        found[claim.arm, claim.base] += cells(claim, records)
    return {
        f"{', '.join(asked[pair])}: {pair[0]}\n- {pair[1]}": cells_of_pair
        for pair, cells_of_pair in found.items()
        if any(cell.difference is not None for cell in cells_of_pair)
    }


def by_arm(records: Iterable[dict]) -> dict[tuple[str, str], list[dict]]:
    """Records by task and arm, in the order of `study.ARMS` and `VARIANTS`, without the grid and the curves' points.

    Raises:
        UserError: records that are not of one study, or two of one arm and seed.
    """
    found = defaultdict(list)
    for record in split(records)[1]:
        found[record["config"]["task"], arm_of(record["config"])].append(record)
    order = [(task, arm.name) for task in TASKS for arm in (*ARMS, *VARIANTS) if (task, arm.name) in found]
    for task, arm in order:
        check_one_run_a_seed(found[task, arm], f"{task}, {arm}")
    return {key: found[key] for key in order}


def beside(table: str, records: Iterable[dict]) -> pandas.DataFrame:
    """The paper's Table "I" or "III", ours below each method: mean ± sd (seeds) in per cent, or "not run"."""
    found, wide, rows = by_arm(records), paper.grid(table), []
    for method in paper.METHODS:
        printed = [model for model in wide.index.unique("model") if (model, method) in wide.index]
        for model in printed:
            cells_of_row = wide.loc[(model, method)].map("{:.2f}".format)
            rows.append({"method": method, "model": f"paper: {model}", **cells_of_row})
        if printed:
            mine = {name: _mean_text(found, method, sets[0]) for name, sets in paper.SETS.items()}
            rows.append({"method": method, "model": "here", **mine})
    return pandas.DataFrame(rows).set_index(["method", "model"])


def by_label(records: Sequence[dict], task: str) -> pandas.DataFrame:
    """Accuracy on each gold label of every set of a task, and their mean (balanced accuracy), in per cent.

    An arm that only gives one answer more often, whatever the text, gains accuracy where that answer is common; its
    balanced accuracy tends to that of a guess. With the difference to fine-tuning, paired by seed. Records from
    before it was kept are left out.
    """
    scores = defaultdict(dict)  # (set, arm) -> seed -> metrics
    for (of_task, arm), group in by_arm(records).items():
        for record in group if of_task == task else ():
            for name, metrics in record["metrics"].items():
                if "per_label" in metrics:
                    scores[name, arm][record["config"]["seed"]] = metrics
    rows = []
    for name in TASKS[task].evaluation_sets("hub"):
        for arm in (one.name for one in (*ARMS, *VARIANTS) if (name, one.name) in scores):
            own, plain = (
                {seed: balanced(metrics) for seed, metrics in scores[name, one].items()} for one in (arm, "fine_tuning")
            )
            points = [own[seed] - plain[seed] for seed in sorted(own.keys() & plain.keys())]
            difference = paired_difference(points) if arm != "fine_tuning" and len(points) >= FEWEST_SEEDS else None
            by_seed = [_on_gold_labels(metrics) for metrics in scores[name, arm].values()]
            means = {label: statistics.fmean(one[label] for one in by_seed) for label in by_seed[0]}
            rows.append({
                "set": name, "arm": arm, "seeds": len(own),
                "on each gold label": ", ".join(f"{label} {mean:.1f}" for label, mean in means.items()),
                "balanced": _spread_text(list(own.values())),
                "difference to fine_tuning": "" if difference is None else _difference_text(difference),
            })  # fmt: skip
    return pandas.DataFrame(rows, columns=None if rows else ["set"]).set_index("set")


def curves(records: Sequence[dict], task: str) -> pandas.DataFrame:
    """The points of a task's alpha and masking-rate curves: mean ± sd in per cent, at the seeds and sets all have.

    Balanced accuracy (`by_label`) follows the accuracy on a set where all of them have it.
    """
    rows = []
    for name in ("alpha", "mask_rate"):
        points = curve(records, task, name)
        every = [record for group in points.values() for record in group]
        for value, group in points.items() if len(points) > 1 else ():
            texts = {}
            for one in common_sets(every):
                texts[one] = _spread_text([100 * record["metrics"][one]["accuracy"] for record in group])
                if all("per_label" in record["metrics"][one] for record in every):
                    texts[f"{one}, balanced"] = _spread_text([balanced(record["metrics"][one]) for record in group])
            rows.append({"setting": name, "value": f"{value:g}", "seeds": len(group), **texts})
    return pandas.DataFrame(rows, columns=None if rows else ["setting"]).set_index("setting").fillna("not run")


def common_sets(records: Sequence[dict]) -> list[str]:
    """The evaluation sets that all records have, in the order of the first."""
    return [name for name in records[0]["metrics"] if all(name in record["metrics"] for record in records)]


def balanced(metrics: dict) -> float:
    """Balanced accuracy, the mean of the accuracies on each gold label, in per cent."""
    return statistics.fmean(_on_gold_labels(metrics).values())


def cost(records: Iterable[dict]) -> pandas.DataFrame:
    """Medians over the runs of every arm: seconds of training, peak memory, and both by fine-tuning's."""
    found, rows = by_arm(records), []
    for (task, arm), group in found.items():
        seconds = statistics.median(record["cost"]["train_seconds"] for record in group)
        memory = statistics.median(record["cost"]["peak_memory_mb"] for record in group)
        plain = [record["cost"] for record in found.get((task, "fine_tuning"), [])]
        times = {
            name: round(value / statistics.median(one[entry] for one in plain), 2) if plain else None
            for name, value, entry in (
                ("time / fine-tuning", seconds, "train_seconds"),
                ("memory / fine-tuning", memory, "peak_memory_mb"),
            )
        }
        rows.append({
            "task": task,
            "arm": arm,
            "runs": len(group),
            "steps": group[0]["cost"]["steps"],
            "seconds": round(seconds),
            "peak memory, MB": round(memory),
            **times,
        })  # fmt: skip
    return pandas.DataFrame(rows, columns=None if rows else ["task", "arm"]).set_index(["task", "arm"])


def markdown(frame: pandas.DataFrame) -> str:
    """A table for a README, with its index in the first columns."""
    flat = frame.reset_index()
    lines = [list(flat.columns), ["---"] * len(flat.columns), *flat.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _mean_text(found: dict[tuple[str, str], list[dict]], arm: str, set_name: str) -> str:
    values = [
        100 * record["metrics"][set_name]["accuracy"]
        for (_, name), group in found.items()
        for record in group
        if name == arm and set_name in record["metrics"]
    ]
    if not values:
        return "not run"
    return f"{_spread_text(values)} ({len(values)})"


def _on_gold_labels(metrics: dict) -> dict[str, float]:
    return {label: 100 * found["accuracy"] for label, found in sorted(metrics["per_label"].items())}


def _spread_text(values: list[float]) -> str:
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.1f}{spread}"


def _cell_text(cell: Cell) -> str:
    one = cell.difference
    if one is None or cell.verdict == "not learned":
        return cell.verdict
    text = _difference_text(one) + (" (at chance)" if cell.at_chance else "")
    return f"{cell.verdict}: {text}" if cell.verdict else text


def _difference_text(one: Difference) -> str:
    return f"{one.mean:+.1f} [{one.low:+.1f}, {one.high:+.1f}]"


def _above_majority(by_seed: dict[int, dict], seeds: list[int]) -> float:
    """Mean accuracy minus the share of the majority class, in points; nan where a seed lacks the set."""
    if not all(seed in by_seed for seed in seeds):
        return math.nan
    return 100 * statistics.fmean(by_seed[seed]["accuracy"] - by_seed[seed]["majority"] for seed in seeds)


def _verdict(points: list[float], sign: int, m: int) -> str:
    words = ("reproduced", "leaning", "leaning against", "contradicted")
    for level, (on, against) in ((1 - 0.05 / m, (words[0], words[3])), (0.95, (words[1], words[2]))):
        difference = paired_difference([sign * value for value in points], level)
        if difference.low > 0:
            return on
        if difference.high < 0:
            return against
    return "undecided"

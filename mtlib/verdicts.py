"""What the study's records say about the paper's claims, by the rules that `data/results/PLAN.md` set beforehand."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mtlib.study import arm_of
from mtlib.tables import Difference, paired_difference
from mtlib.tasks import TASKS, kind

FEWEST_SEEDS = 3
AT_CHANCE = 2.0  # points above the majority class
VERDICTS = ("reproduced", "leaning", "undecided", "leaning against", "contradicted", "not run")


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
        difference: paired by seed, in points, with its 95 % t interval; None where a seed's pair is missing.
        verdict: one of `VERDICTS`; "" for a question without an expected sign.
        at_chance: both arms' means lie within two points of the majority class: the cell tells nothing.
    """

    task: str
    set_name: str
    difference: Difference | None
    verdict: str
    at_chance: bool


def cells(claim: Claim, records: Iterable[dict], tasks: Sequence[str] = tuple(TASKS)) -> list[Cell]:
    """The claim on every set of its kinds, "not run" included.

    With m such sets the interval that decides has level 1 - 0.05 / m (Bonferroni).
    """
    found = defaultdict(dict)  # (task, arm, set) -> seed -> metrics
    for record in records:
        config = record["config"]
        for name, metrics in record["metrics"].items():
            found[config["task"], arm_of(config), name][config["seed"]] = metrics
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
        majority = 100 * ours[seeds[0]]["majority"]
        means = [sum(100 * side[seed]["accuracy"] for seed in seeds) / len(seeds) for side in (ours, theirs)]
        verdict = _verdict(points, claim.sign, len(places)) if claim.sign else ""
        at_chance = all(mean <= majority + AT_CHANCE for mean in means)
        results.append(Cell(task, name, paired_difference(points), verdict, at_chance))
    return results


def overall(found: Sequence[Cell]) -> str:
    """One word for a claim: "reproduced", "contradicted", "mixed", "undecided" or "not run"."""
    counts = Counter(cell.verdict for cell in found if cell.verdict != "not run")
    if not counts:
        return "not run"
    better, worse = counts["reproduced"] + counts["leaning"], counts["contradicted"] + counts["leaning against"]
    if better and worse:
        return "mixed"
    for word in ("reproduced", "contradicted"):
        if not (worse if word == "reproduced" else better) and 2 * counts[word] > counts.total():
            return word
    return "undecided"


def _verdict(points: list[float], sign: int, m: int) -> str:
    words = ("reproduced", "leaning", "leaning against", "contradicted")
    for level, (on, against) in ((1 - 0.05 / m, (words[0], words[3])), (0.95, (words[1], words[2]))):
        difference = paired_difference([sign * value for value in points], level)
        if difference.low > 0:
            return on
        if difference.high < 0:
            return against
    return "undecided"

"""A comparison over arms, declared as data: which runs belong to which arm, which of them count, what is expected.

An arm is one way of training. Its runs differ in their seed alone. The rules are those that the plans of the testbed's
comparisons share (`data/results/PLAN_policies.md`, `PLAN_peers.md`): differences in accuracy paired by seed, at least
three seeds, and no verdict about an arm that is not trained (more than two points behind fine-tuning in distribution).
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas

from mtlib.analysis.frame import diverged, method_settings
from mtlib.analysis.statistics import (
    AS_DIFFERENCE,
    FEWEST_SEEDS,
    NOT_RUN,
    TRAINED_WITHIN,
    Difference,
    paired_difference,
)
from mtlib.analysis.statistics import verdict as verdict_of
from mtlib.data.tasks import kind
from mtlib.errors import UserError
from mtlib.methods import METHODS
from mtlib.settings import MASKING_POLICIES

FINE_TUNING = "fine_tuning"  # the arm that others are compared with
# what all arms must share
_LENGTH = ("source", "model", "epochs", "batch_size", "train_size")
# what tells the arms apart: all that says which tokens are masked
_MASKED = ("masking", "mask_rate", "spacy_pipeline")
# what all runs of one method must share, beside the settings that it reads
_RATES = ("learning_rate", "classifier_learning_rate", "mlm_head_learning_rate")

Arms = dict[str, list[dict]]  # records by arm


@dataclass(frozen=True)
class ArmComparison:
    """Arms that are trained for as long as fine-tuning, and judged out of distribution.

    Args:
        arm_of: a run's arm, by its configuration; None: the run is not of this comparison.
        label: an arm's name in words.
        choose: which runs count; `at_best_rates` or `at_common_settings`.
        expectations: pairs of arms of which the first is expected to be the better one.
    """

    arm_of: Callable[[Mapping], str | None]
    label: Callable[[str], str]
    choose: Callable[[Arms], Arms]
    expectations: tuple[tuple[str, str], ...] = ()

    def by_arm(self, records: Iterable[dict]) -> Arms:
        """The records that count, by arm in the order of the tables of methods and policies, and by seed.

        Mask-tuning with another method's loss stands behind that method.
        """
        arms = self.choose(group_by_arm(records, self.arm_of))
        place = {arm: _place(runs[0]["config"]) for arm, runs in arms.items()}
        for arm, runs in arms.items():
            check_one_run_a_seed(runs, self.label(arm))
        return {arm: sorted(arms[arm], key=_seed) for arm in sorted(arms, key=lambda arm: (place[arm], arm))}

    def name(self, config: Mapping) -> str:
        """What a run's arm is called in words."""
        return self.label(self.arm_of(config))

    def chosen(self, records: Iterable[dict]) -> list[dict]:
        """The records that count, in one list."""
        return [record for runs in self.by_arm(records).values() for record in runs]

    def table(self, arms: Arms) -> pandas.DataFrame:
        """A row for each arm: number of seeds, mean accuracy on each set in per cent, and verdicts.

        With their `precisions`, where the runs do not all have one.
        The verdicts are about the difference to fine-tuning on each set out of distribution: in points, with its
        interval, and in words ("+34.0 [+7.5, +60.6]: significantly better").
        """
        rows, precision = [], precisions(arms)
        for arm, records in arms.items():
            row = {
                "method": self.label(arm),
                "seeds": len(records),
                "rates": rates_in_words(rates(records[0])),
                **({"precision": precision[arm]} if precision else {}),
            }
            for name in records[0]["metrics"]:
                row[name] = round(statistics.fmean(accuracy(record, name) for record in records), 1)
            if arm != FINE_TUNING:
                row |= {f"better on {name}?": _against_fine_tuning(arms, arm, name) for name in sets_outside(arms)}
            rows.append(row)
        return pandas.DataFrame(rows).fillna("") if rows else pandas.DataFrame(columns=["method", "seeds"])

    def verdicts(self, arms: Arms) -> pandas.DataFrame:
        """The expectations, for each set out of distribution: the difference in points, its interval, a verdict."""
        lines, sets = [], sets_outside(arms)
        for better, other in self.expectations:
            for name in sets or ["all sets"]:
                shift = difference(arms.get(better, ()), arms.get(other, ()), name, _level(sets))
                lines.append({
                    "expected to be better": self.label(better), "than": self.label(other), "set": name,
                    "seeds": shift.n if shift else 0, "difference": shift and shift.mean, "low": shift and shift.low,
                    "high": shift and shift.high, "verdict": verdict(arms, better, other, name),
                })  # fmt: skip
        return pandas.DataFrame(lines).astype(dict.fromkeys(("difference", "low", "high"), float) if lines else {})


def at_best_rates(arms: Arms) -> Arms:
    """Each arm's runs at its best learning rates; an arm without a run of seed 0 has none yet.

    The best rates have the highest accuracy in distribution with seed 0, and are the lowest of equals.
    """
    chosen = {}
    for arm, records in arms.items():
        if seed_0 := [record for record in records if _seed(record) == 0]:
            best = max(seed_0, key=lambda record: (in_distribution(record), *(-rate for rate in rates(record))))
            chosen[arm] = [record for record in records if rates(record) == rates(best)]
    return chosen


def at_common_settings(arms: Arms) -> Arms:
    """The runs of the length that most arms and seeds have, at the rates that most of a method's runs have.

    Leaves out a grid of learning rates, a shorter trial, and records that lack an evaluation set. Fine-tuning counts
    only where it is as long as the other arms.
    """
    runs = [(arm, record) for arm, records in arms.items() for record in records]
    most = max((len(record["metrics"]) for _, record in runs), default=0)
    whole = [(arm, record) for arm, record in runs if len(record["metrics"]) == most]
    length = _commonest([(arm, record) for arm, record in whole if arm != FINE_TUNING], _length)
    by_method, chosen = defaultdict(list), defaultdict(list)
    for arm, record in whole:
        if _length(record) == length:
            by_method[record["config"]["method"]].append((arm, record))
    for of_method in by_method.values():
        settings = _commonest(of_method, _settings)
        for arm, record in of_method:
            if _settings(record) == settings:
                chosen[arm].append(record)
    return dict(chosen)


def group_by_arm(records: Iterable[dict], arm_of: Callable[[Mapping], str | None]) -> Arms:
    """Records by arm, without those of no arm and those of diverged runs."""
    arms = defaultdict(list)
    for record in records:
        arm = arm_of(record["config"])
        if arm is not None and not diverged(record):
            arms[arm].append(record)
    return dict(arms)


def check_one_run_a_seed(records: Iterable[dict], what: str) -> None:
    """Raise `UserError` if two of the `records` have one seed."""
    for seed, count in Counter(map(_seed, records)).items():
        if count > 1:
            raise UserError(
                f"{count} records of {what} have seed {seed} (other learning rates, another precision?); expected one."
            )


def scores(arms: Arms) -> pandas.DataFrame:
    """A line for each arm and seed: `in_distribution`, `out_of_it` (the mean over its sets), `gap`, and every set.

    Accuracies in per cent, the gap in points.
    """
    lines = []
    for arm, records in arms.items():
        for record in records:
            inside, outside = in_distribution(record), _mean_accuracy(record, "ood")
            lines.append({
                "arm": arm, "seed": _seed(record), "in_distribution": inside, "out_of_it": outside,
                "gap": inside - outside, **{name: accuracy(record, name) for name in record["metrics"]},
            })  # fmt: skip
    return pandas.DataFrame(lines, columns=None if lines else ["arm", "seed", "in_distribution", "out_of_it", "gap"])


def difference(records: Sequence[dict], base: Sequence[dict], set_name: str, level: float = 0.95) -> Difference | None:
    """Accuracy of one arm minus another's on a set, in points, paired by seed; None where they share no seed."""
    pairs = seed_pairs(records, base)
    return paired_difference([accuracy(run, set_name) - accuracy(of_base, set_name) for run, of_base in pairs], level)


def verdict(arms: Arms, better: str, other: str, set_name: str) -> str:
    """Whether one arm is better than the other on a set out of distribution, and why that is not known.

    The interval's level is 1 - 0.05 / m for m such sets (Bonferroni).
    """
    shift = difference(arms.get(better, ()), arms.get(other, ()), set_name, _level(sets_outside(arms)))
    word = verdict_of(shift)
    if word == NOT_RUN:
        return f"too few seeds ({shift.n} of {FEWEST_SEEDS})" if shift else NOT_RUN
    return "no verdict (behind in distribution)" if False in (trained(arms, better), trained(arms, other)) else word


def _against_fine_tuning(arms: Arms, arm: str, set_name: str) -> str:
    """The difference to fine-tuning and the verdict; the verdict alone where there are too few seeds for one.

    With the number of seeds where one arm has more than the other: then it need not be the difference of their means.
    """
    records, base = arms[arm], arms.get(FINE_TUNING, ())
    shift = difference(records, base, set_name, _level(sets_outside(arms)))
    word = verdict(arms, arm, FINE_TUNING, set_name)
    if shift is None or shift.n < FEWEST_SEEDS:
        return word
    seeds = f" ({shift.n} seeds)" if shift.n < max(len(records), len(base)) else ""
    return f"{shift.text()}{seeds}: {AS_DIFFERENCE.get(word, word)}"


def trained(arms: Arms, arm: str) -> bool | None:
    """Whether an arm comes within two points of fine-tuning of the same seeds in distribution.

    None where they have no seed in common.
    """
    pairs = seed_pairs(arms[arm], arms.get(FINE_TUNING, ()))
    if not pairs:
        return None
    return statistics.fmean(in_distribution(run) - in_distribution(base) for run, base in pairs) >= -TRAINED_WITHIN


def seed_pairs(records: Sequence[dict], base: Sequence[dict]) -> list[tuple[dict, dict]]:
    """Runs of the same seed."""
    of_seed = {_seed(record): record for record in base}
    return [(record, of_seed[_seed(record)]) for record in records if _seed(record) in of_seed]


def precisions(arms: Arms) -> dict[str, str]:
    """The precisions of each arm's runs; {} where all runs of the comparison have the same."""
    of_arm = {arm: sorted({str(run["config"].get("precision")) for run in runs}) for arm, runs in arms.items()}
    every = {name for names in of_arm.values() for name in names}
    return {arm: ", ".join(names) for arm, names in of_arm.items()} if len(every) > 1 else {}


def sets_outside(arms: Arms) -> list[str]:
    """The evaluation sets out of distribution."""
    return [name for name in next(iter(arms.values()))[0]["metrics"] if kind(name) == "ood"] if arms else []


def accuracy(record: dict, set_name: str) -> float:
    """In per cent."""
    return 100 * record["metrics"][set_name]["accuracy"]


def in_distribution(record: dict) -> float:
    """Mean accuracy over the sets that are in distribution, in per cent."""
    return _mean_accuracy(record, "id")


def rates(record: dict) -> tuple[float, float]:
    """The learning rates of the trunk and of the classifier."""
    config = record["config"]
    return config["learning_rate"], config["classifier_learning_rate"]


def rates_in_words(learning_rates: Iterable[float]) -> str:
    """Learning rates as a table has them: "0.0002 / 0.001"."""
    return " / ".join(f"{rate:g}" for rate in learning_rates)


def _mean_accuracy(record: dict, of: str) -> float:
    return statistics.fmean(accuracy(record, name) for name in record["metrics"] if kind(name) == of)


def _place(config: Mapping) -> tuple:
    """Of an arm in tables: by method, alone before inside Mask-tuning; by masking policy and rate."""
    policies, method = list(MASKING_POLICIES), config["method"]
    masking, inside = config.get("masking"), config.get("classification") or FINE_TUNING
    policy = policies.index(masking) if masking in policies else -1
    family = inside if inside in METHODS and inside != FINE_TUNING else method
    return list(METHODS).index(family), family != method, policy, config.get("mask_rate") or 0.0


def _level(sets: Sequence[str]) -> float:
    return 1 - 0.05 / max(len(sets), 1)


def _seed(record: dict) -> int:
    return record["config"]["seed"]


def _commonest(runs: Iterable[tuple[str, dict]], values_of: Callable[[dict], tuple]) -> tuple[str, ...] | None:
    """The values that most arms and seeds have; of equals those of the longest runs."""
    seeds_of = defaultdict(set)
    for arm, record in runs:
        seeds_of[values_of(record), record["config"].get("epochs") or 0].add((arm, _seed(record)))
    (values, _), _ = max(seeds_of.items(), key=lambda item: (len(item[1]), item[0][1]), default=((None, 0), None))
    return values


def _length(record: dict) -> tuple[str, ...]:
    return tuple(str(record["config"].get(name)) for name in _LENGTH)


def _settings(record: dict) -> tuple[str, ...]:
    """Learning rates, and all that the method reads but what is masked: that tells the arms apart."""
    of_method = method_settings(record["config"])
    rates = [record["config"].get(name) for name in _RATES]
    return tuple(map(str, rates + [of_method[name] for name in of_method if name not in _MASKED]))

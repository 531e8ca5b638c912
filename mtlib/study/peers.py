"""The other methods of Table I on the testbed: what their records say, by the rules of `data/results/PLAN_peers.md`."""

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import pandas
from datasets import Dataset

from mtlib.analysis import statistics as rules
from mtlib.analysis.frame import diverged
from mtlib.analysis.statistics import FEWEST_SEEDS, NOT_RUN, OPEN, TRAINED_WITHIN, Difference, paired_difference
from mtlib.collator import Collator
from mtlib.data.tasks import kind
from mtlib.methods import METHODS, get_method
from mtlib.plm import SharedPLM
from mtlib.runs.config import RunConfig

_EXPERTS = {"bias": "shortcut", "bias_learning_rate": 2e-2}
_BALANCED = {"method": "mask_tuning", "update": "balanced", "mlm_head_learning_rate": 5e-4}
# the arms of the plan, with the settings that make them, in the order of the table of methods
ARMS = {
    "fine_tuning": {"method": "fine_tuning"},
    "mask_tuning": _BALANCED,
    "mask_tuning + product_of_experts": _BALANCED | {"classification": "product_of_experts"} | _EXPERTS,
    "learned_mixin": {"method": "learned_mixin", "bias": "shortcut"},
    "product_of_experts": {"method": "product_of_experts"} | _EXPERTS,
    "reweight": {"method": "reweight", "bias": "shortcut"},
    "confidence_regularization": {"method": "confidence_regularization", "bias": "shortcut"},
    "span_cutoff": {"method": "span_cutoff"},
    "hidden_cut": {"method": "hidden_cut"},
}


def arm_of(config: dict) -> str:
    """A record's arm: its method, and what that is combined with ("mask_tuning + product_of_experts")."""
    combined = config.get("classification") or "fine_tuning"
    return config["method"] + ("" if combined == "fine_tuning" else f" + {combined}")


def label(arm: str) -> str:
    return " + ".join(get_method(name).label for name in arm.split(" + "))


def at_chosen_rates(records: Iterable[dict]) -> dict[str, list[dict]]:
    """The records of each arm at its best learning rates, by seed; arms in the order of the table of methods.

    The best rates have the highest accuracy in distribution with seed 0, and are the lowest of equals.
    """
    by_arm = defaultdict(list)
    for record in records:
        if not diverged(record):
            by_arm[arm_of(record["config"])].append(record)
    chosen = {}
    for arm in sorted(by_arm, key=lambda arm: (list(METHODS).index(arm.split(" + ")[0]), arm)):
        seed_0 = [record for record in by_arm[arm] if record["config"]["seed"] == 0]
        if not seed_0:
            continue
        best = max(seed_0, key=lambda record: (_in_distribution(record), *(-rate for rate in _rates(record))))
        at_best = [record for record in by_arm[arm] if _rates(record) == _rates(best)]
        chosen[arm] = sorted(at_best, key=lambda record: record["config"]["seed"])
    return chosen


def comparison(chosen: dict[str, list[dict]]) -> pandas.DataFrame:
    """A row for each arm: number of seeds, mean accuracy on each set in per cent, and verdicts.

    The verdicts are about one claim for each set out of distribution: the arm is better there than fine-tuning.

    Args:
        chosen: as `at_chosen_rates` gives it, fine-tuning among the arms.
    """
    base = chosen.get("fine_tuning", [])
    sets = list(next(iter(chosen.values()))[0]["metrics"]) if chosen else []
    rows = []
    for arm, records in chosen.items():
        row = {
            "method": label(arm),
            "seeds": len(records),
            "rates": " / ".join(f"{rate:g}" for rate in _rates(records[0])),
        }
        row |= {name: round(_mean(records, name), 1) for name in sets}
        if arm != "fine_tuning":
            outside = [name for name in sets if kind(name) == "ood"]
            row |= {f"better on {name}?": verdict(records, base, name, len(outside)) for name in outside}
        rows.append(row)
    return pandas.DataFrame(rows).fillna("") if rows else pandas.DataFrame(columns=["method", "seeds"])


def verdict(records: Sequence[dict], base: Sequence[dict], name: str, sets: int) -> str:
    """Whether "better than fine-tuning on this set" holds here.

    Args:
        sets: how many the claim is about; the interval's level is 1 - 0.05 / sets.
    """
    pairs = _pairs(records, base)
    if len(pairs) < FEWEST_SEEDS:
        return f"{NOT_RUN} ({len(pairs)} of {FEWEST_SEEDS} seeds)"
    if _mean([own for own, _ in pairs]) < _mean([other for _, other in pairs]) - TRAINED_WITHIN:
        return f"{OPEN} (not trained)"
    return rules.verdict(difference(records, base, name, 1 - 0.05 / sets))


def difference(records: Sequence[dict], base: Sequence[dict], name: str, level: float = 0.95) -> Difference | None:
    """Accuracy of one arm minus another's on a set, in points, paired by seed; None where they share no seed."""
    pairs = _pairs(records, base)
    return paired_difference([_accuracy(own, name) - _accuracy(other, name) for own, other in pairs], level)


def relative_seconds(chosen: dict[str, list[dict]]) -> dict[str, float]:
    """Seconds of training for each arm, relative to fine-tuning's: of the means over the seeds that both have."""
    base = chosen.get("fine_tuning", [])
    ratios = {}
    for arm, records in chosen.items():
        if pairs := _pairs(records, base):
            own, other = (sum(record["cost"]["train_seconds"] for record in side) for side in zip(*pairs, strict=True))
            ratios[arm] = own / other
    return ratios


def step_cost(config: RunConfig, examples: Dataset, repeats: int = 3) -> dict[str, float]:
    """What a training step on one batch costs, measured on the spot, added up over the trainings of a method.

    Args:
        config: of a run; its model, method and settings count.
        examples: the batch, tokenised, with the columns that the method's preparers would add.
        repeats: steps; their median counts.

    Returns:
        `trainings`; `passes` through the trunk in a step; `seconds` forward and backward; `parameters` that exist
        during training alone.
    """
    config = config.resolved()
    tokenizer = _pretrained(config.model_path).tokenizer
    stages = get_method(config.method).stages(config.settings, config.rates, tokenizer)
    total = {"trainings": len(stages), "passes": 0, "seconds": 0.0, "parameters": 0}
    for stage in stages:
        plm = _pretrained(config.model_path, **stage.model_options).train()
        stage.objective.build(plm, examples)
        batch = Collator(tokenizer, stage.objective.columns)(examples.to_list())
        passes, seconds = [], []
        with plm.trunk.register_forward_hook(lambda *_, passes=passes: passes.append(1)):
            for _ in range(repeats):
                started = time.perf_counter()
                stage.objective(plm, stage.objective.prepare(plm, batch)).loss.backward()
                seconds.append(time.perf_counter() - started)
                plm.zero_grad()
        total["passes"] += len(passes) // repeats
        total["seconds"] += statistics.median(seconds)
        total["parameters"] += sum(parameter.numel() for parameter in stage.objective.parameters())
    return total


@cache
def _pretrained(path: str | Path, **options) -> SharedPLM:
    return SharedPLM.from_pretrained(path, num_labels=2, **options)


def _pairs(records: Sequence[dict], base: Sequence[dict]) -> list[tuple[dict, dict]]:
    """Runs of the same seed."""
    of_seed = {record["config"]["seed"]: record for record in base}
    return [(record, of_seed[seed]) for record in records if (seed := record["config"]["seed"]) in of_seed]


def _rates(record: dict) -> tuple[float, float]:
    """Of the trunk and of the classifier."""
    config = record["config"]
    return config["learning_rate"], config["classifier_learning_rate"]


def _mean(records: Sequence[dict], name: str = "") -> float:
    values = [_accuracy(record, name) if name else _in_distribution(record) for record in records]
    return sum(values) / len(values)


def _in_distribution(record: dict) -> float:
    """Mean accuracy over the sets that are in distribution, in per cent."""
    values = [_accuracy(record, name) for name in record["metrics"] if kind(name) == "id"]
    return sum(values) / len(values)


def _accuracy(record: dict, name: str) -> float:
    return 100 * record["metrics"][name]["accuracy"]

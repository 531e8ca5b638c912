"""The comparison of masking policies (data/results/PLAN_policies.md): its arms, its numbers, its verdicts."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import pandas

from mtlib.analysis.frame import diverged, frame
from mtlib.analysis.statistics import (
    FEWEST_SEEDS,
    NOT_RUN,
    OPEN,
    TRAINED_WITHIN,
    paired_difference,
    t_interval,
    verdict,
)
from mtlib.data.tasks import kind
from mtlib.errors import UserError

FINE_TUNING = "fine_tuning"
# which arm is expected to be the better one out of distribution
EXPECTATIONS = (
    ("known_shortcut:1", FINE_TUNING), ("exact:0.3", "exact:0.05"), ("known_shortcut:1", "known_cause:0.05"),
    ("known_shortcut:1", "supervised"),
)  # fmt: skip
_WORDS = {
    "exact": "random", "whole_word": "random words", "original": "random, all predicted", "bernoulli": "random (coin)",
    "supervised": "pointed span", "supervised_top5": "one of 5 pointed spans", "salient_spans": "named entity",
    "frequency_rare": "rare", "frequency_frequent": "frequent", "part_of_speech_content": "content words",
    "part_of_speech_function": "function words", "attribution_most": "most attributed",
    "attribution_least": "least attributed", "meta_learned": "meta-learned (reconstruction)",
    "known_shortcut": "shortcut's words", "known_cause": "deciding words",
}  # fmt: skip
# what all arms must share, and what all runs of one method must
_LENGTH = ("source", "model", "epochs", "batch_size", "train_size")
_RATES = ("learning_rate", "classifier_learning_rate", "mlm_head_learning_rate", "alpha", "update")


def arm(config: Mapping) -> str:
    """The name of a run's arm: "fine_tuning", or the policy and rate as `python -m mtlib policies` writes them."""
    if not config.get("masking"):
        return config["method"]
    has_rate = not config["masking"].startswith(("supervised", "salient"))
    return f"{config['masking']}:{config['mask_rate']:g}" if has_rate else config["masking"]


def label(name: str) -> str:
    """An arm in words, for figures and tables."""
    if name == FINE_TUNING:
        return "fine-tuning (no masks)"
    policy, _, rate = name.partition(":")
    share = "" if not rate else ", all of them" if float(rate) == 1 else f", {100 * float(rate):g} %"
    return _WORDS.get(policy, policy) + share


def policy_of(name: str) -> str:
    return name.partition(":")[0]


def scores(records: Iterable[dict], method: str = "mask_tuning") -> pandas.DataFrame:
    """A line for each arm and seed: `in_distribution`, `out_of_it` (the mean over its sets), `gap`, and every set.

    Accuracies in per cent, the gap in points. The arms are the policies in training by `method`, and fine-tuning for as
    long. Where records have several settings (a grid of learning rates, a shorter trial), those count that most have;
    and only records with every evaluation set.
    """
    kept = _comparable(records, method)
    if not kept:
        return pandas.DataFrame(columns=["arm", "seed", "in_distribution", "out_of_it", "gap"])
    wide = frame(kept, arm).pivot_table(index=["row", "seed"], columns="set", values="accuracy").reset_index()
    wide = wide.rename(columns={"row": "arm"}).rename_axis(columns=None)
    sets = {of: [name for name in wide.columns[2:] if kind(name) == of] for of in ("id", "ood")}
    wide.insert(2, "in_distribution", wide[sets["id"]].mean(axis="columns"))
    wide.insert(3, "out_of_it", wide[sets["ood"]].mean(axis="columns"))
    wide.insert(4, "gap", wide["in_distribution"] - wide["out_of_it"])
    return wide


def _comparable(records: Iterable[dict], method: str) -> list[dict]:
    """The method's runs of the length and rates that most of its arms have, and fine-tuning's of that length."""
    records = [record for record in records if not diverged(record)]
    most = max((len(record["metrics"]) for record in records), default=0)
    whole = [record for record in records if len(record["metrics"]) == most]
    arms = _commonest([record for record in whole if record["config"]["method"] == method], _LENGTH)
    lengths = {_values(record, _LENGTH) for record in arms}
    baseline = [record for record in whole if record["config"]["method"] == FINE_TUNING]
    baseline = [record for record in baseline if _values(record, _LENGTH) in lengths]
    return _commonest(baseline, _RATES) + _commonest(arms, _RATES)


def _commonest(records: list[dict], names: Sequence[str]) -> list[dict]:
    """Those records whose settings most arms and seeds have; of equals the longest runs."""
    runs = defaultdict(set)
    for record in records:
        epochs = record["config"].get("epochs") or 0
        runs[_values(record, names), epochs].add((arm(record["config"]), record["config"]["seed"]))
    (wanted, _), _ = max(runs.items(), key=lambda item: (len(item[1]), item[0][1]), default=((None, 0), None))
    return [record for record in records if _values(record, names) == wanted]


def _values(record: dict, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(str(record["config"].get(name)) for name in names)


def points(records: Iterable[dict], masks: Mapping, method: str = "mask_tuning") -> pandas.DataFrame:
    """A line for each arm, in the order of `masks`: mean scores over `n` seeds, and how often it touches the shortcut.

    Args:
        records: of the comparison.
        masks: what `python -m mtlib policies --json` wrote.
        method: that the policies are used in.

    Columns: `n`, `in_distribution`, `out_of_it`, `gap`, `low` and `high` (95 % by Student's t, None for one seed);
    `touched` and `gone`, the shares of examples in which some and all of the shortcut's tokens are masked, in per cent
    (None for an arm that `masks` does not have); `came_back`, the share of masked tokens that the masked LM fills with
    the original at the end of training, in per cent (None where nothing is masked); `trained`, whether in distribution
    it comes within two points of fine-tuning (None where that was not run).
    """
    records = list(records)
    compared = _comparable(records, method)
    by_seed, lines = scores(records, method), {}
    means = by_seed.groupby("arm")["in_distribution"].mean()
    for name in sorted(means.index, key=_place_in(masks)):
        of_arm = by_seed[by_seed["arm"] == name]
        gaps = list(of_arm["gap"])
        _, low, high = t_interval(gaps) if len(gaps) > 1 else (None, None, None)
        touch = masks["policies"].get(name, {}).get("touches_shortcut", {})
        nothing = 0.0 if name == FINE_TUNING else None
        changed = [share for record in compared if arm(record["config"]) == name
                   for share in _last_share_changed(record)]  # fmt: skip
        lines[name] = {
            "n": len(gaps),
            **{column: of_arm[column].mean() for column in ("in_distribution", "out_of_it", "gap")},
            "low": low,
            "high": high,
            "touched": 100 * touch["any"] if touch else nothing,
            "gone": 100 * touch["all"] if touch else nothing,
            "came_back": 100 * (1 - sum(changed) / len(changed)) if changed else None,
            "trained": bool(means[name] >= means[FINE_TUNING] - TRAINED_WITHIN) if FINE_TUNING in means else None,
        }
    return pandas.DataFrame.from_dict(lines, orient="index")


def _last_share_changed(record: dict) -> list[float]:
    return [entry["share_changed"] for entry in record.get("history", ()) if "share_changed" in entry][-1:]


def _place_in(masks: Mapping):
    order = [FINE_TUNING, *masks["policies"]]
    return lambda name: (order.index(name) if name in order else len(order), name)


def verdicts(records: Iterable[dict], masks: Mapping, method: str = "mask_tuning") -> pandas.DataFrame:
    """What the plan expects, for each set out of distribution: the difference in points, its interval, a verdict.

    The interval is Student's t of the differences paired by seed, at level 1 - 0.05 / m for m sets.
    """
    records = list(records)
    by_seed, found = scores(records, method), points(records, masks, method)
    sets = [name for name in by_seed.columns[5:] if kind(name) == "ood"]
    lines = []
    for better, other in EXPECTATIONS:
        for name in sets or ["all sets"]:
            of_arms = [by_seed[by_seed["arm"] == each].set_index("seed") for each in (better, other)]
            pairs = (of_arms[0][name] - of_arms[1][name]).dropna() if sets else []
            shift = paired_difference(list(pairs), 1 - 0.05 / max(len(sets), 1))
            trained = all(found["trained"].get(each) for each in (better, other)) if len(found) else False
            lines.append({
                "expected to be better": label(better), "than": label(other), "set": name, "seeds": len(pairs),
                "difference": None if shift is None else shift.mean, "low": None if shift is None else shift.low,
                "high": None if shift is None else shift.high, "verdict": _verdict(shift, trained),
            })  # fmt: skip
    return pandas.DataFrame(lines)


def _verdict(shift, trained: bool) -> str:
    word = verdict(shift)
    return word if trained or word == NOT_RUN else OPEN


def seeds_in_words(numbers: Iterable[int]) -> str:
    """How many seeds stand behind the points of a figure: "one seed a point", "1 to 3 seeds a point"."""
    numbers = sorted({*numbers})
    if not numbers:
        raise UserError("there is no run yet; expected records of the comparison of policies.")
    if numbers == [1]:
        return "one seed a point, so no verdict"
    text = f"{numbers[0]} to {numbers[-1]} seeds" if len(numbers) > 1 else f"{numbers[0]} seeds"
    return text + " a point" + (f"; no verdict under {FEWEST_SEEDS}" if numbers[0] < FEWEST_SEEDS else "")

"""The comparison of masking policies (data/results/PLAN_policies.md): its arms, its numbers, its verdicts."""

from collections.abc import Iterable, Mapping

import pandas

from mtlib.analysis import comparison
from mtlib.analysis.comparison import FINE_TUNING, ArmComparison
from mtlib.analysis.frame import share_changed_at_the_end
from mtlib.analysis.policy_names import PolicyAtRate
from mtlib.analysis.statistics import FEWEST_SEEDS, t_interval
from mtlib.errors import UserError

# which arm is expected to be the better one on the testbed, out of distribution
EXPECTATIONS = (
    ("known_shortcut:1", FINE_TUNING), ("exact:0.3", "exact:0.05"), ("known_shortcut:1", "known_cause:0.05"),
    ("known_shortcut:1", "supervised"),
)  # fmt: skip


def arm(config: Mapping) -> str:
    """The name of a run's arm: "fine_tuning", or the policy and rate as `python -m mtlib policies` writes them."""
    if not config.get("masking"):
        return config["method"]
    return str(PolicyAtRate.of(config))


def label(name: str) -> str:
    """An arm in words, for figures and tables."""
    return "fine-tuning (no masks)" if name == FINE_TUNING else PolicyAtRate.parse(name).label


def in_training_by(method: str, expectations: tuple[tuple[str, str], ...] = EXPECTATIONS) -> ArmComparison:
    """The policies in training by a method, and fine-tuning."""
    return ArmComparison(
        arm_of=lambda config: arm(config) if config["method"] in (FINE_TUNING, method) else None,
        label=label,
        choose=comparison.at_common_settings,
        expectations=expectations,
    )


def scores(records: Iterable[dict], method: str = "mask_tuning") -> pandas.DataFrame:
    """`comparison.scores` of the policies in training by a method."""
    return comparison.scores(in_training_by(method).by_arm(records))


def points(records: Iterable[dict], masks: Mapping, method: str = "mask_tuning") -> pandas.DataFrame:
    """A line for each arm, in the order of `masks`: mean scores over `n` seeds, and how often it touches the shortcut.

    Args:
        records: of the comparison.
        masks: what `python -m mtlib policies --json` wrote.
        method: that the policies are used in.

    Columns: `n`, `in_distribution`, `out_of_it`, `gap`, `low` and `high` (95 % by Student's t, None under three seeds),
    `gaps` of the single seeds; `touched` and `gone`, the shares of examples in which some and all of the shortcut's
    tokens are masked, in per cent (None for an arm that `masks` does not have); `came_back`, the share of masked tokens
    that the masked LM fills with the original in the last epoch, in per cent (None where nothing is masked);
    `trained`, whether in distribution it comes within two points of fine-tuning (None where that was not run);
    `precision`, where the runs do not all have the same.
    """
    arms, lines = in_training_by(method).by_arm(records), {}
    for name in sorted(arms, key=_place_in(masks)):
        of_arm = comparison.scores({name: arms[name]})
        _, low, high = t_interval(list(of_arm["gap"])) if len(of_arm) >= FEWEST_SEEDS else (None, None, None)
        touch = masks["policies"].get(name, {}).get("touches_shortcut", {})
        nothing = 0.0 if name == FINE_TUNING else None
        changed = share_changed_at_the_end(arms[name])
        lines[name] = {
            "n": len(of_arm),
            **of_arm[["in_distribution", "out_of_it", "gap"]].mean(),
            "low": low,
            "high": high,
            "gaps": list(of_arm["gap"]),
            "touched": 100 * touch["any"] if touch else nothing,
            "gone": 100 * touch["all"] if touch else nothing,
            "came_back": None if changed is None else 100 * (1 - changed),
            "trained": comparison.trained(arms, name),
        }
    table = pandas.DataFrame.from_dict(lines, orient="index")
    if precision := comparison.precisions(arms):
        table["precision"] = pandas.Series(precision)
    return table


def losses_of_meta_learning(records: Iterable[dict]) -> pandas.DataFrame:
    """Whether meta-learned policies learned: their loss on held-out examples, a line for each training of one.

    A training of a policy that stands behind several runs has one line. Means over the first and the last 20 updates.
    """
    trainings = {}
    for record in records:
        source, seed = record["config"]["source"], record["config"]["seed"]
        texts = source if source.startswith("testbed") else record["data"]["train"]["set"]
        for stage in record["cost"]["stages"]:
            if "meta_learned_last_loss" in stage:
                counted = (stage[f"meta_learned_{name}"] for name in ("steps", "first_loss", "last_loss"))
                trainings.setdefault((texts, seed), tuple(counted))
    rows = [(*training, *counted) for training, counted in sorted(trainings.items())]
    names = ["training texts", "seed", "updates", "held-out loss at first", "at last"]
    return pandas.DataFrame(rows, columns=names).set_index("training texts")


def _place_in(masks: Mapping):
    order = [FINE_TUNING, *masks["policies"]]
    return lambda name: (order.index(name) if name in order else len(order), name)


def verdicts(records: Iterable[dict], method: str = "mask_tuning") -> pandas.DataFrame:
    """What the plan expects of the policies in training by a method (`ArmComparison.verdicts`)."""
    policies = in_training_by(method)
    return policies.verdicts(policies.by_arm(records))


def seeds_in_words(numbers: Iterable[int]) -> str:
    """How many seeds stand behind the points of a figure: "one seed a point", "1 to 3 seeds a point"."""
    numbers = sorted({*numbers})
    if not numbers:
        raise UserError("there is no run yet; expected records of the comparison of policies.")
    if numbers == [1]:
        return "one seed a point, so no verdict"
    text = f"{numbers[0]} to {numbers[-1]} seeds" if len(numbers) > 1 else f"{numbers[0]} seeds"
    return text + " a point" + (f"; no verdict under {FEWEST_SEEDS}" if numbers[0] < FEWEST_SEEDS else "")

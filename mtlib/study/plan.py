"""The reproduction study as runs: which there are, in which order, at which learning rates.

`data/results/PLAN.md` says why. `python -m mtlib study` carries it out: the grid of learning rates first, then, at the
rates that it chose, everything else.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mtlib.analysis.comparison import check_one_run_a_seed
from mtlib.analysis.frame import diverged, method_settings
from mtlib.data.sources import source_kind
from mtlib.data.tasks import TASKS, get_task
from mtlib.errors import UserError
from mtlib.runs.config import BUNDLED_MODEL, RunConfig, configure, default_rates

MAIN_SEEDS, OTHER_SEEDS, GRID_SEED = (0, 1, 2, 3, 4), (0, 1, 2), 0


@dataclass(frozen=True)
class Arm:
    """One way of training that the study compares.

    Args:
        name: in tables and figures.
        settings: settings that make it what it is.
        rate_of: the arm whose learning rate it takes; empty: the grid chooses one for it.
    """

    name: str
    settings: dict
    rate_of: str = ""


ARMS = (
    Arm("fine_tuning", {"method": "fine_tuning"}),
    Arm("mask_tuning", {"method": "mask_tuning"}),
    Arm("no_integrated_loss", {"method": "no_integrated_loss"}),
    Arm("augmented", {"method": "augmented"}),
    Arm("sequential", {"method": "sequential"}),
    Arm("fine_tuning (6 epochs)", {"method": "fine_tuning", "epochs": 6.0}, "fine_tuning"),
    Arm("mask_tuning (alternating)", {"method": "mask_tuning", "update": "alternating"}),
)
VARIANTS = (
    Arm("mask_tuning (separate trunks)", {"method": "mask_tuning", "shared": False}, "mask_tuning"),
    Arm("mask_tuning (sampled fill)", {"method": "mask_tuning", "fill": "sample"}, "mask_tuning"),
    Arm("mask_tuning (Bernoulli)", {"method": "mask_tuning", "masking": "bernoulli"}, "mask_tuning"),
)
# Not in this edition's plan, but named where records have it.
LATER = (Arm("mask_tuning (balanced)", {"method": "mask_tuning", "update": "balanced"}),)
EVERY_ARM = (*ARMS, *VARIANTS, *LATER)
# what the curves have beside the paper's alpha of the task and its 5 %
ALPHAS = (0.0, 0.01, 0.1, 0.3, 0.5, 0.9)
MASK_RATES = (0.01, 0.03, 0.07, 0.10, 0.15, 0.30)
CURVE_SETS = {"nli": ("mnli_m", "hans"), "paraphrase": ("qqp", "paws_qqp")}  # sentiment: all
# Training examples in every run; None: all there are.
SIZES = {
    "smoke": dict.fromkeys(TASKS, 16),
    "cpu": dict.fromkeys(TASKS, 4000),
    "full": dict.fromkeys(TASKS),
}
# At the paper's 32 for pairs, 4,000 of them are 375 steps, too few for joint Mask-tuning to learn (PLAN.md).
BATCH_SIZES = {"cpu": 16}
PAPER_GRID, BUNDLED_GRID = (2e-5, 3e-5, 4e-5, 5e-5), (1e-4, 2e-4, 5e-4)


@dataclass(frozen=True)
class Study:
    """What the study is done on.

    Args:
        source: "hub" or a folder of original releases.
        model: "mini" (bundled), a hub id or a folder with a masked LM.
        size: "smoke", "cpu" or "full"; see `SIZES`.
        tasks: which of the three.
    """

    source: str
    model: str = BUNDLED_MODEL
    size: str = "cpu"
    tasks: tuple[str, ...] = tuple(TASKS)

    def __post_init__(self):
        if self.size not in SIZES:
            raise UserError(f"size is {self.size!r}; expected one of {', '.join(SIZES)}.")
        if source_kind(self.source) not in ("hub", "folder"):
            raise UserError(f"source is {self.source!r}; expected hub or a folder of original releases.")
        if self.source != "hub" and not Path(self.source).is_dir():
            raise UserError(f"source {self.source!r} is no folder; give that of the original releases, or hub.")
        for task in self.tasks:
            get_task(task)
        if len(set(self.tasks)) < len(self.tasks):
            raise UserError(f"tasks names a task twice: {', '.join(self.tasks)}.")

    @property
    def rates(self) -> tuple[float, ...]:
        return BUNDLED_GRID if self.model == BUNDLED_MODEL else PAPER_GRID

    def grid(self) -> list[RunConfig]:
        """Every arm with a rate of its own at every rate, one seed, scored on in-distribution dev data alone."""
        return [
            self._config(task, arm.settings, GRID_SEED, rate, sets=tuple(_scored_in_grid(task)))
            for task in self.tasks
            for arm in ARMS
            if not arm.rate_of
            for rate in self.rates
        ]

    def runs(self, rates: dict[tuple[str, str], float]) -> dict[str, list[RunConfig]]:
        """Everything after the grid, by block, in order of priority: cut off anywhere, whole seeds are there.

        Args:
            rates: by task and arm, as `best_rates` gives them; where one is missing, the default one.
        """

        def of(task: str, arm: Arm, seed: int, **changes) -> RunConfig:
            name = arm.rate_of or arm.name
            rate = rates.get((task, name), default_rates(arm.settings["method"], self.model).trunk)
            return self._config(task, arm.settings, seed, rate, **changes)

        mask_tuning = _arm("mask_tuning")
        points = {
            "alpha": [{"alpha": value} for value in ALPHAS],
            "mask_rate": [{"mask_rate": value} for value in MASK_RATES],
        }
        return {
            "main": [of(task, arm, seed) for seed in MAIN_SEEDS for task in self.tasks for arm in ARMS],
            **{
                name: [
                    of(task, mask_tuning, seed, sets=CURVE_SETS.get(task, ()), **point)
                    for seed in OTHER_SEEDS
                    for task in self.tasks
                    for point in values
                ]
                for name, values in points.items()
            },
            "variants": [of(task, arm, seed) for seed in OTHER_SEEDS for task in self.tasks for arm in VARIANTS],
        }

    def _config(self, task: str, settings: dict, seed: int, rate: float, **changes) -> RunConfig:
        return configure(
            task=task, source=self.source, model=self.model, seed=seed, train_size=SIZES[self.size][task],
            batch_size=BATCH_SIZES.get(self.size), learning_rate=rate, **settings | changes,
        )  # fmt: skip


def split(records: Iterable[dict]) -> tuple[list[dict], list[dict]]:
    """Records of the grid of learning rates (scored on the dev set alone), and all others.

    Raises:
        UserError: records of one task differ in what the study keeps fixed, so that they cannot be compared.
    """
    records, fixed = list(records), {}
    for config in (record["config"] for record in records):
        for name in _FIXED:
            first = fixed.setdefault((config["task"], name), config.get(name))
            if config.get(name) != first:
                raise UserError(
                    f"records of {config['task']} with {name} {first!r} and {config.get(name)!r} are no one study; put "
                    "them into files of their own."
                )
    grid = [record for record in records if _is_of_grid(record)]
    return grid, [record for record in records if not _is_of_grid(record)]


def best_rates(records: Iterable[dict]) -> dict[tuple[str, str], float]:
    """By task and arm the learning rate with the highest dev accuracy, the lowest of equals, in records of a grid.

    A run that diverged counts as worse than any other.
    """
    best = {}
    for record in records:
        config, metrics = record["config"], record["metrics"]
        if not _is_of_grid(record):
            raise UserError(
                f"a record of the grid was scored on {', '.join(metrics)}; expected in-distribution dev data alone: "
                "nothing is chosen on a test set."
            )
        (accuracy,) = [-math.inf] if diverged(record) else [scores["accuracy"] for scores in metrics.values()]
        rank = (accuracy, -config["learning_rate"])
        key = config["task"], arm_of(config)
        best[key] = max(best.get(key, rank), rank)
    return {key: -rate for key, (_, rate) in best.items()}


def arm_of(config: dict) -> str | None:
    """The name of the arm or variant that a record's `config` belongs to; None for a point of a curve."""
    for arm in EVERY_ARM:
        if _settings(config) == _settings_of_arm(config["task"], arm.name):
            return arm.name
    return None


def curve_point(config: dict, name: str) -> float | None:
    """Where a record's `config` lies on the curve of "alpha" or "mask_rate"; None if it lies on another."""
    paper = _settings_of_arm(config["task"], "mask_tuning")
    settings = _settings(config)
    return settings[name] if settings | {name: paper[name]} == paper else None


def points_of_curve(records: Iterable[dict], task: str, name: str) -> dict[float, list[dict]]:
    """Mask-tuning's records by "alpha" or "mask_rate", at the seeds that every point has; {} if they have none.

    Raises:
        UserError: records that are not of one study, two of one point and seed, or points at several learning rates.
    """
    points = {}
    for record in split(records)[1]:
        value = curve_point(record["config"], name) if record["config"]["task"] == task else None
        if value is not None and not diverged(record):
            points.setdefault(value, []).append(record)
    for value, group in points.items():
        check_one_run_a_seed(group, f"{task}, {name} {value:g}")
    rates = sorted({record["config"]["learning_rate"] for group in points.values() for record in group})
    if len(rates) > 1:
        raise UserError(
            f"{task}'s curve of {name} has points at learning rates {', '.join(map(str, rates))}; expected one rate."
        )
    seeds = [{record["config"]["seed"] for record in group} for group in points.values()]
    common = set.intersection(*seeds) if seeds else set()
    in_order = sorted(points) if common else ()
    return {value: [record for record in points[value] if record["config"]["seed"] in common] for value in in_order}


def _is_of_grid(record: dict) -> bool:
    """Whether a run was scored, or was to be scored where it diverged, on the dev set alone."""
    return [*(record["metrics"] or record["config"]["sets"])] == _scored_in_grid(record["config"]["task"])


def _scored_in_grid(task: str) -> list[str]:
    return [get_task(task).dev_set("hub")]


_FIXED = ("source", "model", "train_size", "batch_size", "max_length", "eval_max_length", "hans_rule", "precision",
          "warmup", "weight_decay")  # fmt: skip


def _settings(config: dict) -> dict:
    """What tells arms, variants and points of curves apart."""
    return {"method": config["method"], "epochs": config.get("epochs")} | method_settings(config)


@cache
def _settings_of_arm(task: str, name: str) -> dict:
    return _settings(configure(task=task, **_arm(name).settings).resolved().public())


def _arm(name: str) -> Arm:
    return next(arm for arm in EVERY_ARM if arm.name == name)

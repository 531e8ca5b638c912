"""What decides a run's numbers: `RunConfig`, its defaults and its checks."""

import math
import numbers
import typing
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path

from mtlib.data.sources import source_kind, split_options
from mtlib.data.tasks import get_task
from mtlib.errors import UserError
from mtlib.masking import check_rate
from mtlib.objectives.masked_lm import REPLACEMENTS
from mtlib.paths import MINI_MODEL_DIR
from mtlib.plm import FILLS
from mtlib.trainer import UPDATES, precision

_PERTURBATION = ("mask_rate", "masking", "fill", "top_k", "replacement")
# What a method reads of the settings that not all methods read; in the configuration of any other they are None.
_READS = {
    "fine_tuning": (),
    "mask_tuning": (*_PERTURBATION, "alpha", "shared", "update", "mlm_head_learning_rate"),
    "augmented": _PERTURBATION,
    # the rate of its head is without effect at alpha 0; it stays here for the identities of the records there are
    "no_integrated_loss": (*_PERTURBATION, "alpha", "shared", "mlm_head_learning_rate"),
    "sequential": (*_PERTURBATION, "mlm_head_learning_rate"),
    "perturb_first": _PERTURBATION,
}
_READ_BY_SOME = {name for names in _READS.values() for name in names}
_FIXED_ALPHA = {"no_integrated_loss": 0.0}
METHODS = tuple(_READS)  # in the order of the paper's tables
MASKINGS = ("exact", "bernoulli", "whole_word")
BUNDLED_MODEL = "mini"
NAMES = (BUNDLED_MODEL, "testbed", "hub")  # of a model or a source; no paths, even where such a folder lies about


@dataclass(frozen=True)
class LearningRates:
    """Peak rates of the trunk and of the two heads."""

    trunk: float
    classifier: float
    mlm_head: float


# The paper searched {2, 3, 4, 5}e-5 and does not say what it chose; the first is Hugging Face's recipe for GLUE.
PAPER_RATES = LearningRates(2e-5, 2e-5, 2e-5)
# For the bundled model. fine_tuning and mask_tuning: chosen on SST-2 dev alone (the grid is in data/results/README.md).
# augmented, no_integrated_loss, sequential and perturb_first have no recorded grid.
BUNDLED_RATES = {
    "fine_tuning": LearningRates(1e-4, 1e-4, 1e-4),
    "mask_tuning": LearningRates(5e-4, 5e-4, 5e-4),
    "augmented": LearningRates(1e-4, 1e-4, 1e-4),
    "no_integrated_loss": LearningRates(1e-4, 1e-4, 1e-4),
    "sequential": LearningRates(1e-4, 1e-4, 5e-4),
    "perturb_first": LearningRates(1e-4, 1e-4, 1e-4),
}


def default_rates(method: str, model: str) -> LearningRates:
    return BUNDLED_RATES[method] if model == BUNDLED_MODEL else PAPER_RATES


def without_unread(settings: dict) -> dict:
    """Settings of a `RunConfig` less those that `settings["method"]` does not read, or has a fixed value for.

    `RunConfig` refuses some of them; a grid over several methods gives them to all.
    """
    reads = _READS.get(settings["method"], _READ_BY_SOME)  # an unknown method is for RunConfig to complain of
    unread = _READ_BY_SOME - {*reads} | ({"alpha"} if settings["method"] in _FIXED_ALPHA else set())
    return {name: value for name, value in settings.items() if name not in unread}


_CHOICES = {
    "method": METHODS,
    "masking": MASKINGS,
    "fill": FILLS,
    "replacement": REPLACEMENTS,
    "update": UPDATES,
    "hans_rule": ("max", "sum"),
    "precision": ("auto", "float32", "bf16"),
}


_TYPES = {int: (numbers.Integral, "a whole number"), float: (numbers.Real, "a number"), bool: (bool, "true or false")}


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's numbers. `None` stands for the default named beside it.

    Args:
        task: "sentiment", "nli" or "paraphrase".
        method: "fine_tuning", "mask_tuning", "augmented", "no_integrated_loss", "sequential" or "perturb_first";
            see `methods.recipe`. Settings that it does not read do not matter.
        source: "testbed", "hub", a folder of original releases, or one that `mtlib testbed` wrote.
        model: "mini" (bundled), a hub id or a folder with a masked LM.
        seed: of the new head, dropout, the order of the data and the masks.
        alpha: weight of the masked-LM loss; None: the paper's value for the task. For no_integrated_loss it is 0.
        mask_rate: share of tokens masked, in [0, 1].
        masking: "exact", "bernoulli" or "whole_word".
        fill: "argmax", "sample" or "top_k" (from the `top_k` likeliest).
        replacement: "mask" or "80_10_10".
        shared: one trunk for both heads, or each its own.
        update: "joint", "balanced" or "alternating" (mask_tuning alone).
        epochs: passes over the training set, in each stage (`augmented` doubles the set).
        batch_size: examples per optimiser step; None: the paper's value for the task.
        accumulation: slices a batch is cut into to save memory; losses stay means over the whole batch, and masks
            are the same, but dropout and sampled fillings draw other numbers.
        learning_rate, classifier_learning_rate, mlm_head_learning_rate: peak rates; None: `default_rates`, or
            for the heads the trunk's rate where that is given. The first stage of `sequential` trains trunk and head
            at `mlm_head_learning_rate`.
        warmup: share of the steps with a rising rate, below 1.
        weight_decay: of AdamW.
        train_size: this many training examples, drawn once for all seeds; None: all.
        max_length: tokens per training example.
        eval_max_length: tokens per test example; None: `max_length`.
        sets: evaluation sets; empty: all of the task.
        splits: `{set: option}` where the paper leaves the split open; see `sources.split_options`.
        hans_rule: how three labels fold into two, "max" or "sum".
        precision: "auto" (bf16 where the device computes in it), "float32" or "bf16".
        gradient_diagnostics_steps: see `ObjectiveArguments`.
    """

    task: str
    method: str
    source: str = "testbed"
    model: str = BUNDLED_MODEL
    seed: int = 0
    alpha: float | None = None
    mask_rate: float | None = 0.05
    masking: str | None = "exact"
    fill: str | None = "argmax"
    top_k: int | None = 10
    replacement: str | None = "mask"
    shared: bool | None = True
    update: str | None = "joint"
    epochs: float = 3.0
    batch_size: int | None = None
    accumulation: int = 1
    learning_rate: float | None = None
    classifier_learning_rate: float | None = None
    mlm_head_learning_rate: float | None = None
    warmup: float = 0.0
    weight_decay: float = 0.0
    train_size: int | None = None
    max_length: int = 128
    eval_max_length: int | None = None
    sets: tuple[str, ...] = ()
    splits: dict[str, str] = field(default_factory=dict)
    hans_rule: str = "max"
    precision: str = "auto"
    gradient_diagnostics_steps: int = 0

    def __post_init__(self):
        for name, (kind, optional) in _numbers().items():
            value, (accepted, text) = getattr(self, name), _TYPES[kind]
            if value is None and optional:
                continue
            if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
                raise UserError(f"{name} is {value!r}; expected {text}.")
        task = get_task(self.task)
        reads = _READS.get(self.method, ())
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices and (value is not None or name in reads or name not in _READ_BY_SOME):
                raise UserError(f"{name} is {value!r}; expected one of {', '.join(choices)}.")
        for name in ("alpha", "mask_rate", "warmup"):
            if getattr(self, name) is not None:
                check_rate(name, getattr(self, name))
        if self.warmup == 1:  # transformers would take it for a number of steps
            raise UserError("warmup is 1; expected a share of the steps below 1, for example 0.06.")
        for name in ("learning_rate", "classifier_learning_rate", "mlm_head_learning_rate", "epochs", "batch_size",
                     "accumulation", "train_size", "max_length", "eval_max_length", "top_k"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise UserError(f"{name} is {value!r}; expected a number above 0.")
        if self.mask_rate is None and "mask_rate" in reads:
            raise UserError("mask_rate is None; expected a number from 0 to 1.")
        if self.update not in (None, "joint") and "update" not in reads:
            raise UserError(f"update is {self.update!r}, but {self.method} has one loss per step; leave update out.")
        if self.update == "balanced" and self.shared is False:
            raise UserError("update is 'balanced', which weighs two gradients on one trunk; leave `separate` out.")
        fixed = _FIXED_ALPHA.get(self.method)
        if fixed is not None and self.alpha not in (None, fixed):
            raise UserError(
                f"alpha is {self.alpha}, but {self.method} is Mask-tuning with alpha {fixed:g}; leave alpha out, or "
                "take mask_tuning."
            )
        for name in ("weight_decay", "gradient_diagnostics_steps", "seed"):
            if not 0 <= getattr(self, name) < (2**32 if name == "seed" else math.inf):
                most = " and less than 2**32" if name == "seed" else ""
                raise UserError(f"{name} is {getattr(self, name)!r}; expected 0 or more{most}.")
        if len(set(self.sets)) < len(self.sets):
            raise UserError(f"sets names a set twice: {', '.join(self.sets)}.")
        known = task.evaluation_sets(self.source)
        for name in (*self.sets, *self.splits):
            if name not in known:
                raise UserError(
                    f"{name!r} is no evaluation set of {self.task} from {source_kind(self.source)!r}; expected "
                    f"{', '.join(known)}."
                )
        for name, option in self.splits.items():
            if option not in split_options(name):
                raise UserError(f"{name} has no split {option!r}; expected one of {', '.join(split_options(name))}.")

    @property
    def model_path(self) -> str | Path:
        return MINI_MODEL_DIR if self.model == BUNDLED_MODEL else self.model

    @property
    def evaluation_sets(self) -> tuple[str, ...]:
        return self.sets or get_task(self.task).evaluation_sets(self.source)

    def resolved(self) -> "RunConfig":
        """The same run with every default filled in, and None for what its method does not read."""
        task, reads = get_task(self.task), _READS[self.method]
        rates = default_rates(self.method, self.model)
        given = {name: (kind, getattr(self, name)) for name, (kind, _) in _numbers().items()}
        # 3 and 3.0 are one run, with one record
        own = replace(self, **{name: kind(value) for name, (kind, value) in given.items() if value is not None})
        filled = replace(
            own,
            alpha=_FIXED_ALPHA.get(own.method, task.alpha if own.alpha is None else own.alpha),
            top_k=own.top_k if own.fill == "top_k" else None,
            batch_size=own.batch_size or task.batch_size,
            learning_rate=own.learning_rate or rates.trunk,
            classifier_learning_rate=own.classifier_learning_rate or own.learning_rate or rates.classifier,
            mlm_head_learning_rate=own.mlm_head_learning_rate or own.learning_rate or rates.mlm_head,
            eval_max_length=own.eval_max_length or own.max_length,
            sets=own.evaluation_sets,
            splits={name: own.splits.get(name, split_options(name)[0]) for name in own.evaluation_sets
                    if len(split_options(name)) > 1},
            precision=("bf16" if precision()["bf16"] else "float32") if own.precision == "auto" else own.precision,
        )  # fmt: skip
        unread = dict.fromkeys(_READ_BY_SOME - {*reads})
        if "alpha" not in reads:  # there are no two gradients to compare
            unread["gradient_diagnostics_steps"] = 0
        return replace(filled, **unread)

    def public(self) -> dict:
        """For the record: no path of one machine."""
        model = Path(self.model).absolute().name if Path(self.model).is_dir() else self.model
        return asdict(self) | {"source": source_kind(self.source), "model": model, "sets": list(self.sets)}


@cache
def _numbers() -> dict[str, tuple[type, bool]]:
    """The fields of `RunConfig` that are numbers or flags: their type, and whether None may stand there."""
    found = {}
    for name, hint in typing.get_type_hints(RunConfig).items():
        kinds = typing.get_args(hint) or (hint,)
        for kind in _TYPES:
            if kind in kinds:
                found[name] = (kind, type(None) in kinds)
    return found

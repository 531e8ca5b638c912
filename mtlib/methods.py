"""The table of methods: what each trains, the settings it reads, its default rates, and how it is shown.

Everything that names a method reads this table: the checks of a configuration, the command line, profiles, tables and
figures. To add one, put a `Method` into `METHODS`. The module imports nothing heavy; the functions that build the
stages import the objectives when they are called.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Literal

from mtlib.errors import UserError

if TYPE_CHECKING:
    from mtlib.stages import Stage

Masking = Literal[
    "exact", "bernoulli", "whole_word", "original", "salient_spans", "supervised", "supervised_top5", "meta_learned",
    "frequency_rare", "frequency_frequent", "part_of_speech_content", "part_of_speech_function",
    "attribution_most", "attribution_least", "known_shortcut", "known_cause",
]  # fmt: skip
TESTBED_ONLY = ("known_shortcut", "known_cause")  # policies that know the grammar
Fill = Literal["argmax", "sample", "top_k"]
Replacement = Literal["mask", "80_10_10"]
Targets = Literal["masked", "all"]
Update = Literal["joint", "balanced", "alternating"]
FillMode = Literal["train", "eval"]
Reduction = Literal["tokens", "examples", "sum"]


@dataclass(frozen=True)
class LearningRates:
    """Peak rates of the trunk and of the two heads."""

    trunk: float
    classifier: float
    mlm_head: float


@dataclass(frozen=True)
class NoSettings:
    """For a method that reads none of its own."""


@dataclass(frozen=True)
class PerturbationSettings:
    """How a text becomes its perturbed copy. (The words beside a type are the command line's help.)"""

    mask_rate: Annotated[float, "share of the tokens that is masked"] = 0.05
    masking: Annotated[Masking, "which tokens are masked"] = "exact"
    fill: Annotated[Fill, "how a mask is filled"] = "argmax"
    top_k: Annotated[int, "for fill top_k"] = 10
    replacement: Annotated[Replacement, "what stands at a masked place"] = "mask"


@dataclass(frozen=True)
class SharedTrunkSettings(PerturbationSettings):
    shared: Annotated[bool, "one trunk for both heads, or each its own"] = True


@dataclass(frozen=True)
class MaskTuningSettings(SharedTrunkSettings):
    alpha: Annotated[float | None, "weight of the masked-LM loss (default: the paper's for the task)"] = None
    update: Annotated[Update, "how the two losses become a step; joint is equation 1"] = "joint"
    mlm_head_learning_rate: Annotated[float | None, "of the masked-LM head (default: by method and model)"] = None


@dataclass(frozen=True)
class SequentialSettings(PerturbationSettings):
    mlm_head_learning_rate: Annotated[float | None, "of the first stage (default: by method and model)"] = None


@dataclass(frozen=True)
class IntermediateSettings:
    mask_rate: Annotated[float, "share of the tokens that is masked"] = 0.15
    masking: Annotated[Masking, "which tokens are masked"] = "exact"
    replacement: Annotated[Replacement, "what stands at a masked place"] = "mask"
    pretraining_epochs: Annotated[float | None, "of masked-LM training (default: as in fine-tuning)"] = None
    pretraining_steps: Annotated[int | None, "of masked-LM training, instead of epochs"] = None
    mlm_head_learning_rate: Annotated[float | None, "of the first stage (default: by method and model)"] = None

    def __post_init__(self):
        if self.pretraining_epochs is not None and self.pretraining_steps is not None:
            raise UserError("pretraining_epochs and pretraining_steps are both given; leave one out.")


@dataclass(frozen=True)
class Method:
    """One row of the paper's tables, or of ours.

    Args:
        name: as configurations, records and the command line call it.
        label: in figures.
        about: what it is, in half a sentence.
        stages: `(settings, rates, tokenizer) -> stages`, the trainings it consists of; the last one trains the
            classifier.
        settings: a dataclass with what the method reads beside what every run has.
        rates: default learning rates with the bundled model.
        paper: its row in the paper's Tables I and III; empty: it has none.
        colour, marker: in every figure.
        fixed: settings that define the method, for its records: they are none of the user's choice.
    """

    name: str
    label: str
    about: str
    stages: Callable[[object, LearningRates, object], "tuple[Stage, ...]"]
    settings: type = NoSettings
    rates: LearningRates = LearningRates(1e-4, 1e-4, 1e-4)
    paper: str = ""
    colour: str = "#000000"
    marker: str = "o"
    fixed: Mapping[str, object] = field(default_factory=dict)

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of its settings."""
        return tuple(entry.name for entry in fields(self.settings))


def get_method(name: str) -> Method:
    if name not in METHODS:
        raise UserError(f"method is {name!r}; expected one of {', '.join(METHODS)}.")
    return METHODS[name]


def settings_of_any_method() -> dict[str, object]:
    """Every setting that some method reads, as its dataclass field, by name."""
    return {entry.name: entry for method in METHODS.values() for entry in fields(method.settings)}


def readers(setting_name: str) -> list[str]:
    """The methods that read a setting."""
    return [name for name, method in METHODS.items() if setting_name in method.reads]


# --- the stages of each method ---


def _masking(settings: PerturbationSettings, tokenizer):
    from mtlib.masking import masking_policy

    return masking_policy(settings.masking, settings.mask_rate, tokenizer)


def _refill(settings: PerturbationSettings, tokenizer, keep_original: bool = False):
    """What the masking policy needs, then the refilling."""
    from mtlib.stages import Refill

    masking = _masking(settings, tokenizer)
    refill = Refill(masking, settings.fill, settings.top_k, settings.replacement, keep_original)
    return (*masking.preparers(), refill)


def _fine_tuning(settings, rates, tokenizer):
    from mtlib.objectives import FineTuning
    from mtlib.stages import Stage

    return (Stage(FineTuning(), rates),)


def _mask_tuning(settings, rates, tokenizer, alpha: float | None = None):
    from mtlib.objectives import MaskTuning
    from mtlib.stages import Stage

    objective = MaskTuning(
        settings.alpha if alpha is None else alpha,
        _masking(settings, tokenizer),
        settings.fill,
        settings.top_k,
        settings.replacement,
    )
    return (Stage(objective, rates, objective.masking.preparers()),)


def _no_integrated_loss(settings, rates, tokenizer):
    return _mask_tuning(settings, rates, tokenizer, alpha=0.0)


def _augmented(settings, rates, tokenizer):
    from mtlib.objectives import FineTuning
    from mtlib.stages import Stage

    return (Stage(FineTuning(), rates, prepare=_refill(settings, tokenizer, keep_original=True)),)


def _masked_lm(settings, rates, tokenizer, epochs: float | None = None, steps: int | None = None):
    from mtlib.objectives import MaskedLM
    from mtlib.stages import Stage

    objective = MaskedLM(_masking(settings, tokenizer), settings.replacement)
    one_rate = LearningRates(*[rates.mlm_head] * 3)  # trunk and head learn one task here
    return Stage(objective, one_rate, objective.masking.preparers(), epochs=epochs, steps=steps)


def _sequential(settings, rates, tokenizer):
    return (_masked_lm(settings, rates, tokenizer), *_perturb_first(settings, rates, tokenizer))


def _intermediate_pretraining(settings, rates, tokenizer):
    pretraining = _masked_lm(settings, rates, tokenizer, settings.pretraining_epochs, settings.pretraining_steps)
    return (pretraining, *_fine_tuning(settings, rates, tokenizer))


def _perturb_first(settings, rates, tokenizer):
    from mtlib.objectives import FineTuning
    from mtlib.stages import Stage

    return (Stage(FineTuning(), rates, prepare=_refill(settings, tokenizer)),)


# In the order of the paper's tables. Rates: fine_tuning's and mask_tuning's were chosen on SST-2 dev alone (the grid is
# in data/results/README.md); the others have no recorded grid.
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "fine_tuning", "fine-tuning", "the baseline: the original texts, L_FT", _fine_tuning,
            paper="Fine-tuning on original train set", colour="#0173b2", marker="o",
        ),
        Method(
            "mask_tuning", "Mask-tuning", "equation 1 on texts refilled in each step", _mask_tuning,
            MaskTuningSettings, LearningRates(5e-4, 5e-4, 5e-4),
            paper="Mask-tuning", colour="#de8f05", marker="s",
        ),
        Method(
            "augmented", "augmented", "the original texts and a copy refilled once, L_FT", _augmented,
            PerturbationSettings, paper="Fine-tuning on augmented train set", colour="#029e73", marker="D",
        ),
        Method(
            "no_integrated_loss", "no integrated loss", "Mask-tuning without L_MLM", _no_integrated_loss,
            SharedTrunkSettings, paper="Mask-tuning w/o integrated loss", colour="#d55e00", marker="^",
            fixed={"alpha": 0.0},
        ),
        Method(
            "sequential", "sequential", "masked-LM training, then fine-tuning on texts refilled once", _sequential,
            SequentialSettings, LearningRates(1e-4, 1e-4, 5e-4),
            paper="Sequential Training", colour="#cc78bc", marker="v",
        ),
        Method(
            "perturb_first", "perturb first", "texts refilled once, L_FT", _perturb_first,
            PerturbationSettings, colour="#ca9161", marker="P",
        ),
        Method(
            "intermediate_pretraining", "intermediate pre-training", "masked-LM training on the texts, then L_FT",
            _intermediate_pretraining, IntermediateSettings, LearningRates(1e-4, 1e-4, 5e-4),
            colour="#56b4e9", marker="X",
        ),
    )
}  # fmt: skip

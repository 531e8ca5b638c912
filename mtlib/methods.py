"""The table of methods: what each trains, the settings it reads, its default rates, and how it is shown.

Everything that names a method reads this table: the checks of a configuration, the command line, profiles, tables and
figures. To add one, put a `Method` into `METHODS`. The module imports nothing heavy; the functions that build the
stages import the objectives when they are called, and what stands above this module (bias models, treebanks) by name.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from typing import TYPE_CHECKING

from mtlib.errors import UserError
from mtlib.settings import (
    BIAS_MODELS,
    BiasSettings,
    IntermediateSettings,
    LearnedMixinSettings,
    LearningRates,
    MaskTuningSettings,
    NoSettings,
    ParsingSettings,
    PerturbationSettings,
    ProductOfExpertsSettings,
    SequentialSettings,
    SharedTrunkSettings,
    TwoViewsSettings,
)

if TYPE_CHECKING:
    from mtlib.stages import Stage


_RATES = LearningRates(1e-4, 1e-4, 1e-4)  # with the bundled model, where no grid has been recorded


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
    rates: LearningRates = _RATES
    paper: str = ""
    colour: str = "#000000"
    marker: str = "o"
    fixed: Mapping[str, object] = field(default_factory=dict)

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of its settings."""
        return tuple(entry.name for entry in fields(self.settings))


def get_method(name: str) -> Method:
    if not isinstance(name, str) or name not in METHODS:
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


def _mask_tuning(settings, rates, tokenizer):
    """Mask-tuning, its classification loss taken from another method: the last stage of that one, refilled."""
    *before, last = _CLASSIFICATIONS[settings.classification](settings, rates, tokenizer)
    objective = _refilled(settings, tokenizer, settings.alpha, last.objective)
    return (
        *before,
        replace(last, objective=objective, prepare=(*objective.masking.preparers(), *last.prepare), name=""),
    )


def _refilled(settings, tokenizer, alpha: float, classification=None):
    from mtlib.masking import FixedMasking, OneSide
    from mtlib.objectives import MaskTuning

    masking = _masking(settings, tokenizer)
    readings = settings if isinstance(settings, MaskTuningSettings) else MaskTuningSettings()
    if readings.side != "both":
        masking = OneSide(masking, readings.side, tokenizer)
    if readings.fixed_masks:
        masking = FixedMasking(masking)
    return MaskTuning(
        alpha, masking, settings.fill, settings.top_k, settings.replacement, classification,
        readings.fill_mode, readings.mlm_reduction,
    )  # fmt: skip


def _original_and_refilled(settings, rates, tokenizer):
    from mtlib.objectives import OriginalAndRefilled
    from mtlib.stages import Stage

    return (Stage(OriginalAndRefilled(), rates),)


def _double_validated(settings, rates, tokenizer):
    from mtlib.objectives import DoubleValidated
    from mtlib.stages import Stage

    return (Stage(DoubleValidated("drop" if settings.classification.endswith("dropped") else "original"), rates),)


def _no_integrated_loss(settings, rates, tokenizer):
    from mtlib.stages import Stage

    objective = _refilled(settings, tokenizer, alpha=0.0)
    return (Stage(objective, rates, objective.masking.preparers()),)


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


def _add_bias(settings):
    module, _, name = BIAS_MODELS[settings.bias].rpartition(".")
    model = getattr(import_module(module), name)()
    return import_module("mtlib.data.bias").AddBias(model, settings.bias_folds)


def _product_of_experts(settings, rates, tokenizer):
    from mtlib.objectives import ProductOfExperts
    from mtlib.stages import Stage

    defaults = ProductOfExpertsSettings  # for Mask-tuning, which has no such settings
    objective = ProductOfExperts(
        getattr(settings, "bias_weight", defaults.bias_weight),
        halve_others=settings.bias == "overlap",
        focus=getattr(settings, "focus", defaults.focus),
        learning_rate=settings.bias_learning_rate,
    )
    return (Stage(objective, rates, (_add_bias(settings),)),)


def _learned_mixin(settings, rates, tokenizer):
    from mtlib.objectives import LearnedMixin
    from mtlib.stages import Stage

    objective = LearnedMixin(getattr(settings, "entropy_weight", LearnedMixinSettings.entropy_weight))
    return (Stage(objective, rates, (_add_bias(settings),)),)


def _reweight(settings, rates, tokenizer):
    from mtlib.objectives import Reweight
    from mtlib.stages import Stage

    return (Stage(Reweight(), rates, (_add_bias(settings),)),)


def _confidence_regularization(settings, rates, tokenizer):
    from mtlib.objectives import ConfidenceRegularization, FineTuning
    from mtlib.stages import AddTeacher, Stage

    prepare = (AddTeacher(), _add_bias(settings))
    return (
        Stage(FineTuning(), rates, name="teacher"),
        Stage(ConfidenceRegularization(), rates, prepare, start="pretrained"),
    )


def _two_views(settings) -> dict[str, object]:
    """The arguments of the two objectives that cut; Mask-tuning has them at their defaults."""
    settings = settings if isinstance(settings, TwoViewsSettings) else TwoViewsSettings()
    return {
        "ratio": settings.cut_ratio,
        "cut_weight": settings.cut_weight,
        "divergence_weight": settings.divergence_weight,
        "faithful_to_code": settings.faithful_to_code,
    }


def _span_cutoff(settings, rates, tokenizer):
    from mtlib.objectives import SpanCutoff
    from mtlib.stages import Stage

    return (Stage(SpanCutoff(**_two_views(settings)), rates),)


def _hidden_cut(settings, rates, tokenizer):
    from mtlib.objectives import HiddenCut
    from mtlib.stages import Stage

    eager = {"attn_implementation": "eager"}  # the only one that gives attention weights
    return (Stage(HiddenCut(**_two_views(settings)), rates, model_options=eager),)


def _ipt(settings, rates, tokenizer):
    from mtlib.objectives import DependencyParsing, FineTuning
    from mtlib.stages import Stage

    if settings.treebank is None:
        raise UserError("ipt parses a treebank first; give the folder of one in CoNLL-U (--treebank FOLDER).")
    treebank = import_module("mtlib.data.treebank").Treebank(settings.treebank)
    return (
        Stage(DependencyParsing(settings.faithful_to_code), rates, (treebank,)),
        Stage(FineTuning(), rates),
    )


# by the name of a method: its stages with the settings of `MaskTuningSettings`
_CLASSIFICATIONS = {
    "fine_tuning": _fine_tuning,
    "original_and_refilled": _original_and_refilled,
    "validated_or_dropped": _double_validated,
    "validated_or_original": _double_validated,
    "product_of_experts": _product_of_experts,
    "learned_mixin": _learned_mixin,
    "confidence_regularization": _confidence_regularization,
    "span_cutoff": _span_cutoff,
}

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
            PerturbationSettings, colour="#4d4d4d", marker="P",
        ),
        Method(
            "intermediate_pretraining", "intermediate pre-training", "masked-LM training on the texts, then L_FT",
            _intermediate_pretraining, IntermediateSettings, LearningRates(1e-4, 1e-4, 5e-4),
            colour="#117733", marker="8",
        ),
        Method(
            "learned_mixin", "Learned-Mixin+H", "an ensemble with a frozen bias model, gated", _learned_mixin,
            LearnedMixinSettings, paper="Learned-Mixin+H", colour="#6a3d9a", marker="X",
        ),
        Method(
            "product_of_experts", "product of experts", "an ensemble with a bias network trained along",
            _product_of_experts, ProductOfExpertsSettings, paper="PoE", colour="#005f73", marker="*",
        ),
        Method(
            "reweight", "reweight", "examples weigh the less, the better the bias model explains them", _reweight,
            BiasSettings, colour="#8b6f00", marker="<",
        ),
        Method(
            "confidence_regularization", "confidence regularization",
            "a student of a teacher whose confidence is cut where the bias model is right", _confidence_regularization,
            BiasSettings, paper="Regularized-conf", colour="#a50f15", marker=">",
        ),
        Method(
            "span_cutoff", "Span Cutoff", "a second view with a span cut out, and agreement of the two", _span_cutoff,
            TwoViewsSettings, paper="Span Cutoff", colour="#332288", marker="p",
        ),
        Method(
            "hidden_cut", "HiddenCut", "a second view with spans cut out of every layer, and agreement of the two",
            _hidden_cut, TwoViewsSettings, paper="HiddenCut", colour="#fb6a9a", marker="h",
        ),
        Method(
            "ipt", "IPT", "dependency parsing on a treebank, then fine-tuning", _ipt,
            ParsingSettings, paper="IPT-standard", colour="#999933", marker="d",
        ),
    )
}  # fmt: skip

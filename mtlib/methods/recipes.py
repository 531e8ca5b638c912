"""The trainings that each method of the table consists of.

Each recipe is `(settings, rates, tokenizer) -> stages`, and `methods.py` finds it by its name. The two files are apart
because the table is read where torch is not wanted, such as the command line's help. What stands in packages above
this one (bias models, treebanks) is imported by name.
"""

from dataclasses import fields, replace
from importlib import import_module

from mtlib.errors import UserError
from mtlib.masking import MaskingPolicy
from mtlib.method import AddTeacher, Refill, Stage
from mtlib.methods import get_method
from mtlib.methods.confidence_regularization import ConfidenceRegularization
from mtlib.methods.frozen_bias import BiasProduct, LearnedMixin, Reweight
from mtlib.methods.hidden_cut import HiddenCut
from mtlib.methods.ipt import DependencyParsing
from mtlib.methods.product_of_experts import ProductOfExperts
from mtlib.methods.readings import DoubleValidated, OriginalAndRefilled
from mtlib.methods.span_cutoff import SpanCutoff
from mtlib.objectives import FineTuning, MaskedLM, MaskTuning, Objective
from mtlib.policies import masking_policy
from mtlib.policies.wrapping import FixedMasking, OneSide
from mtlib.preparer import Preparer
from mtlib.settings import BIAS_MODELS, ENTAILMENT, EquationSettings, LearningRates

Stages = tuple[Stage, ...]


# --- the rows of Table III ---


def fine_tuning(settings, rates: LearningRates, tokenizer) -> Stages:
    return (Stage(FineTuning(), rates),)


def mask_tuning(settings, rates: LearningRates, tokenizer) -> Stages:
    """Mask-tuning, its classification loss taken from another method: the last stage of that one, refilled."""
    recipe = _READINGS.get(settings.classification) or get_method(settings.classification).stages
    *before, last = recipe(settings, rates, tokenizer)
    objective = _refilled(settings, tokenizer, settings.alpha, last.objective)
    prepare = (*objective.masking.preparers(), *last.prepare)
    return (*before, replace(last, objective=objective, prepare=prepare, name=""))


def no_integrated_loss(settings, rates: LearningRates, tokenizer) -> Stages:
    objective = _refilled(settings, tokenizer, alpha=0.0)
    return (Stage(objective, rates, objective.masking.preparers()),)


def augmented(settings, rates: LearningRates, tokenizer) -> Stages:
    return (Stage(FineTuning(), rates, _refill(settings, tokenizer, keep_original=True)),)


def perturb_first(settings, rates: LearningRates, tokenizer) -> Stages:
    return (Stage(FineTuning(), rates, _refill(settings, tokenizer)),)


def sequential(settings, rates: LearningRates, tokenizer) -> Stages:
    return (_masked_lm(settings, rates, tokenizer), *perturb_first(settings, rates, tokenizer))


def intermediate_pretraining(settings, rates: LearningRates, tokenizer) -> Stages:
    pretraining = _masked_lm(settings, rates, tokenizer)
    pretraining = replace(pretraining, epochs=settings.pretraining_epochs, steps=settings.pretraining_steps)
    return (pretraining, *fine_tuning(settings, rates, tokenizer))


# --- the other methods of Table I ---


def product_of_experts(settings, rates: LearningRates, tokenizer) -> Stages:
    objective = ProductOfExperts(
        settings.bias_weight,
        halve_others=settings.bias in ENTAILMENT,
        focus=settings.focus,
        learning_rate=settings.bias_learning_rate,
    )
    return (Stage(objective, rates, (_add_bias(settings, settings.faithful_to_code),)),)


def learned_mixin(settings, rates: LearningRates, tokenizer) -> Stages:
    return (Stage(LearnedMixin(settings.entropy_weight), rates, (_add_bias(settings),)),)


def bias_product(settings, rates: LearningRates, tokenizer) -> Stages:
    return (Stage(BiasProduct(), rates, (_add_bias(settings),)),)


def reweight(settings, rates: LearningRates, tokenizer) -> Stages:
    return (Stage(Reweight(), rates, (_add_bias(settings),)),)


def confidence_regularization(settings, rates: LearningRates, tokenizer) -> Stages:
    teacher = Stage(FineTuning(), _rates_or(settings.teacher_learning_rate, rates), name="teacher")
    prepare = (_add_bias(settings), AddTeacher())  # in this order: what asks no teacher is done before it trains
    return (teacher, Stage(ConfidenceRegularization(), rates, prepare, start="pretrained"))


def span_cutoff(settings, rates: LearningRates, tokenizer) -> Stages:
    return (Stage(SpanCutoff(**_two_views(settings)), rates),)


def hidden_cut(settings, rates: LearningRates, tokenizer) -> Stages:
    return (Stage(HiddenCut(**_two_views(settings)), rates),)


def ipt(settings, rates: LearningRates, tokenizer) -> Stages:
    """Parsing runs for the given epochs; the published training stops at the best UAS on the development set."""
    treebank = import_module("mtlib.methods.treebank").Treebank(settings.treebank)
    parsing = Stage(
        DependencyParsing(settings.faithful_to_code),
        _rates_or(settings.parsing_learning_rate, rates),
        (treebank,),
        epochs=settings.parsing_epochs,
        steps=settings.parsing_steps,
        measure=treebank.attachment,
    )
    return (parsing, *fine_tuning(settings, rates, tokenizer))


# --- other readings of Mask-tuning: its `classification` names one of them, or a method ---


def _original_and_refilled(settings, rates: LearningRates, tokenizer) -> Stages:
    return (Stage(OriginalAndRefilled(), rates),)


def _double_validated(settings, rates: LearningRates, tokenizer) -> Stages:
    rejected = "drop" if settings.classification == "validated_or_dropped" else "original"
    return (Stage(DoubleValidated(rejected), rates),)


_READINGS = {
    "original_and_refilled": _original_and_refilled,
    "validated_or_dropped": _double_validated,
    "validated_or_original": _double_validated,
}


# --- what several recipes share ---


def _masking(settings, tokenizer) -> MaskingPolicy:
    return masking_policy(settings.masking, settings.mask_rate, tokenizer, settings.spacy_pipeline)


def _refill(settings, tokenizer, keep_original: bool = False) -> tuple[Preparer, ...]:
    """What the masking policy needs, then the refilling."""
    masking = _masking(settings, tokenizer)
    refill = Refill(masking, settings.fill, settings.top_k, settings.replacement, keep_original)
    return (*masking.preparers(), refill)


def _refilled(settings, tokenizer, alpha: float, classification: Objective | None = None) -> MaskTuning:
    """The objective that refills in each step; what other methods than Mask-tuning do not read is at its default."""
    names = [entry.name for entry in fields(EquationSettings) if hasattr(settings, entry.name)]
    equation = EquationSettings(**{name: getattr(settings, name) for name in names})
    masking = _masking(settings, tokenizer)
    if equation.side != "both":
        masking = OneSide(masking, equation.side, tokenizer)
    if equation.fixed_masks:
        masking = FixedMasking(masking)
    return MaskTuning(
        alpha, masking, settings.fill, settings.top_k, settings.replacement, classification,
        equation.fill_mode, equation.mlm_reduction, equation.classifier_reads,
    )  # fmt: skip


def _rates_or(rate: float | None, rates: LearningRates) -> LearningRates:
    """One rate for trunk and heads, or the run's `rates` where it is None."""
    return rates if rate is None else LearningRates(*[rate] * 3)


def _masked_lm(settings, rates: LearningRates, tokenizer) -> Stage:
    """Masked-LM training on the task's texts."""
    objective = MaskedLM(_masking(settings, tokenizer), settings.replacement)
    one_rate = LearningRates(*[rates.mlm_head] * 3)  # trunk and head learn one task here
    return Stage(objective, one_rate, objective.masking.preparers())


def _two_views(settings) -> dict[str, object]:
    """The arguments of the two objectives that cut."""
    return {
        "ratio": settings.cut_ratio,
        "cut_weight": settings.cut_weight,
        "divergence_weight": settings.divergence_weight,
        "faithful_to_code": settings.faithful_to_code,
    }


def _add_bias(settings, faithful_to_code: bool = False) -> Preparer:
    if settings.bias not in BIAS_MODELS:
        raise UserError(f"bias is {settings.bias!r}; a training needs one of {', '.join(BIAS_MODELS)}.")
    module, _, name = BIAS_MODELS[settings.bias].rpartition(".")
    options = {}
    if settings.bias in ENTAILMENT:
        options["faithful_to_code"] = faithful_to_code
    if settings.bias == "overlap":
        options["vectors"] = settings.bias_vectors
    model = getattr(import_module(module), name)(**options)
    return import_module("mtlib.methods.bias").AddBias(model, settings.bias_folds)

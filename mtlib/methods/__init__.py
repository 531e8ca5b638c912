"""The table of methods: what each trains, the settings it reads, its default rates, and how it is shown.

Everything that names a method reads this table: the checks of a configuration, the command line, profiles, tables and
figures. To add one, put a `Method` into `METHODS` and its recipe into `recipes.py`. This module imports nothing heavy:
the recipes, which bring torch, are imported when the first one is asked for.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, get_args

from mtlib.settings import (
    ATTRIBUTION,
    ENTAILMENT,
    OWN_LENGTH,
    BiasSettings,
    Classification,
    ConfidenceRegularizationSettings,
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
    bias_for,
    check_choice,
)

if TYPE_CHECKING:
    from mtlib.method import Stage


_RATES = LearningRates(1e-4, 1e-4, 1e-4)  # with the bundled model, where no grid has been recorded


@dataclass(frozen=True)
class Method:
    """One row of the paper's tables, or of ours.

    Args:
        name: as configurations, records and the command line call it.
        label: in figures.
        about: what it is, in half a sentence.
        settings: a dataclass with what the method reads beside what every run has.
        rates: default learning rates with the bundled model.
        paper: its row in the paper's Tables I and III; empty: it has none.
        colour, marker: in every figure.
        refills_in_training: the model in training fills the masks of each step, and both its heads have a loss.
        fixed: settings that define the method, for its records: they are none of the user's choice.
        recipe: `(settings, rates, tokenizer) -> stages`; default the function of `recipes` of the same name.
    """

    name: str
    label: str
    about: str
    settings: type = NoSettings
    rates: LearningRates = _RATES
    paper: str = ""
    colour: str = "#000000"
    marker: str | tuple[int, int, int] = "o"
    refills_in_training: bool = False
    fixed: Mapping[str, object] = field(default_factory=dict)
    recipe: "Callable[[object, LearningRates, object], tuple[Stage, ...]] | None" = None

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of its settings."""
        return tuple(entry.name for entry in fields(self.settings))

    def stages(self, settings: object, rates: LearningRates, tokenizer) -> "tuple[Stage, ...]":
        """The trainings it consists of, one after the other; the last one trains the classifier."""
        recipe = self.recipe or getattr(import_module("mtlib.methods.recipes"), self.name)
        return recipe(settings, rates, tokenizer)


def get_method(name: str) -> Method:
    check_choice("method", name, METHODS)
    return METHODS[name]


def settings_of_any_method() -> dict[str, object]:
    """Every setting that some method reads, as its dataclass field, by name."""
    return {entry.name: entry for method in METHODS.values() for entry in fields(method.settings)}


def readers(setting_name: str) -> list[str]:
    """The methods that read a setting."""
    return [name for name, method in METHODS.items() if setting_name in method.reads]


def refilling_in_training() -> list[str]:
    """The methods that refill texts in each step of training."""
    return [name for name, method in METHODS.items() if method.refills_in_training]


# In the order of the paper's tables. Rates: fine_tuning's and mask_tuning's were chosen on SST-2 dev alone (the grid is
# in data/results/SIZES.md); the others have no recorded grid.
METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "fine_tuning", "fine-tuning", "the baseline: the original texts, L_FT",
            paper="Fine-tuning on original train set", colour="#0173b2", marker="o",
        ),
        Method(
            "mask_tuning", "Mask-tuning", "equation 1 on texts refilled in each step",
            MaskTuningSettings, LearningRates(5e-4, 5e-4, 5e-4),
            paper="Mask-tuning", colour="#de8f05", marker="s", refills_in_training=True,
        ),
        Method(
            "augmented", "augmented", "the original texts and a copy refilled once, L_FT",
            PerturbationSettings, paper="Fine-tuning on augmented train set", colour="#029e73", marker="D",
        ),
        Method(
            "no_integrated_loss", "no integrated loss", "Mask-tuning without L_MLM",
            SharedTrunkSettings, paper="Mask-tuning w/o integrated loss", colour="#d55e00", marker="^",
            refills_in_training=True, fixed={"alpha": 0.0},
        ),
        Method(
            "sequential", "sequential", "masked-LM training, then fine-tuning on texts refilled once",
            SequentialSettings, LearningRates(1e-4, 1e-4, 5e-4),
            paper="Sequential Training", colour="#cc78bc", marker="v",
        ),
        Method(
            "perturb_first", "perturb first", "texts refilled once, L_FT",
            PerturbationSettings, colour="#4d4d4d", marker="P",
        ),
        Method(
            "intermediate_pretraining", "intermediate pre-training", "masked-LM training on the texts, then L_FT",
            IntermediateSettings, LearningRates(1e-4, 1e-4, 5e-4), colour="#117733", marker="8",
        ),
        Method(
            "learned_mixin", "Learned-Mixin+H", "an ensemble with a frozen bias model, gated",
            LearnedMixinSettings, paper="Learned-Mixin+H", colour="#6a3d9a", marker="X",
        ),
        Method(
            "product_of_experts", "product of experts", "an ensemble with a bias network trained along",
            ProductOfExpertsSettings, paper="PoE", colour="#005f73", marker="*",
        ),
        Method(
            "bias_product", "Bias Product", "an ensemble with a frozen bias model, without a gate",
            BiasSettings, colour="#b15928", marker=(10, 1, 0),
        ),
        Method(
            "reweight", "Reweight", "examples weigh the less, the better the bias model explains them",
            BiasSettings, colour="#8b6f00", marker="<",
        ),
        Method(
            "confidence_regularization", "confidence regularization",
            "a student of a teacher whose confidence is cut where the bias model is right",
            ConfidenceRegularizationSettings, paper="Regularized-conf", colour="#a50f15", marker=">",
        ),
        Method(
            "span_cutoff", "Span Cutoff", "a second view with a span cut out, and agreement of the two",
            TwoViewsSettings, paper="Span Cutoff", colour="#332288", marker="p",
        ),
        Method(
            "hidden_cut", "HiddenCut", "a second view with spans cut out of every layer, and agreement of the two",
            TwoViewsSettings, paper="HiddenCut", colour="#fb6a9a", marker="h",
        ),
        Method(
            "ipt", "IPT", "dependency parsing on a treebank, then fine-tuning",
            ParsingSettings, paper="IPT-standard", colour="#999933", marker="d",
        ),
    )
}  # fmt: skip


def unread_settings(values: Mapping[str, object], pair: bool) -> dict[str, tuple[str, str]]:
    """The settings that others of `values` leave unread: each with what says so, and what to do in order to have it.

    A setting that is absent from `values` leaves none unread. Of the bias models only `overlap` reads word vectors, and
    only the features of those for entailment differ in released code.

    Args:
        pair: the task has pairs of texts.
    """
    masking, fill = values.get("masking"), values.get("fill")
    unread = {}
    if fill not in (None, "top_k"):
        unread["top_k"] = f"fill is {fill!r}", "give fill top_k too"
    if masking in OWN_LENGTH:
        unread["mask_rate"] = f"masking is {masking!r}, a span of its own length", "take another policy"
    if masking not in (None, *ATTRIBUTION):
        unread["attribution_every"] = f"masking is {masking!r}", f"give masking {' or '.join(ATTRIBUTION)} too"
    if masking not in (None, "salient_spans"):
        unread["spacy_pipeline"] = f"masking is {masking!r}", "give masking salient_spans too"
    if values.get("classifier_reads") == "original":
        reason = "classifier_reads is 'original'", "give classifier_reads refilled"
        unread |= dict.fromkeys(("fill", "top_k", "fill_mode"), reason)
    if not pair:
        unread["side"] = "the task has single texts", "take a task with pairs"
    if (classification := values.get("classification")) is not None:
        for name, those in _classifications_that_read().items():
            if classification not in those:
                unread[name] = f"classification is {classification!r}", f"give classification {' or '.join(those)} too"
    if isinstance(task := values.get("task"), str) and "bias" in values and "bias" not in unread:
        bias = bias_for(task, values["bias"])
        reason = f"bias is {bias!r}", "give bias overlap too" if pair else "take a task with pairs"
        if bias != "overlap":
            unread = {"bias_vectors": reason} | unread
        if bias not in ENTAILMENT:
            unread = {"faithful_to_code": reason} | unread
    return unread


def _classifications_that_read() -> dict[str, list[str]]:
    """The classifications that read each setting which comes with them, by its name: the methods that they name do."""
    reading = defaultdict(list)
    for classification in get_args(Classification):
        for name in METHODS[classification].reads if classification in METHODS else ():
            reading[name].append(classification)
    return reading

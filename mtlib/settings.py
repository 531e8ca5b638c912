"""The settings that methods read, with their defaults, choices and the words that the command line prints for them."""

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from types import UnionType
from typing import Annotated, Literal, NamedTuple, get_args, get_origin, get_type_hints

from mtlib.errors import UserError


class Range(NamedTuple):
    """The numbers that a setting takes: in words, and as a test."""

    text: str
    holds: Callable[[float], bool]
    kind: type = numbers.Real

    def check(self, name: str, value: object) -> None:
        """Raise `UserError` unless `value`, called `name`, is one of these numbers."""
        if isinstance(value, bool) or not isinstance(value, self.kind) or not self.holds(value):
            raise UserError(f"{name} is {value!r}; expected {self.text}.")


MASK_RATE = 0.05  # the share of tokens that the paper masks
SHARE = Range("a number from 0 to 1 (5 % is 0.05)", lambda value: 0 <= value <= 1)
ABOVE_0 = Range("a number above 0", lambda value: 0 < value < math.inf)
FROM_0 = Range("0 or more", lambda value: 0 <= value < math.inf)
STEPS = Range("a whole number, 0 or more", lambda value: value >= 0, numbers.Integral)
COUNT = Range("a whole number, 1 or more", lambda value: value >= 1, numbers.Integral)


def check_choice(name: str, value: object, choices: object) -> None:
    """Raise `UserError` unless `value`, called `name`, is one of the names of a `Literal`, or of a collection."""
    names = get_args(choices) or tuple(choices)
    if not isinstance(value, str) or value not in names:
        raise UserError(f"{name} is {value!r}; expected one of {', '.join(names)}.")


class Setting(NamedTuple):
    """A setting as its field is annotated: type, help for the command line, and the range of a number."""

    type: object
    help: str
    default: object
    range: Range | None = None

    @property
    def kinds(self) -> tuple[object, ...]:
        """The types of its values, or `Literal`."""
        hints = get_args(self.type) if isinstance(self.type, UnionType) else (self.type,)
        return tuple(get_origin(hint) or hint for hint in hints)


@cache
def settings_of(cls: type) -> dict[str, Setting]:
    """The annotated fields of a dataclass, by name."""
    hints = get_type_hints(cls, include_extras=True)
    settings = {}
    for entry in fields(cls):
        if get_origin(hints[entry.name]) is Annotated:
            kind, text, *number_range = get_args(hints[entry.name])
            settings[entry.name] = Setting(kind, text, entry.default, *number_range)
    return settings


class PolicyFacts(NamedTuple):
    """What has to be known of a masking policy where torch is not at hand; the policies stand in `mtlib.masking`."""

    words: str  # in tables and figures; {} is its rate
    testbed_only: bool = False  # it knows the grammar
    own_length: bool = False  # it masks a span, however long that is, and reads no rate
    asks_classifier: bool = False  # the one in training


MASKING_POLICIES = {
    "exact": PolicyFacts("random, {}"),
    "bernoulli": PolicyFacts("random (coin), {}"),
    "whole_word": PolicyFacts("random words, {}"),
    "original": PolicyFacts("random, all predicted, {}"),
    "salient_spans": PolicyFacts("named entity (else {})"),  # the rate is for texts without one
    "supervised": PolicyFacts("pointed span", own_length=True),
    "supervised_top5": PolicyFacts("one of 5 pointed spans", own_length=True),
    "meta_learned": PolicyFacts("meta-learned (reconstruction), {}"),
    "frequency_rare": PolicyFacts("rare, {}"),
    "frequency_frequent": PolicyFacts("frequent, {}"),
    "part_of_speech_content": PolicyFacts("content words, {}"),
    "part_of_speech_function": PolicyFacts("function words, {}"),
    "attribution_most": PolicyFacts("most attributed, {}", asks_classifier=True),
    "attribution_least": PolicyFacts("least attributed, {}", asks_classifier=True),
    "known_shortcut": PolicyFacts("shortcut's words, {}", testbed_only=True),
    "known_shortcut_first": PolicyFacts("shortcut's words first, {}", testbed_only=True),
    "known_cause": PolicyFacts("deciding words, {}", testbed_only=True),
}
Masking = Literal[tuple(MASKING_POLICIES)]
TESTBED_ONLY = tuple(name for name, facts in MASKING_POLICIES.items() if facts.testbed_only)
OWN_LENGTH = tuple(name for name, facts in MASKING_POLICIES.items() if facts.own_length)
ATTRIBUTION = tuple(name for name, facts in MASKING_POLICIES.items() if facts.asks_classifier)
Fill = Literal["argmax", "sample", "top_k"]
Replacement = Literal["mask", "80_10_10"]
Update = Literal["joint", "balanced", "alternating"]
FillMode = Literal["train", "eval"]
ClassifierReads = Literal["refilled", "original"]
Reduction = Literal["tokens", "examples"]
Bias = Literal["by_task", "overlap", "token_overlap", "lexical_overlap", "hypothesis_only", "bag_of_words", "shortcut"]
Side = Literal["both", "first", "second"]
Classification = Literal[
    "fine_tuning", "original_and_refilled", "validated_or_dropped", "validated_or_original", "product_of_experts",
    "learned_mixin", "bias_product", "reweight", "confidence_regularization", "span_cutoff",
]  # fmt: skip
COMPARES_TEXTS = ("original_and_refilled", "validated_or_dropped", "validated_or_original")  # both of them

# The bias models that fit a task; the first is its default. The classes stand in packages above this module.
BIAS_OF_TASK: dict[str, tuple[Bias, ...]] = {
    "sentiment": ("bag_of_words", "shortcut"),
    "nli": ("overlap", "token_overlap", "lexical_overlap", "hypothesis_only", "shortcut"),
    "paraphrase": ("lexical_overlap", "overlap", "hypothesis_only", "shortcut"),
}
BIAS_MODELS = {
    "overlap": "mtlib.methods.overlap.Overlap",
    "token_overlap": "mtlib.methods.token_overlap.TokenOverlap",
    "lexical_overlap": "mtlib.methods.bias.LexicalOverlap",
    "hypothesis_only": "mtlib.methods.bias.HypothesisOnly",
    "bag_of_words": "mtlib.methods.bias.BagOfWords",
    "shortcut": "mtlib.methods.shortcut.Shortcut",
}
ENTAILMENT = ("overlap", "token_overlap")  # bias models that tell entailment from the rest
ENGLISH_PIPELINE = "en_core_web_sm"
_MaskRate = Annotated[float, "share of the tokens that is masked", SHARE]
_FirstStageRate = Annotated[
    float | None, "of the first stage (default: learning_rate if given, else by method and model)", ABOVE_0
]
_FAITHFUL = "as the released code does it where the paper differs"


def bias_for(task: str, bias: str) -> str:
    """The bias model that `bias` names: with "by_task", the task's default."""
    return BIAS_OF_TASK[task][0] if bias == "by_task" else bias


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
class MaskingSettings:
    """Which tokens are masked. (The words beside a type are the command line's help.)"""

    mask_rate: _MaskRate = MASK_RATE
    masking: Annotated[
        Masking, "which tokens are masked (meta_learned is our reconstruction of what its authors describe)"
    ] = "exact"
    replacement: Annotated[Replacement, "what stands at a masked place"] = "mask"
    spacy_pipeline: Annotated[
        str, "for masking salient_spans: an installed spaCy pipeline that finds named entities"
    ] = ENGLISH_PIPELINE


@dataclass(frozen=True)
class PerturbationSettings(MaskingSettings):
    """How a text becomes its perturbed copy."""

    fill: Annotated[Fill, "how a mask is filled"] = "argmax"
    top_k: Annotated[int, "for fill top_k", COUNT] = 10


@dataclass(frozen=True)
class SharedTrunkSettings(PerturbationSettings):
    shared: Annotated[bool, "one trunk for both heads, or each its own"] = True
    attribution_every: Annotated[
        int,
        "for masking attribution_*: batches until an example's scores are computed again; saves time from an epoch's "
        "number of batches on",
        COUNT,
    ] = 1


@dataclass(frozen=True)
class BiasSettings:
    bias: Annotated[Bias, "what the bias model looks at (by_task: words for sentiment, else overlap)"] = "by_task"
    bias_folds: Annotated[int, "folds for out-of-fold predictions of the bias model; 1: of its own data", COUNT] = 5
    bias_vectors: Annotated[
        str | None, "for bias overlap: file of word vectors as text (default: the model's own embeddings)"
    ] = None


@dataclass(frozen=True)
class ProductOfExpertsSettings(BiasSettings):
    bias_learning_rate: Annotated[float | None, "of the bias network (default: the classifier's)", ABOVE_0] = None
    faithful_to_code: Annotated[bool, _FAITHFUL] = False  # here: the features of overlap
    bias_weight: Annotated[float, "weight of the bias network's own loss", FROM_0] = 1.0
    focus: Annotated[float | None, "exponent of the debiased focal loss, which replaces the product", FROM_0] = None


@dataclass(frozen=True)
class LearnedMixinSettings(BiasSettings):
    entropy_weight: Annotated[float, "weight of the entropy of the scaled bias", FROM_0] = 0.03


@dataclass(frozen=True)
class ConfidenceRegularizationSettings(BiasSettings):
    teacher_learning_rate: Annotated[
        float | None, "of the teacher (default: those of the run if given, else fine-tuning's)", ABOVE_0
    ] = None


@dataclass(frozen=True)
class TwoViewsSettings:
    cut_ratio: Annotated[float, "length of the cut span, as a share of the tokens", SHARE] = 0.1
    cut_weight: Annotated[float, "weight of the cut view's cross-entropy", FROM_0] = 1.0
    divergence_weight: Annotated[float, "weight of the divergence of the two views", FROM_0] = 1.0
    faithful_to_code: Annotated[bool, _FAITHFUL] = False


@dataclass(frozen=True)
class ParsingSettings:
    treebank: Annotated[str | None, "folder with a treebank in CoNLL-U, for example UD English-EWT"] = None
    faithful_to_code: Annotated[bool, _FAITHFUL] = False
    parsing_epochs: Annotated[float | None, "of parsing (default: as in fine-tuning)", ABOVE_0] = None
    parsing_steps: Annotated[int | None, "of parsing, instead of epochs", COUNT] = None
    parsing_learning_rate: Annotated[
        float | None, "of parsing, for trunk and parser (default: those of fine-tuning)", ABOVE_0
    ] = None

    def __post_init__(self):
        _check_one_length(self, "parsing")


@dataclass(frozen=True)
class EquationSettings(SharedTrunkSettings):
    alpha: Annotated[float | None, "weight of the masked-LM loss (default: the paper's for the task)", SHARE] = None
    update: Annotated[Update, "how the two losses become a step; joint is equation 1"] = "joint"
    mlm_head_learning_rate: Annotated[
        float | None, "of the MLM head (default: learning_rate if given, else by method and model)", ABOVE_0
    ] = None
    fill_mode: Annotated[FillMode, "eval fills from a pass of its own without dropout"] = "train"
    mlm_reduction: Annotated[Reduction, "what the masked-LM loss is the mean over"] = "tokens"
    side: Annotated[Side, "which text of a pair is masked"] = "both"
    fixed_masks: Annotated[bool, "one draw of masks for all epochs"] = False
    classification: Annotated[Classification, "the loss on the refilled text"] = "fine_tuning"
    classifier_reads: Annotated[
        ClassifierReads, "original: no refilled text is classified, L_MLM is an auxiliary loss"
    ] = "refilled"


@dataclass(frozen=True)
class MaskTuningSettings(
    TwoViewsSettings,
    ConfidenceRegularizationSettings,
    ProductOfExpertsSettings,
    LearnedMixinSettings,
    EquationSettings,
):
    """Equation 1, whose classification loss may be another method's (`Classification`), with the settings of that one.

    A loss that goes in here is named in `Classification`, and the class of its settings is a base here.
    """


@dataclass(frozen=True)
class SequentialSettings(PerturbationSettings):
    mlm_head_learning_rate: _FirstStageRate = None


@dataclass(frozen=True)
class IntermediateSettings(MaskingSettings):
    mask_rate: _MaskRate = 0.15
    pretraining_epochs: Annotated[float | None, "of masked-LM training (default: as in fine-tuning)", ABOVE_0] = None
    pretraining_steps: Annotated[int | None, "of masked-LM training, instead of epochs", COUNT] = None
    mlm_head_learning_rate: _FirstStageRate = None

    def __post_init__(self):
        _check_one_length(self, "pretraining")


def _check_one_length(settings: object, stage: str) -> None:
    """Raise `UserError` where both the epochs and the steps of a stage are given."""
    epochs, steps = f"{stage}_epochs", f"{stage}_steps"
    if getattr(settings, epochs) is not None and getattr(settings, steps) is not None:
        raise UserError(f"{epochs} and {steps} are both given; leave one out.")

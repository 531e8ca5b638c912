"""The settings of the methods. Nothing here needs torch, so that `--help` and tables are quick.

What a setting asks for is imported where it is made: masking policies, bias models.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from mtlib.data.identity import name_with_hash, name_with_version
from mtlib.errors import UserError
from mtlib.policies import OWN_LENGTH, Masking, masking_policy
from mtlib.settings import (
    ENGLISH_PIPELINE,
    MASK_RATE,
    Above0,
    ClassifierReads,
    Count,
    Fill,
    From0,
    Name,
    Settings,
    Share,
    Update,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from mtlib.masking import MaskingPolicy
    from mtlib.methods.bias import AddBias

# --- bias models ---

# those that fit a task; the first is its default
BIAS_OF_TASK = {
    "sentiment": ("bag_of_words", "shortcut"),
    "nli": ("overlap", "token_overlap", "lexical_overlap", "shortcut"),
    "paraphrase": ("lexical_overlap", "overlap", "shortcut"),
}
Bias = Literal["by_task", "overlap", "token_overlap", "lexical_overlap", "bag_of_words", "shortcut"]


def bias_for(task: str, bias: str) -> str:
    """The bias model that `bias` names: with "by_task", the task's default."""
    return BIAS_OF_TASK[task][0] if bias == "by_task" else bias


class BiasSettings(Settings):
    bias: Bias = Field(
        "by_task",
        description="what the bias model looks at (by_task: words for sentiment, else overlap)",
    )

    def add_bias(self) -> "AddBias":
        """The transform of a run, whose task has decided the bias model."""
        from mtlib.methods.bias import BIAS_MODELS, AddBias

        return AddBias(BIAS_MODELS[self.bias])


class ProductOfExpertsSettings(BiasSettings):
    bias_learning_rate: Above0 | None = Field(
        None,
        description="of the bias network (default: the classifier's)",
    )
    focus: From0 | None = Field(
        None,
        description="exponent of the debiased focal loss, which replaces the product",
    )


# --- masking ---


def _phrases(words: str | Iterable[str] | None) -> tuple[str, ...]:
    """Words and phrases in one order, each once, so that the same words are the same setting."""
    from mtlib.rows.folding import phrases_of  # loads Unicode's tables

    return () if words is None else tuple(sorted({*phrases_of(words)}))


class MaskingSettings(Settings):
    """Which tokens are masked."""

    words: Annotated[tuple[str, ...], BeforeValidator(_phrases)] = Field(
        (),
        description="words and phrases to mask, all of them and nothing else",
    )
    mask_rate: Share = Field(MASK_RATE, description="share of the tokens that is masked")
    masking: Masking = Field(
        "exact",
        description="which tokens are masked (meta_learned is our reconstruction)",
    )
    spacy_pipeline: str = Field(
        ENGLISH_PIPELINE,
        description="for masking salient_spans: an installed spaCy pipeline for named entities",
    )

    def ignored(self) -> dict[str, str]:
        if self.words:
            reason = "words are given, all of which are masked"
            return dict.fromkeys(("mask_rate", "masking", "spacy_pipeline"), reason)
        ignored = {}
        if self.masking in OWN_LENGTH:
            ignored["mask_rate"] = f"masking is {self.masking!r}, a span of its own length"
        if self.masking != "salient_spans":
            ignored["spacy_pipeline"] = f"masking is {self.masking!r}, which does not read it"
        return ignored

    def recorded(self) -> dict[str, object]:
        """Given words, which stand for the masking; the version of spaCy's pipeline, if read."""
        recorded: dict[str, object] = {"words": None, "spacy_pipeline": None}
        if self.words:
            recorded |= {"words": list(self.words), "masking": None, "mask_rate": None}
        if self.reads("spacy_pipeline"):
            recorded["spacy_pipeline"] = name_with_version(self.spacy_pipeline)
        return recorded

    def policy(self, tokenizer: "PreTrainedTokenizerBase") -> "MaskingPolicy":
        if self.words:
            from mtlib.masking import GivenWords

            return GivenWords(self.words)
        return masking_policy(self.masking, self.mask_rate, tokenizer, self.spacy_pipeline)


class PerturbationSettings(MaskingSettings):
    """How a text becomes its perturbed copy."""

    fill: Fill = Field("argmax", description="how a mask is filled")
    barred: bool = Field(
        False, description="what is masked at least half of the time is never filled in"
    )


class SharedTrunkSettings(PerturbationSettings):
    shared: bool = Field(True, description="one trunk for both heads, or each its own")


FirstStageRate = Annotated[
    Above0 | None,
    Field(
        description="of the first stage (default: learning_rate, else by method and model)",
    ),
]


class SequentialSettings(PerturbationSettings):
    mlm_head_learning_rate: FirstStageRate = None


class IntermediateSettings(MaskingSettings):
    mask_rate: Share = Field(0.15, description="share of the tokens that is masked")
    mlm_head_learning_rate: FirstStageRate = None


# --- Mask-tuning ---

# the losses that compare a text with its refilled copy: `classification_variants.py`
CLASSIFICATION_VARIANTS = ("original_and_refilled", "validated_or_original")
# the losses that Mask-tuning may take for the refilled text, with the settings of each
LOSSES: dict[str, type[Settings]] = {
    "fine_tuning": Settings,
    **dict.fromkeys(CLASSIFICATION_VARIANTS, Settings),
    "product_of_experts": ProductOfExpertsSettings,
    "learned_mixin": BiasSettings,
    "bias_product": BiasSettings,
    "reweight": BiasSettings,
    "confidence_regularization": BiasSettings,
    "span_cutoff": Settings,
}
if TYPE_CHECKING:
    Classification = str  # checkers cannot read the names from a table
else:
    Classification = Literal[*LOSSES]


class MaskTuningSettings(SharedTrunkSettings, ProductOfExpertsSettings):
    """Equation 1, whose classification loss may be another method's, with that one's settings."""

    alpha: Share | None = Field(
        None,
        description="weight of the masked-LM loss (default: the paper's for the task)",
    )
    update: Update = Field(
        "joint",
        description="how the two losses become a step; joint is equation 1",
    )
    mlm_head_learning_rate: Above0 | None = Field(
        None,
        description="of the MLM head (default: learning_rate if given, else by method and model)",
    )
    classification: Classification = Field(
        "fine_tuning",
        description="the loss on the refilled text",
    )
    classifier_reads: ClassifierReads = Field(
        "refilled",
        description="original: no refilled text is classified, L_MLM is an auxiliary loss",
    )

    def ignored(self) -> dict[str, str]:
        ignored = super().ignored()
        loss = self.classification
        if loss in [*LOSSES]:  # a grid asks before the value is checked: it may be unhashable
            reason = f"classification is {loss!r}, which does not read it"
            all_names = ProductOfExpertsSettings.model_fields.keys()  # of any of the losses
            ignored |= dict.fromkeys(all_names - LOSSES[loss].model_fields.keys(), reason)
        if loss in CLASSIFICATION_VARIANTS:
            reason = f"classification is {loss!r}, which compares a text with its refilled copy"
            ignored["classifier_reads"] = reason
        if self.classifier_reads == "original":
            reason = "classifier_reads is 'original', which fills nothing"
            ignored |= dict.fromkeys(("fill", "barred"), reason)
        return ignored


# --- parsing ---


class ParsingSettings(Settings):
    treebank: Name = Field(
        description="folder with a treebank in CoNLL-U, for example UD English-EWT",
    )
    parsing_epochs: Above0 | None = Field(
        None,
        description="of parsing (default: as in fine-tuning)",
    )
    parsing_steps: Count | None = Field(None, description="of parsing, instead of epochs")
    parsing_learning_rate: Above0 | None = Field(
        None, description="of parsing, for trunk and parser (default: those of fine-tuning)"
    )

    def ignored(self) -> dict[str, str]:
        if self.parsing_epochs is None:
            return {}
        return {"parsing_steps": "parsing_epochs is given too"}

    def recorded(self) -> dict[str, object]:
        """The treebank's name and a hash of its files."""
        return {"treebank": name_with_hash(self.treebank, treebank_files(self.treebank, "train"))}


def treebank_files(folder: str | Path, part: str) -> list[Path]:
    """The files of a treebank whose name contains "train" or "dev"; the latter are optional."""
    paths = sorted(Path(folder).glob(f"*{part}*.conllu"))
    if not paths and part == "train":
        expected = "the folder of a treebank in CoNLL-U"
        raise UserError(f"{folder} has no file *train*.conllu; expected {expected}.")
    return paths

"""The rows of the paper's Table III: fine-tuning, Mask-tuning and its ablations; and masked-LM training before."""

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Annotated, Literal

from datasets import Dataset, concatenate_datasets
from pydantic import Field
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from mtlib.contexts import evaluating, forked_random_state
from mtlib.encoding import each_token
from mtlib.masking import MaskingPolicy
from mtlib.method import LearningRates, Method, Stage, one_stage
from mtlib.methods.confidence_regularization import CONFIDENCE_REGULARIZATION
from mtlib.methods.frozen_bias import BIAS_PRODUCT, LEARNED_MIXIN, REWEIGHT
from mtlib.methods.product_of_experts import PRODUCT_OF_EXPERTS, ProductOfExpertsSettings
from mtlib.methods.readings import READINGS
from mtlib.methods.two_views import SPAN_CUTOFF
from mtlib.objectives import FineTuning, MaskedLM, MaskTuning
from mtlib.plm import SharedPLM
from mtlib.policies import OWN_LENGTH, Masking, masking_policy
from mtlib.policies.wrapping import BarMasked, FixedMasking
from mtlib.preparing import Prepared, Preparer
from mtlib.settings import (
    ENGLISH_PIPELINE,
    MASK_RATE,
    Above0,
    ClassifierReads,
    Count,
    Fill,
    Settings,
    Share,
    Update,
)

Stages = tuple[Stage, ...]


FINE_TUNING = Method("fine_tuning", "fine-tuning", "the baseline: the original texts, L_FT", one_stage(FineTuning))
# whose loss Mask-tuning may take for the refilled text
LOSSES = {
    method.name: method
    for method in (FINE_TUNING, *READINGS, PRODUCT_OF_EXPERTS, LEARNED_MIXIN, BIAS_PRODUCT, REWEIGHT,
                   CONFIDENCE_REGULARIZATION, SPAN_CUTOFF)
}  # fmt: skip
Classification = Literal[*LOSSES]


# --- settings ---


class MaskingSettings(Settings):
    """Which tokens are masked."""

    mask_rate: Share = Field(MASK_RATE, description="share of the tokens that is masked")
    masking: Masking = Field("exact", description="which tokens are masked (meta_learned is our reconstruction)")
    spacy_pipeline: str = Field(
        ENGLISH_PIPELINE, description="for masking salient_spans: an installed spaCy pipeline that finds named entities"
    )

    def unread(self) -> dict[str, str]:
        unread = {}
        if self.masking in OWN_LENGTH:
            unread["mask_rate"] = f"masking is {self.masking!r}, a span of its own length"
        if self.masking != "salient_spans":
            unread["spacy_pipeline"] = f"masking is {self.masking!r}, which does not read it"
        return unread

    def policy(self, tokenizer) -> MaskingPolicy:
        return masking_policy(self.masking, self.mask_rate, tokenizer, self.spacy_pipeline)

    def preparers(self, masking: MaskingPolicy) -> tuple[Preparer, ...]:
        """What makes the columns of the policy."""
        return masking.preparers()


class PerturbationSettings(MaskingSettings):
    """How a text becomes its perturbed copy."""

    fill: Fill = Field("argmax", description="how a mask is filled")
    top_k: Count = Field(10, description="for fill top_k")
    barred: bool = Field(False, description="what is masked throughout is never filled in")

    def unread(self) -> dict[str, str]:
        reason = {} if self.fill == "top_k" else {"top_k": f"fill is {self.fill!r}, which does not read it"}
        return super().unread() | reason

    def filling(self) -> dict[str, object]:
        """The arguments of whatever masks and fills."""
        return {"fill": self.fill, "top_k": self.top_k}

    def preparers(self, masking: MaskingPolicy) -> tuple[Preparer, ...]:
        """And, where asked to, what keeps the masked words from being filled in."""
        return (*super().preparers(masking), *([BarMasked(masking)] if self.barred else []))


class SharedTrunkSettings(PerturbationSettings):
    shared: bool = Field(True, description="one trunk for both heads, or each its own")


class MaskTuningSettings(SharedTrunkSettings, ProductOfExpertsSettings):
    """Equation 1, whose classification loss may be another method's, with the settings of that one."""

    alpha: Share | None = Field(None, description="weight of the masked-LM loss (default: the paper's for the task)")
    update: Update = Field("joint", description="how the two losses become a step; joint is equation 1")
    mlm_head_learning_rate: Above0 | None = Field(
        None, description="of the MLM head (default: learning_rate if given, else by method and model)"
    )
    fixed_masks: bool = Field(False, description="one draw of masks for all epochs")
    classification: Classification = Field("fine_tuning", description="the loss on the refilled text")
    classifier_reads: ClassifierReads = Field(
        "refilled", description="original: no refilled text is classified, L_MLM is an auxiliary loss"
    )

    def unread(self) -> dict[str, str]:
        unread = super().unread()
        if self.classification in [*LOSSES]:  # a grid asks before it is checked
            reason = f"classification is {self.classification!r}, which does not read it"
            of_losses = {*ProductOfExpertsSettings.model_fields} - {*LOSSES[self.classification].reads}
            unread |= dict.fromkeys(of_losses, reason)
        if self.classification in {reading.name for reading in READINGS}:
            reason = f"classification is {self.classification!r}, which compares a text with its refilled copy"
            unread["classifier_reads"] = reason
        if self.classifier_reads == "original":
            unread |= dict.fromkeys(("fill", "top_k", "barred"), "classifier_reads is 'original', which fills nothing")
        return unread


FirstStageRate = Annotated[
    Above0 | None, Field(description="of the first stage (default: learning_rate if given, else by method and model)")
]


class SequentialSettings(PerturbationSettings):
    mlm_head_learning_rate: FirstStageRate = None


class IntermediateSettings(MaskingSettings):
    mask_rate: Share = Field(0.15, description="share of the tokens that is masked")
    mlm_head_learning_rate: FirstStageRate = None


# --- stages ---


def mask_tuning(settings: MaskTuningSettings, rates: LearningRates, tokenizer) -> Stages:
    """On refilled texts it has the classification loss of another method's last stage, the one that is named."""
    *before, last = LOSSES[settings.classification].stages(settings, rates, tokenizer)
    masking = settings.policy(tokenizer)
    masking = FixedMasking(masking) if settings.fixed_masks else masking
    objective = MaskTuning(
        settings.alpha, masking, classification=last.objective, classifier_reads=settings.classifier_reads,
        **settings.filling(),
    )  # fmt: skip
    return (*before, replace(last, objective=objective, prepare=(*settings.preparers(masking), *last.prepare), name=""))


def no_integrated_loss(settings: SharedTrunkSettings, rates: LearningRates, tokenizer) -> Stages:
    masking = settings.policy(tokenizer)
    return (Stage(MaskTuning(0.0, masking, **settings.filling()), rates, settings.preparers(masking)),)


def fine_tuning_once(change: Callable[[MaskingSettings], Preparer]):
    """The stages of fine-tuning on texts that are masked once, and changed there by a preparer."""

    def stages(settings: MaskingSettings, rates: LearningRates, tokenizer) -> Stages:
        masking = FixedMasking(settings.policy(tokenizer))
        return (Stage(FineTuning(), rates, (*settings.preparers(masking), change(settings))),)

    return stages


perturb_first = fine_tuning_once(lambda settings: Refill(**settings.filling()))


def sequential(settings: SequentialSettings, rates: LearningRates, tokenizer) -> Stages:
    return (_masked_lm(settings, rates, tokenizer), *perturb_first(settings, rates, tokenizer))


def intermediate_pretraining(settings: IntermediateSettings, rates: LearningRates, tokenizer) -> Stages:
    return (_masked_lm(settings, rates, tokenizer), Stage(FineTuning(), rates))


def _masked_lm(settings: MaskingSettings, rates: LearningRates, tokenizer) -> Stage:
    """Masked-LM training on the task's texts; trunk and head learn one task here, at one rate."""
    masking = settings.policy(tokenizer)
    return Stage(MaskedLM(masking), LearningRates.alike(rates.mlm_head), masking.preparers())


@dataclass(frozen=True)
class Refill(Preparer):
    """x̂ for every example of a training set, made once: the tokens of `mask` are filled by the model as it stands.

    Mask-tuning makes x̂ anew in each step, by the model in training (dropout on); here the model is in evaluation mode
    and nothing is trained. Labels and all columns but `input_ids` stay. Counts how many tokens came back changed.

    Args:
        fill: "argmax" (default), "sample" or "top_k"; None leaves the masks.
        top_k: for `fill="top_k"`.
        keep_original: the originals first, then the refilled examples: D ∪ {(x̂, y)}.
    """

    fill: Fill | None = "argmax"
    top_k: int = 10
    keep_original: bool = False

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0, batch_size: int = 64) -> Prepared:
        """Refill tokenised `examples` with a column `mask`, in their order, on the model's device.

        All randomness comes from `seed`; torch's global random state and the model's mode are left as they were.
        """
        console = Console(stderr=True)
        progress = Progress(console=console, transient=True, disable=not console.is_terminal)

        def perturbed(rows: list[int], batch: dict) -> Tensor:
            progress.advance(task, len(rows))
            mask = batch["mask"].bool()  # (batch, seq)
            if self.fill is None:
                return batch["input_ids"].masked_fill(mask, plm.tokenizer.mask_token_id)
            return plm.fill_masks(batch, mask, self.fill, self.top_k).perturbed_ids

        with evaluating(plm), forked_random_state(plm.device, seed), progress:
            task = progress.add_task("refilling", total=len(examples))
            ids = [row.tolist() for row in each_token(plm, examples, perturbed, {"mask": 0}, batch_size)]
        changed = sum(map(operator.ne, chain.from_iterable(examples["input_ids"]), chain.from_iterable(ids)))
        feature = examples.features["input_ids"]
        refilled = examples.remove_columns("input_ids").add_column("input_ids", ids, feature=feature)
        both = concatenate_datasets([examples, refilled]) if self.keep_original else refilled
        return Prepared(both, {"changed": changed})


# --- the methods (the rates of fine-tuning and Mask-tuning were chosen on SST-2 dev alone; the others have no grid) ---


MASK_TUNING = Method(
    "mask_tuning", "Mask-tuning", "equation 1 on texts refilled in each step",
    mask_tuning, MaskTuningSettings, LearningRates.alike(5e-4), refills_in_training=True,
)  # fmt: skip
AUGMENTED = Method(
    "augmented", "augmented", "the original texts and a copy refilled once, L_FT",
    fine_tuning_once(lambda settings: Refill(**settings.filling(), keep_original=True)), PerturbationSettings,
)  # fmt: skip
NO_INTEGRATED_LOSS = Method(
    "no_integrated_loss", "no integrated loss", "Mask-tuning without L_MLM",
    no_integrated_loss, SharedTrunkSettings,
    refills_in_training=True,
)  # fmt: skip
SEQUENTIAL = Method(
    "sequential", "sequential", "masked-LM training, then fine-tuning on texts refilled once",
    sequential, SequentialSettings, LearningRates(1e-4, 1e-4, 5e-4),
)  # fmt: skip
PERTURB_FIRST = Method(
    "perturb_first", "perturb first", "texts refilled once, L_FT",
    perturb_first, PerturbationSettings,
)  # fmt: skip
INTERMEDIATE_PRETRAINING = Method(
    "intermediate_pretraining", "intermediate pre-training", "masked-LM training on the texts, then L_FT",
    intermediate_pretraining, IntermediateSettings, LearningRates(1e-4, 1e-4, 5e-4),
)  # fmt: skip

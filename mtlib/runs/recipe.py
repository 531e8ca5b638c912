"""A row of the paper's tables: a recipe of one training or several, each with its data and its objective."""

from dataclasses import dataclass

from mtlib.masking import MaskingPolicy, masking_policy
from mtlib.objectives import FineTuning, MaskedLM, MaskTuning, Objective
from mtlib.plm import check_top_k
from mtlib.refill import Refill
from mtlib.runs.config import LearningRates, RunConfig


@dataclass(frozen=True)
class Stage:
    """One training, from the model that the stage before left (the first: from the pretrained one).

    Args:
        name: of the objective; tells a recipe's stages apart.
        objective: what is minimised.
        rates: peak learning rates.
        refill: how the training texts are refilled before the stage starts; None: the originals are trained on.
    """

    name: str
    objective: Objective
    rates: LearningRates
    refill: Refill | None = None


def recipe(config: RunConfig, tokenizer) -> tuple[Stage, ...]:
    """The stages of `config.method` with the settings of a resolved `config`; the last one trains the classifier."""
    check_top_k(config.top_k or 1, tokenizer)
    rates = LearningRates(
        config.learning_rate,
        config.classifier_learning_rate,
        config.mlm_head_learning_rate or config.learning_rate,
    )
    match config.method:
        case "fine_tuning":
            return (Stage("fine_tuning", FineTuning(), rates),)
        case "mask_tuning" | "no_integrated_loss":  # the latter has alpha = 0
            masking = _masking(config, tokenizer)
            objective = MaskTuning(config.alpha, masking, config.fill, config.top_k or 10, config.replacement)
            return (Stage("mask_tuning", objective, rates),)
        case "augmented":
            return (Stage("fine_tuning", FineTuning(), rates, _refill(config, tokenizer, keep_original=True)),)
        case "sequential":
            objective = MaskedLM(_masking(config, tokenizer), config.replacement)
            one_rate = LearningRates(*[rates.mlm_head] * 3)  # trunk and head learn one task here
            refill = _refill(config, tokenizer)
            return (Stage("masked_lm", objective, one_rate), Stage("fine_tuning", FineTuning(), rates, refill))
        case "perturb_first":
            return (Stage("fine_tuning", FineTuning(), rates, _refill(config, tokenizer)),)


def _masking(config: RunConfig, tokenizer) -> MaskingPolicy:
    return masking_policy(config.masking, config.mask_rate, tokenizer)


def _refill(config: RunConfig, tokenizer, keep_original: bool = False) -> Refill:
    masking = _masking(config, tokenizer)
    return Refill(masking, config.fill, config.top_k or 10, config.replacement, keep_original)

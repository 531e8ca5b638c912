"""What a training minimises: a file for each paper's loss or losses, with the pure functions beside the classes."""

from mtlib.objectives.confidence_regularization import ConfidenceRegularization, confidence_regularization_loss
from mtlib.objectives.dependency_parsing import DependencyParsing
from mtlib.objectives.fine_tuning import FineTuning, fine_tuning_loss
from mtlib.objectives.hidden_cut import HiddenCut
from mtlib.objectives.learned_mixin import (
    BiasProduct,
    LearnedMixin,
    Reweight,
    bias_product_loss,
    learned_mixin_loss,
    reweight_loss,
)
from mtlib.objectives.mask_tuning import MaskTuning, integrated_loss
from mtlib.objectives.masked_lm import MaskedLM, masked_lm_loss
from mtlib.objectives.objective import Objective, ObjectiveOutput
from mtlib.objectives.product_of_experts import ProductOfExperts, debiased_focal_loss, product_of_experts_loss
from mtlib.objectives.readings import DoubleValidated, OriginalAndRefilled
from mtlib.objectives.span_cutoff import SpanCutoff, jensen_shannon

__all__ = [
    "BiasProduct",
    "ConfidenceRegularization",
    "DependencyParsing",
    "DoubleValidated",
    "FineTuning",
    "HiddenCut",
    "LearnedMixin",
    "MaskTuning",
    "MaskedLM",
    "Objective",
    "ObjectiveOutput",
    "OriginalAndRefilled",
    "ProductOfExperts",
    "Reweight",
    "SpanCutoff",
    "bias_product_loss",
    "confidence_regularization_loss",
    "debiased_focal_loss",
    "fine_tuning_loss",
    "integrated_loss",
    "jensen_shannon",
    "learned_mixin_loss",
    "masked_lm_loss",
    "product_of_experts_loss",
    "reweight_loss",
]

"""What a training minimises: one loss a file, with the pure function beside the class."""

from mtlib.objectives.fine_tuning import FineTuning, fine_tuning_loss
from mtlib.objectives.mask_tuning import MaskTuning, mask_tuning_loss
from mtlib.objectives.masked_lm import MaskedLM, masked_lm_loss
from mtlib.objectives.objective import Objective, ObjectiveOutput, Phase

__all__ = [
    "FineTuning",
    "MaskTuning",
    "MaskedLM",
    "Objective",
    "ObjectiveOutput",
    "Phase",
    "fine_tuning_loss",
    "mask_tuning_loss",
    "masked_lm_loss",
]

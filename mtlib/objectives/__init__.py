"""One loss per file. An objective is called with `(plm, batch)` and returns an `ObjectiveOutput`."""

from mtlib.objectives.fine_tuning import FineTuning, fine_tuning_loss
from mtlib.objectives.mask_tuning import MaskTuning, mask_tuning_loss
from mtlib.objectives.masked_lm import MaskedLM, masked_lm_loss
from mtlib.objectives.output import Objective, ObjectiveOutput

__all__ = [
    "FineTuning",
    "MaskTuning",
    "MaskedLM",
    "Objective",
    "ObjectiveOutput",
    "fine_tuning_loss",
    "mask_tuning_loss",
    "masked_lm_loss",
]

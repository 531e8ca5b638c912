"""Other readings of what Mask-tuning classifies: both texts, or only refilled texts that pass a second check.

Each is an objective for `MaskTuning(classification=...)`, which hands it the refilled text as `input_ids` and the
original one as `original_ids`.
"""

from functools import partial
from typing import Literal

import torch
from torch.nn.functional import cross_entropy

from mtlib.contexts import gradients_if
from mtlib.method import one_stage
from mtlib.objectives import ORIGINAL, Objective, ObjectiveOutput, fine_tuning_loss
from mtlib.plm import SharedPLM

Rejected = Literal["drop", "original"]


class OriginalAndRefilled(Objective):
    """The mean of the cross-entropies of the original and the refilled text: L_FT = (CE(y | x) + CE(y | x̂)) / 2.

    One more forward and backward pass than classifying the refilled text alone.
    """

    name = "original_and_refilled"
    columns = {ORIGINAL: 0}

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        logits = plm.classify(batch)  # (batch, num_labels), of the refilled text
        original = plm.classify(batch | {"input_ids": batch[ORIGINAL]})  # (batch, num_labels)
        losses = [fine_tuning_loss(scores, batch["labels"]) for scores in (logits, original)]
        return ObjectiveOutput({"ft_loss": (losses[0] + losses[1]) / 2}, {"ft_loss": 1.0}, logits)


class DoubleValidated(Objective):
    """Cross-entropy of the refilled text, but for examples whose refilling the current classifier does not accept.

    Our reading of the paper's "double-validated" and "only high-quality examples are incorporated". A refilling is
    rejected where the classifier is confident of an answer to the original text (probability of at least `confidence`)
    and gives another one to the refilled text. Losses are divided by the number of all examples, rejected ones too.
    Costs a forward pass over the original texts, and with `rejected="original"` one over the texts that are classified.

    Args:
        rejected: "drop" leaves a rejected example out of the step; "original" classifies its original text.
        confidence: probability, in [0, 1].
    """

    name = "double_validated"
    columns = {ORIGINAL: 0}

    def __init__(self, rejected: Rejected = "drop", confidence: float = 0.9):
        super().__init__()
        self.rejected, self.confidence = rejected, confidence

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        original_ids, labels = batch[ORIGINAL], batch["labels"]  # (batch, seq), (batch,)
        with gradients_if(False):
            sure, answer = plm.classify(batch | {"input_ids": original_ids}).float().softmax(dim=-1).max(dim=-1)
        # with the original in place of a rejected text this pass only decides, and trains nothing
        with gradients_if(self.rejected == "drop"):
            logits = plm.classify(batch)  # (batch, num_labels)
        rejected = (sure >= self.confidence) & (logits.detach().argmax(dim=-1) != answer)  # (batch,)
        if self.rejected == "original":
            chosen = torch.where(rejected[:, None], original_ids, batch["input_ids"])  # (batch, seq)
            logits = plm.classify(batch | {"input_ids": chosen})
            kept = torch.ones_like(rejected)
        else:
            kept = ~rejected
        losses = cross_entropy(logits.float(), labels, reduction="none")  # (batch,)
        parts = {"ft_loss": (losses * kept).mean(), "n_rejected": rejected.sum()}
        return ObjectiveOutput(parts, {"ft_loss": 1.0}, logits)


original_and_refilled = one_stage(OriginalAndRefilled)
validated_or_dropped = one_stage(DoubleValidated)
validated_or_original = one_stage(partial(DoubleValidated, "original"))

"""Variants of what Mask-tuning classifies: both texts, or only refilled texts that pass a check.

Each is an objective for `MaskTuning(classification=...)`, which passes the refilled text as
`input_ids` and the original one as `original_ids`.
"""

import torch
from torch.nn.functional import cross_entropy

from mtlib.contexts import gradients_if
from mtlib.method import one_stage
from mtlib.objectives import ORIGINAL, Objective, ObjectiveOutput, fine_tuning_loss
from mtlib.plm import SharedPLM
from mtlib.settings import Share, check


class OriginalAndRefilled(Objective):
    """Classifies both texts: L_FT = (CE(y | x) + CE(y | x̂)) / 2, in nats.

    It needs one more forward and backward pass than classifying the refilled text alone.

        objective = MaskTuning(classification=OriginalAndRefilled())
        output = objective(plm, batch)
        output.loss.backward()
    """

    name = "original_and_refilled"
    columns = {ORIGINAL: 0}

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        original = batch | {"input_ids": batch[ORIGINAL]}
        logits = plm.classify(batch)  # (batch, num_labels), of the refilled text
        original_logits = plm.classify(original)  # (batch, num_labels)
        refilled_loss = fine_tuning_loss(logits, batch["labels"])
        original_loss = fine_tuning_loss(original_logits, batch["labels"])
        loss = (refilled_loss + original_loss) / 2
        return ObjectiveOutput({"ft_loss": loss}, {"ft_loss": 1.0}, logits)


class ValidatedOrOriginal(Objective):
    """Cross-entropy of the refilled text, or of the original where the refilling is rejected.

    This is our reading of the paper's "double-validated" and "only high-quality examples are
    incorporated". The current classifier rejects a refilling if it is confident of its prediction
    for the original text (a probability of at least `confidence`) and makes another one for the
    refilled text. It costs two more forward passes.

    Args:
        confidence: probability, in [0, 1].
    """

    name = "validated_or_original"
    columns = {ORIGINAL: 0}

    def __init__(self, confidence: float = 0.9):
        super().__init__()
        check("confidence", confidence, Share)
        self.confidence = confidence

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        original_ids = batch[ORIGINAL]  # (batch, seq)
        with gradients_if(False):  # these passes only decide
            original_logits = plm.classify(batch | {"input_ids": original_ids})
            refilled_logits = plm.classify(batch)  # (batch, num_labels)
        confidence, prediction = original_logits.float().softmax(dim=-1).max(dim=-1)  # (batch,)
        disagrees = refilled_logits.argmax(dim=-1) != prediction  # (batch,)
        rejected = (confidence >= self.confidence) & disagrees  # (batch,)
        chosen = torch.where(rejected[:, None], original_ids, batch["input_ids"])  # (batch, seq)
        logits = plm.classify(batch | {"input_ids": chosen})
        losses = cross_entropy(logits.float(), batch["labels"], reduction="none")  # (batch,)
        components = {"ft_loss": losses.mean(), "n_rejected": rejected.sum()}
        return ObjectiveOutput(components, {"ft_loss": 1.0}, logits)


original_and_refilled = one_stage(OriginalAndRefilled)
validated_or_original = one_stage(ValidatedOrOriginal)

"""Plain fine-tuning: the baseline of the paper."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mtlib.objectives.output import ObjectiveOutput
from mtlib.plm import SharedPLM


def fine_tuning_loss(logits: Tensor, labels: Tensor, n_examples: Tensor | None = None) -> Tensor:
    """L_FT = -(1/B) sum log p(y | x): mean cross-entropy of the gold labels, in nats.

    Args:
        logits: `(batch, num_labels)`.
        labels: `(batch,)`.
        n_examples: B, when this batch is a slice of a larger one; default its own size.

    Returns:
        Scalar, in float32 whatever the logits' precision.
    """
    total = cross_entropy(logits.float(), labels, reduction="sum")
    return total / (len(labels) if n_examples is None else n_examples)


@dataclass(frozen=True)
class FineTuning:
    """Cross-entropy of the gold label given the original text, with everything trained."""

    def prepare(self, plm: SharedPLM, batch: dict, generator: torch.Generator | None = None) -> dict:
        return batch

    def __call__(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        logits = plm.classify(batch)  # (batch, num_labels)
        loss = fine_tuning_loss(logits, batch["labels"], batch.get("n_examples"))
        return ObjectiveOutput(loss, {"ft_loss": loss}, logits)

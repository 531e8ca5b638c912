"""Plain fine-tuning: the baseline of the paper."""

from torch import Tensor
from torch.nn.functional import cross_entropy

from mtlib.objectives.objective import Objective, ObjectiveOutput
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


class FineTuning(Objective):
    """Cross-entropy of the gold label given the original text, with everything trained."""

    name = "fine_tuning"

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        logits = plm.classify(batch)  # (batch, num_labels)
        loss = fine_tuning_loss(logits, batch["labels"], batch.get("n_examples"))
        return ObjectiveOutput(loss, {"ft_loss": loss}, logits)

"""Confidence regularization: a student of a teacher whose confidence is cut where a bias model is right."""

from collections.abc import Mapping

import torch
from torch import Tensor

from mtlib.objectives.objective import Objective, ObjectiveOutput, share_of_step
from mtlib.plm import SharedPLM


def confidence_regularization_loss(
    logits: Tensor, teacher_probabilities: Tensor, bias_probabilities: Tensor, labels: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """L = -mean of sum_j s_j log p_j, where s_j is proportional to t_j^(1 - b_y) (Utama et al. 2020).

    At b_y = 0 this is plain distillation, at b_y = 1 the target is uniform. The gold label enters through b_y alone.

    Args:
        logits: of the student, `(batch, classes)`.
        teacher_probabilities: t, `(batch, classes)`.
        bias_probabilities: b, `(batch, classes)`.
        labels: gold labels, `(batch,)`.

    Returns:
        The loss (scalar, nats, float32) and its part `ft_loss`, the same. Gradients reach the logits alone.
    """
    bias = bias_probabilities.detach().float().gather(1, labels[:, None])  # (batch, 1)
    softened = teacher_probabilities.detach().float() ** (1 - bias).clamp(min=0)  # (batch, classes)
    targets = softened / softened.sum(-1, keepdim=True)
    loss = -(targets * logits.float().log_softmax(-1)).sum(-1).mean()
    return loss, {"ft_loss": loss}


class ConfidenceRegularization(Objective):
    """The student's loss. Preparers put `teacher_probabilities` and `bias_log_probabilities` beside each example."""

    name = "confidence_regularization"

    @property
    def columns(self) -> Mapping[str, float]:
        return {"teacher_probabilities": 0.0, "bias_log_probabilities": 0.0}

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        logits = plm.classify(batch)  # (batch, classes)
        bias = batch["bias_log_probabilities"].exp()
        loss, _ = confidence_regularization_loss(logits, batch["teacher_probabilities"], bias, batch["labels"])
        loss = loss * share_of_step(torch.tensor(len(logits)), batch, "n_examples")
        return ObjectiveOutput(loss, {"ft_loss": loss}, logits)

"""Confidence regularization: a student of a teacher whose confidence is cut where a bias model is right."""

from collections.abc import Mapping

from datasets import Dataset
from torch import Tensor

from mtlib.objectives import Objective, ObjectiveOutput, check_probabilities
from mtlib.plm import SharedPLM


def confidence_regularization_loss(
    logits: Tensor,
    teacher_probabilities: Tensor,
    bias_probabilities: Tensor,
    labels: Tensor,
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
    soft_labels = softened / softened.sum(-1, keepdim=True)
    loss = -(soft_labels * logits.float().log_softmax(-1)).sum(-1).mean()
    return loss, {"ft_loss": loss}


class ConfidenceRegularization(Objective):
    """The student's loss. Preparers put `teacher_probabilities` and `bias_log_probabilities` beside each example.

    Both are `(batch, classes)`.
    """

    name = "confidence_regularization"
    prepared_by = "a fine-tuned teacher (mtlib.method.AddTeacher) and a bias model (mtlib.methods.bias.AddBias)"

    @property
    def columns(self) -> Mapping[str, float]:
        return {"teacher_probabilities": 0.0, "bias_log_probabilities": 0.0}

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        check_probabilities(examples, "teacher_probabilities", plm.config.num_labels)
        check_probabilities(examples, "bias_log_probabilities", plm.config.num_labels, logarithms=True)

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        logits = plm.classify(batch)  # (batch, classes)
        teacher, bias = batch["teacher_probabilities"], batch["bias_log_probabilities"].exp()
        _, parts = confidence_regularization_loss(logits, teacher, bias, batch["labels"])
        return ObjectiveOutput(parts, {"ft_loss": 1.0}, logits)

"""Confidence regularization: a student of a teacher that is unsure where a bias is right."""

from dataclasses import dataclass

import torch
from datasets import Dataset
from torch import Tensor

from mtlib.contexts import evaluating
from mtlib.encoding import Collator, batches_by_length
from mtlib.method import LearningRates, Stage
from mtlib.methods.bias import ReadsBias, unexplained
from mtlib.methods.settings import BiasSettings
from mtlib.objectives import FineTuning
from mtlib.plm import SharedPLM
from mtlib.preparing import Prepared, Transform, require_columns, with_column


def confidence_regularization_loss(
    logits: Tensor,
    teacher_probabilities: Tensor,
    bias_log_probabilities: Tensor,
    labels: Tensor,
) -> Tensor:
    """L = -mean of sum_j s_j log p_j, where s_j is proportional to t_j^(1 - b_y).

    At b_y = 0 this is plain distillation; at b_y = 1 the target is uniform. The gold label enters
    only through b_y (Utama et al. 2020).

        teacher = torch.tensor([[0.9, 0.1]])
        bias = torch.tensor([[0.5, 0.5]]).log()
        confidence_regularization_loss(torch.zeros(1, 2), teacher, bias, torch.tensor([0]))  # log 2

    Args:
        logits: of the student, `(batch, classes)`.
        teacher_probabilities: t, `(batch, classes)`.
        bias_log_probabilities: log b, `(batch, classes)`.
        labels: gold labels, `(batch,)`.

    Returns:
        Scalar, nats, float32.
    """
    exponents = unexplained(bias_log_probabilities, labels)[:, None]  # (batch, 1)
    softened = teacher_probabilities**exponents  # (batch, classes)
    soft_labels = softened / softened.sum(-1, keepdim=True)
    return -(soft_labels * logits.float().log_softmax(-1)).sum(-1).mean()


class ConfidenceRegularization(ReadsBias):
    """The student's loss, which also reads `teacher_probabilities`, `(batch, classes)`."""

    name = "confidence_regularization"
    loss = staticmethod(confidence_regularization_loss)
    columns = {"teacher_probabilities": 0.0, "bias_log_probabilities": 0.0}


@dataclass(frozen=True)
class AddTeacher(Transform):
    """Adds `teacher_probabilities`, the predictions of the previous stage's model.

    The teacher predicts the very examples that it was trained on, as in the released code, so after
    a few epochs its predictions can be nearly certain. The record gets its accuracy on them.
    """

    asks_previous = True

    @torch.no_grad()
    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        require_columns(examples, self, "labels")
        collate = Collator(plm.tokenizer)
        probabilities = torch.empty(len(examples), plm.config.num_labels)
        with evaluating(plm):
            for rows, batch in batches_by_length(examples, collate, plm.device):
                probabilities[rows] = plm.classify(batch).float().softmax(-1).cpu()
        correct = probabilities.argmax(-1) == torch.tensor(examples["labels"][:])
        examples = with_column(examples, "teacher_probabilities", probabilities.tolist())
        return Prepared(examples, {"teacher_accuracy": round(correct.float().mean().item(), 4)})


def confidence_regularization(
    settings: BiasSettings,
    rates: LearningRates,
    tokenizer,
) -> tuple[Stage, ...]:
    """A teacher by fine-tuning, then a student of it that starts anew."""
    teacher = Stage(FineTuning(), rates, name="teacher")
    transforms = (settings.add_bias(), AddTeacher())
    return (teacher, Stage(ConfidenceRegularization(), rates, transforms, start="pretrained"))

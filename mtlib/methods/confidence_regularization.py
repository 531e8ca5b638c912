"""Confidence regularization: a student of a teacher whose confidence is cut where a bias model is right."""

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
from mtlib.preparing import Prepared, Preparer, require_columns, with_column


def confidence_regularization_loss(
    logits: Tensor, teacher_probabilities: Tensor, bias_log_probabilities: Tensor, labels: Tensor
) -> Tensor:
    """L = -mean of sum_j s_j log p_j, where s_j is proportional to t_j^(1 - b_y) (Utama et al. 2020).

    At b_y = 0 this is plain distillation, at b_y = 1 the target is uniform. The gold label enters through b_y alone.

    Args:
        logits: of the student, `(batch, classes)`.
        teacher_probabilities: t, `(batch, classes)`.
        bias_log_probabilities: log b, `(batch, classes)`.
        labels: gold labels, `(batch,)`.

    Returns:
        Scalar, nats, float32.
    """
    softened = teacher_probabilities ** unexplained(bias_log_probabilities, labels)[:, None]  # (batch, classes)
    soft_labels = softened / softened.sum(-1, keepdim=True)
    return -(soft_labels * logits.float().log_softmax(-1)).sum(-1).mean()


class ConfidenceRegularization(ReadsBias):
    """The student's loss, which also reads `teacher_probabilities`, `(batch, classes)`."""

    name = "confidence_regularization"
    loss = staticmethod(confidence_regularization_loss)
    columns = {"teacher_probabilities": 0.0, "bias_log_probabilities": 0.0}


@dataclass(frozen=True)
class AddTeacher(Preparer):
    """Puts `teacher_probabilities` beside each example: the answers of the model that the stage before left.

    The teacher is asked about the very examples that it was trained on, as in the released code, so after a few epochs
    its answers can be nearly certain. Counts, for the record, how often it is right on them.
    """

    asks_previous = True

    @torch.no_grad()
    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0, batch_size: int = 64) -> Prepared:
        require_columns(examples, self, "labels")
        probabilities = torch.empty(len(examples), plm.config.num_labels)
        with evaluating(plm):
            for rows, batch in batches_by_length(examples, Collator(plm.tokenizer), plm.device, batch_size):
                probabilities[rows] = plm.classify(batch).float().softmax(-1).cpu()
        right = probabilities.argmax(-1) == torch.tensor(examples["labels"][:])
        examples = with_column(examples, "teacher_probabilities", probabilities.tolist())
        return Prepared(examples, {"teacher_accuracy": round(right.float().mean().item(), 4)})


def confidence_regularization(settings: BiasSettings, rates: LearningRates, tokenizer) -> tuple[Stage, ...]:
    teacher = Stage(FineTuning(), rates, name="teacher")
    prepare = (settings.add_bias(), AddTeacher())
    return (teacher, Stage(ConfidenceRegularization(), rates, prepare, start="pretrained"))

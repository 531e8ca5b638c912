"""What every objective takes and returns."""

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from mtlib.plm import SharedPLM


@dataclass
class ObjectiveOutput:
    """The loss of one batch, what it is made of, and the class logits.

    Args:
        loss: scalar to differentiate.
        parts: named scalars that add up over the slices of a batch. The losses (`mlm_loss`, `ft_loss`, unweighted)
            still carry their graph, the counts (`n_masked`, `n_changed`, ...) do not.
        logits: class logits `(batch, num_labels)`, or None for an objective without a classifier.
        perturbed_ids: the text with its masks filled, `(batch, seq)`, for an objective that masks; a classifier head
            read this instead of the original text.
        mlm_logits: masked-LM logits at the masked places, `(n_masked, vocab)`, rows in reading order of the mask.
    """

    loss: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    logits: Tensor | None = None
    perturbed_ids: Tensor | None = None
    mlm_logits: Tensor | None = None


class Objective(Protocol):
    """A loss on a batch.

    A batch is a mapping with `input_ids`, `attention_mask` (and `token_type_ids`), each `(batch, seq)`, `labels`
    `(batch,)`, and optionally what `prepare` and the trainer add:

    - `mask`, bool `(batch, seq)`: the masked places (drawn by `prepare`, or by the call itself where absent);
    - `n_examples`, `n_masked`: the counts that mean losses divide by, when the batch is a slice of a larger one
      (gradient accumulation, several processes). Without them the batch's own counts are used.
    """

    def prepare(self, plm: SharedPLM, batch: dict, generator: torch.Generator | None = None) -> dict:
        """Return the batch with its masks drawn, for an objective that masks."""

    def __call__(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput: ...

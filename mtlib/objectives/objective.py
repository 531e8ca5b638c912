"""What every objective takes and returns."""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch
from datasets import Dataset
from torch import Tensor, nn

from mtlib.errors import UserError
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
            read this instead of the original text (but for `classifier_reads="original"`).
        mlm_logits: masked-LM logits at the masked places, `(n_masked, vocab)`, rows in reading order of the mask.
    """

    loss: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    logits: Tensor | None = None
    perturbed_ids: Tensor | None = None
    mlm_logits: Tensor | None = None


class Objective(nn.Module, ABC):
    """A loss on a batch.

    A batch is a mapping with `input_ids`, `attention_mask` (and `token_type_ids`), each `(batch, seq)`, `labels`
    `(batch,)`, the objective's own `columns`, and optionally what `prepare` and the trainer add:

    - `mask`, bool `(batch, seq)`: the masked places (drawn by `prepare`, or by the call itself where absent);
    - `mlm_places`, bool `(batch, seq)`: the places that the masked-LM loss is over, if those are not the masked ones;
    - `n_examples`, `n_mlm_places` and whatever else `totals` names: the sums that mean losses divide by, when the batch
      is a slice of a larger one (gradient accumulation, several processes). Without them the batch's own are used.

    An objective may own parameters (a gate, a bias network). Those whose shape depends on the model or the data are
    made by `build`. The trainer trains them at `learning_rate`, or at the classifier's rate where that is None, and
    keeps them in its checkpoints (`objective.safetensors`).

    One with `two_losses` also has a weight `alpha` and two methods like `forward`, for updates that run one after the
    other: `masked_lm`, and `classify` of a batch with the `perturbed_ids` that `masked_lm` returned. Its loss is
    `alpha` times the first plus `1 - alpha` times the second.
    """

    name: str = "objective"  # of a stage that trains on it
    classifies: bool = True  # it needs `labels` and trains the classifier head
    two_losses: bool = False
    compares_texts: bool = False  # a refilled text with its original: `MaskTuning` brings both, and nothing else does
    token_draws: Collection[str] = ("mask", "mlm_places")  # what `prepare` adds that is (batch, seq)
    learning_rate: float | None = None
    prepared_by: str = ""  # the preparers that add its `columns`, for the message where these are missing

    @property
    def columns(self) -> Mapping[str, int | float]:
        """Columns of the dataset that it needs beside the usual ones, each with the value that pads it."""
        return {}

    def check(self, plm: SharedPLM) -> None:
        """Raise `UserError` where this objective cannot train this model."""

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        """Make the parameters whose shape depends on the model or on the training set; a second call makes them anew.

        So one objective may serve several trainings. The trainer calls it with torch's global generator seeded.
        """

    def totals(self, batch: dict) -> dict[str, Tensor | int]:
        """What its mean losses divide by, for a prepared batch. The trainer adds them up over the slices of a step."""
        places = batch.get("mlm_places", batch.get("mask"))  # (batch, seq)
        return {"n_examples": len(batch["input_ids"]), "n_mlm_places": 0 if places is None else places.sum()}

    def prepare(self, plm: SharedPLM, batch: dict, generator: torch.Generator | None = None) -> dict:
        """The batch with all that is random drawn (masks, spans), but for what it brings along.

        New entries have the batch as their first dimension. `token_draws` names those with the sequence as second; they
        are cut to the length of a slice where several processes share a batch.
        """
        return batch

    @abstractmethod
    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        """The loss of the batch."""


def mean(values: Tensor, n_examples: Tensor | None = None) -> Tensor:
    """The mean of one value for each example `(batch,)`; over `n_examples`, if the batch is a slice of a larger one."""
    return values.sum() / (len(values) if n_examples is None else n_examples)


def check_probabilities(examples: Dataset | None, name: str, n_labels: int, logarithms: bool = False) -> None:
    """Raise `UserError` where a row of the column `name` does not add up to 1: the loss could then be 0, or anything.

    Without examples, and where they are made on the fly, nothing is checked.
    """
    if not isinstance(examples, Dataset) or name not in examples.column_names:
        return

    def holds(row: object) -> bool:
        if not isinstance(row, list) or len(row) != n_labels:
            return False
        total = sum(math.exp(min(value, 1)) for value in row) if logarithms else sum(row)  # no overflow
        return abs(total - 1) < 0.01  # room for rounded numbers; False for NaN

    for number, row in enumerate(examples.with_format(None)[name][:]):
        if not holds(row):
            what = "logarithms of probabilities" if logarithms else "probabilities"
            raise UserError(
                f"row {number} of the training set has {row} for {name}; expected the {what} of {n_labels} labels, "
                "which add up to 1."
            )


def require_built(objective: Objective, parameters: object) -> None:
    """Raise `UserError` where an objective's own parameters, which `build` makes, are still None."""
    if parameters is None:
        name = type(objective).__name__
        raise UserError(
            f"{name} has no parameters yet; call objective.build(plm, examples) before the first batch, and give "
            "objective.parameters() to the optimiser too. ObjectiveTrainer does both."
        )

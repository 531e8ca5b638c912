"""What a training minimises: the contract, and the three losses of Mask-tuning (equation 1).

The losses of other methods are in `mtlib.methods`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from datasets import Dataset
from numpy.typing import NDArray
from pydantic import InstanceOf
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mtlib.contexts import gradients_if
from mtlib.errors import UserError
from mtlib.masking import ExactMasking, MaskingPolicy, draw_mask
from mtlib.plm import Batch, SharedPLM
from mtlib.rng import RNG
from mtlib.rows.labels import label_column
from mtlib.settings import Above0, ClassifierReads, Fill, Share, check

# the column `(batch, seq)` that `MaskTuning` brings to a loss on the refilled text
ORIGINAL = "original_ids"


@dataclass
class ObjectiveOutput:
    """The components of one batch's loss, and the class logits.

    Args:
        components: named scalars. The losses (`mlm_loss`, `ft_loss`) still carry their graph. A
            name that begins with `n_` is a count; everything else is a mean over the batch (see
            `Objective.denominators`).
        weights: the loss is the sum of these components, weighted so.
        logits: class logits `(batch, num_labels)`, or None for an objective without a classifier.
        perturbed_ids: the text with its masks filled, `(batch, seq)`, for an objective that masks.
            The classifier head read this in place of the original text (unless
            `classifier_reads="original"`).
    """

    components: dict[str, Tensor]
    weights: Mapping[str, float]
    logits: Tensor | None = None
    perturbed_ids: Tensor | None = None

    def __post_init__(self) -> None:
        if unknown := self.weights.keys() - self.components.keys():
            names = ", ".join(self.components)
            raise UserError(f"weights has {min(unknown)!r}; the components are {names}.")
        if counts := [name for name in self.weights if name.startswith("n_")]:
            raise UserError(f"{counts[0]} is a loss, but n_ begins the names of counts; rename it.")
        if "loss" in self.components:
            raise UserError("a component is called 'loss', as the whole; rename it.")

    @property
    def loss(self) -> Tensor:
        """The scalar to differentiate."""
        terms = [weight * self.components[name] for name, weight in self.weights.items()]
        return sum(terms[1:], start=terms[0])


class Objective(nn.Module, ABC):
    """A loss on a batch.

    A batch is a mapping with `input_ids`, `attention_mask` (and `token_type_ids`), each
    `(batch, seq)`, `labels` `(batch,)`, the objective's own `columns`, and optionally what
    `sample` adds:

    - `mask`, bool `(batch, seq)`: the masked tokens, drawn by the collator, by `sample` or by the
      call itself;
    - `mlm_positions` and `mlm_weights`, `(batch, k)`: the tokens that the masked-LM loss is over
      (`masking.draw_mask`).

    An objective may have parameters of its own (a gate, a bias network). Those whose shape depends
    on the model or the data are made by `build`. The trainer trains them at `learning_rate`, or at
    the classifier's rate if that is None, and saves them in its checkpoints
    (`objective.safetensors`).
    """

    # default name of a stage that trains on this objective
    name: str = "objective"
    # it needs `labels` and trains the classifier head
    classifies: bool = True
    # After `sample`, a step needs no device-to-host synchronisation, and batches have few shapes: a
    # CUDA graph can hold it. Its columns have a number for each token, or one for the example:
    # where batches are padded further for a graph, a list as long as its text is padded too.
    static: bool = False
    learning_rate: float | None = None
    masking: MaskingPolicy | None = None
    built_for: object = None  # the trainer for whose data `build` was called last

    @property
    def columns(self) -> Mapping[str, int | float]:
        """Columns that it needs beside the usual ones, each with the value that pads it."""
        return {}

    def check(self, plm: SharedPLM) -> None:
        """Raise `UserError` if this objective cannot train this model."""

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        """Make the parameters whose shape depends on the model or on the training set.

        A second call makes them anew, so that one objective may serve several trainings. The
        trainer calls it with torch's global generator seeded.
        """

    def denominators(self, batch: Batch) -> dict[str, Tensor | int]:
        """The denominators of its mean components, for a sampled batch; by default the examples.

        The trainer weighs the micro-batches of an optimiser step by these, so that the loss of the
        step is the loss of the whole batch.
        """
        return {}

    def sample(self, plm: SharedPLM, batch: Batch, rng: RNG = None) -> Batch:
        """The batch with everything random drawn (masks, spans), unless the batch brings it."""
        return batch

    @abstractmethod
    def forward(self, plm: SharedPLM, batch: Batch) -> ObjectiveOutput:
        """The loss of the batch."""


def with_refilled(batch: Batch, filled: ObjectiveOutput) -> Batch:
    """The batch with the text that `masked_lm` has filled, for `classify`."""
    return batch | {"perturbed_ids": cast(Tensor, filled.perturbed_ids)}


def require_built(objective: Objective, parameters: object) -> None:
    """Raise `UserError` if an objective's own parameters, which `build` makes, are still None."""
    if parameters is None:
        name = type(objective).__name__
        raise UserError(
            f"{name} has no parameters yet; call objective.build(plm, examples) before the first "
            "batch, and give objective.parameters() to the optimiser too. ObjectiveTrainer does "
            "both."
        )


def fine_tuning_loss(
    logits: Tensor,
    labels: Tensor,
    class_weights: Tensor | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """L_FT = -(1/B) sum log p(y | x): mean cross-entropy of the gold labels, in nats.

        logits = torch.tensor([[2.0, 0.0]])
        labels = torch.tensor([0])
        fine_tuning_loss(logits, labels)  # log(1 + exp(-2)) = 0.1269

    Args:
        logits: `(batch, num_labels)`.
        labels: `(batch,)`.
        class_weights: `(num_labels,)`; the mean is then weighted by the gold label's weight.
        label_smoothing: the share of the target that is spread evenly over all labels.

    Returns:
        Scalar, in float32 whatever the logits' precision.
    """
    return cross_entropy(logits.float(), labels, class_weights, label_smoothing=label_smoothing)


class FineTuning(Objective):
    """Cross-entropy of the gold label given the original text (L_FT); everything is trained.

        objective = FineTuning()
        output = objective(plm, batch)
        output.loss.backward()

    Args:
        class_weights: a number above 0 for each label; or "balanced", which is n / (number of
            labels * n of the label) in the training set, so that all labels count alike.
        label_smoothing: the share of the target that is spread evenly over all labels, in [0, 1].

    Raises:
        UserError: an argument out of its range.
    """

    name = "fine_tuning"
    static = True

    def __init__(
        self,
        class_weights: Sequence[float] | NDArray[Any] | Tensor | str | None = None,
        label_smoothing: float = 0.0,
    ):
        super().__init__()
        if hasattr(class_weights, "tolist"):  # an array, a tensor, a column of pandas
            class_weights = cast(Any, class_weights).tolist()
        if class_weights != "balanced":
            check("class_weights", class_weights, Sequence[Above0] | None)
        check("label_smoothing", label_smoothing, Share)
        self.class_weights = class_weights
        self.label_smoothing = label_smoothing
        weights = None
        if class_weights not in (None, "balanced"):
            weights = torch.tensor(class_weights, dtype=torch.float32)
        self.register_buffer("weights", weights, persistent=False)  # (num_labels,)

    def check(self, plm: SharedPLM) -> None:
        if self.class_weights in (None, "balanced") or len(self.class_weights) == plm.num_labels:
            return
        raise UserError(
            f"class_weights has {len(self.class_weights)} numbers; expected {plm.num_labels}, one "
            "for each label of the model."
        )

    def balance(self) -> None:
        """Weigh the labels by the training set, as `class_weights="balanced"` does."""
        self.class_weights = "balanced"

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        if self.class_weights == "balanced" and examples is not None:
            labels = torch.as_tensor(examples[label_column(examples.column_names)][:])
            counts = labels.bincount(minlength=plm.num_labels)  # (num_labels,)
            weights = counts.sum() / (len(counts) * counts)
            weights[counts == 0] = 0  # which label smoothing would give a share of each loss
            self.weights = weights.to(plm.device)

    def denominators(self, batch: Batch) -> dict[str, Tensor | int]:
        if self.weights is None:
            return {}
        return {"ft_loss": self.weights[batch["labels"]].sum()}

    def forward(self, plm: SharedPLM, batch: Batch) -> ObjectiveOutput:
        if self.class_weights is not None:
            require_built(self, self.weights)
        logits = plm.classify(batch)  # (batch, num_labels)
        loss = fine_tuning_loss(logits, batch["labels"], self.weights, self.label_smoothing)
        return ObjectiveOutput({"ft_loss": loss}, {"ft_loss": 1.0}, logits)


def masked_lm_loss(
    mlm_logits: Tensor,
    mlm_labels: Tensor,
    weights: Tensor | None = None,
) -> Tensor:
    """L_MLM = -(1/N) sum over N positions of log p(x_i | masked text), in nats.

    The positions are the masked ones or, under a policy that has the whole text predicted, all.

        mlm_logits = torch.tensor([[[2.0, 0.0]]])
        mlm_labels = torch.tensor([[0]])
        masked_lm_loss(mlm_logits, mlm_labels)  # log(1 + exp(-2)) = 0.1269

    Args:
        mlm_logits: `(..., vocab)`.
        mlm_labels: the original ids at these positions, `(...)`.
        weights: of the positions, `(...)`: 1, or 0 for one that does not count; None counts all.

    Returns:
        Scalar, in float32; 0 with a zero gradient if nothing is masked, never NaN.
    """
    if weights is None:
        weights = torch.ones(mlm_labels.shape, device=mlm_labels.device)
    flat_logits = mlm_logits.float().flatten(0, -2)  # (positions, vocab)
    losses = cross_entropy(flat_logits, mlm_labels.flatten(), reduction="none")  # (positions,)
    return (losses * weights.flatten()).sum() / weights.sum().clamp(min=1)


class _MaskingObjective(Objective):
    """An objective that masks and fills: `masking` and `fill` say how."""

    masking: MaskingPolicy
    fill: Fill = "argmax"

    @property
    def columns(self) -> Mapping[str, int | float]:
        return self.masking.columns

    def denominators(self, batch: Batch) -> dict[str, Tensor | int]:
        return {"mlm_loss": batch["mlm_weights"].sum()}

    def sample(self, plm: SharedPLM, batch: Batch, rng: RNG = None) -> Batch:
        return draw_mask(batch, self.masking, plm.tokenizer, rng, plm)

    def masked_lm(self, plm: SharedPLM, batch: Batch) -> ObjectiveOutput:
        """L_MLM of a sampled batch.

        The same pass fills the masks; the filled text is the output's `perturbed_ids`.
        """
        input_ids = batch["input_ids"]  # (batch, seq)
        mask = batch["mask"]  # (batch, seq)
        mlm_logits, perturbed_ids = plm.fill_masks(batch, mask, self.fill)
        mlm_labels = input_ids.gather(1, batch["mlm_positions"])  # (batch, k)
        components = {
            "mlm_loss": masked_lm_loss(mlm_logits, mlm_labels, batch["mlm_weights"]),
            "n_masked": mask.sum(),
            "n_changed": (input_ids != perturbed_ids).sum(),
        }
        return ObjectiveOutput(components, {"mlm_loss": 1.0}, None, perturbed_ids)


class MaskedLM(_MaskingObjective):
    """Masked-LM training of trunk and head (L_MLM), as in pre-training.

    The classifier head gets no gradient.

        objective = MaskedLM()
        output = objective(plm, batch)
        output.loss.backward()

    Args:
        masking: policy; by default 15 % of the tokens, the convention of pre-training.
    """

    name = "masked_lm"
    classifies = False

    def __init__(self, masking: MaskingPolicy | None = None):
        super().__init__()
        check("masking", masking, InstanceOf[MaskingPolicy] | None)
        self.masking = masking or ExactMasking(0.15)
        self.static = not self.masking.asks_classifier

    def forward(self, plm: SharedPLM, batch: Batch) -> ObjectiveOutput:
        output = self.masked_lm(plm, self.sample(plm, batch))
        # a masked token that the filling leaves as it was is predicted correctly
        n_changed = output.components.pop("n_changed")
        output.components["n_correct"] = output.components["n_masked"] - n_changed
        return output


class MaskTuning(_MaskingObjective):
    """Equation 1 of arXiv 2307.10457, L = alpha * L_MLM + (1 - alpha) * L_FT.

    Each batch is masked anew. L_FT is the loss of the text whose masks the model has filled.

        objective = MaskTuning(alpha=0.6)
        output = objective(plm, batch)
        output.loss.backward()

    Args:
        alpha: weight of the masked-LM loss; the paper's are 0.6 (SST-2), 0.7 (MNLI), 0.8 (QQP).
        masking: policy; by default 5 % of each example's tokens, at least one.
        fill: "argmax" (default) or "sample".
        classification: the loss on the refilled text, any objective that classifies; by default
            cross-entropy (L_FT).
        classifier_reads: "refilled" (default); or "original", a control without the refilled text:
            the masked LM is then an auxiliary task beside fine-tuning on the texts as they are.

    Raises:
        UserError: an argument out of its range, or a `classification` that does not classify.
    """

    name = "mask_tuning"

    def __init__(
        self,
        alpha: float = 0.6,
        masking: MaskingPolicy | None = None,
        fill: Fill = "argmax",
        classification: Objective | None = None,
        classifier_reads: ClassifierReads = "refilled",
    ):
        super().__init__()
        check("alpha", alpha, Share)
        check("fill", fill, Fill)
        check("classifier_reads", classifier_reads, ClassifierReads)
        check("masking", masking, InstanceOf[MaskingPolicy] | None)
        check("classification", classification, InstanceOf[Objective] | None)
        self.classification = classification or FineTuning()
        if not self.classification.classifies or isinstance(self.classification, MaskTuning):
            raise UserError(
                f"classification is {self.classification.name!r}; expected an objective that "
                "classifies and has one loss, such as FineTuning()."
            )
        if classifier_reads == "original" and ORIGINAL in self.classification.columns:
            raise UserError(
                f"classifier_reads is 'original', and {self.classification.name} compares that "
                "with the refilled text; give 'refilled'."
            )
        self.alpha = float(alpha)
        self.masking = masking or ExactMasking()
        self.fill = fill
        self.classifier_reads = classifier_reads
        self.learning_rate = self.classification.learning_rate
        self.static = self.classification.static and not self.masking.asks_classifier

    @property
    def columns(self) -> Mapping[str, int | float]:
        columns = {**super().columns, **self.classification.columns}
        if self.classifier_reads == "refilled":
            columns.pop(ORIGINAL, None)  # `classify` adds it to the batch
        return columns

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        self.classification.build(plm, examples)

    def denominators(self, batch: Batch) -> dict[str, Tensor | int]:
        return super().denominators(batch) | self.classification.denominators(batch)

    def check(self, plm: SharedPLM) -> None:
        self.classification.check(plm)

    def sample(self, plm: SharedPLM, batch: Batch, rng: RNG = None) -> Batch:
        masked = super().sample(plm, batch, rng)
        return self.classification.sample(plm, masked, rng)

    def forward(self, plm: SharedPLM, batch: Batch) -> ObjectiveOutput:
        batch = self.sample(plm, batch)
        # a loss of weight 0 is computed without a graph: its gradient would be zeros
        with gradients_if(self.alpha > 0):
            filled = self.masked_lm(plm, batch)
        with gradients_if(self.alpha < 1):
            classified = self.classify(plm, with_refilled(batch, filled))
        weights = {"mlm_loss": self.alpha}  # equation 1
        for name, weight in classified.weights.items():  # the second loss may have several terms
            weights[name] = (1 - self.alpha) * weight
        components = filled.components | classified.components
        if len(components) < len(filled.components) + len(classified.components):
            twice = ", ".join(filled.components.keys() & classified.components.keys())
            raise UserError(
                f"{type(self.classification).__name__} has components that MaskTuning has itself "
                f"({twice}); rename them."
            )
        return ObjectiveOutput(components, weights, classified.logits, filled.perturbed_ids)

    def classify(self, plm: SharedPLM, batch: Batch) -> ObjectiveOutput:
        """The classification loss on what the classifier reads.

        That is the refilled `perturbed_ids`, or with `classifier_reads="original"` the text itself.
        """
        if self.classifier_reads == "original":
            return self.classification(plm, batch)
        refilled = {"input_ids": batch["perturbed_ids"], ORIGINAL: batch["input_ids"]}
        return self.classification(plm, batch | refilled)

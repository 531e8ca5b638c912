"""What a training minimises: the contract, and the three losses of Mask-tuning (equation 1).

Other methods' losses stand in `mtlib.methods`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mtlib.contexts import evaluating, gradients_if
from mtlib.errors import UserError
from mtlib.masking import ExactMasking, MaskingPolicy, check_policy, draw_mask, perturbation_counts, replace_masked
from mtlib.plm import FilledMasks, SharedPLM
from mtlib.plm_checks import check_fill
from mtlib.settings import SHARE, ClassifierReads, Fill, FillMode, Reduction, Replacement, check_choice


@dataclass
class ObjectiveOutput:
    """What the loss of one batch is made of, and the class logits.

    Args:
        parts: named scalars. The losses (`mlm_loss`, `ft_loss`) still carry their graph. What is called `n_...` is a
            count, all else a mean over the batch (`Objective.sizes`).
        weights: of the parts in the loss, which is their weighted sum.
        logits: class logits `(batch, num_labels)`, or None for an objective without a classifier.
        perturbed_ids: the text with its masks filled, `(batch, seq)`, for an objective that masks; a classifier head
            read this instead of the original text (but for `classifier_reads="original"`).
        mlm_logits: masked-LM logits at the masked places, `(n_masked, vocab)`, rows in reading order of the mask.
    """

    parts: dict[str, Tensor]
    weights: Mapping[str, float]
    logits: Tensor | None = None
    perturbed_ids: Tensor | None = None
    mlm_logits: Tensor | None = None

    @property
    def loss(self) -> Tensor:
        """Scalar to differentiate."""
        return sum(weight * self.parts[name] for name, weight in self.weights.items())


class Objective(nn.Module, ABC):
    """A loss on a batch.

    A batch is a mapping with `input_ids`, `attention_mask` (and `token_type_ids`), each `(batch, seq)`, `labels`
    `(batch,)`, the objective's own `columns`, and optionally what `prepare` adds:

    - `mask`, bool `(batch, seq)`: the masked places (drawn by `prepare`, or by the call itself where absent);
    - `mlm_places`, bool `(batch, seq)`: the places that the masked-LM loss is over, if those are not the masked ones.

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

    def sizes(self, batch: dict) -> dict[str, Tensor | int]:
        """What the means among its parts are over, for a prepared batch; those that are not named: over the examples.

        By these the trainer weighs the slices of an optimiser step, so that the step's loss is the one of the whole.
        """
        return {}

    def prepare(self, plm: SharedPLM, batch: dict, generator: torch.Generator | None = None) -> dict:
        """The batch with all that is random drawn (masks, spans), but for what it brings along."""
        return batch

    @abstractmethod
    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        """The loss of the batch."""


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


def state_size(plm: SharedPLM) -> int:
    return plm.config.hidden_size


def classify_with_state(plm: SharedPLM, batch: dict) -> tuple[Tensor, Tensor]:
    """Class logits `(batch, num_labels)`, and the state of each text before dropout `(batch, hidden)`, in one pass."""
    read = []  # by the parts of the classifier that stand above the trunk, in their order
    with ExitStack() as hooks:
        for part in plm.classifier.children():
            if part is not plm.trunk:
                hooks.enter_context(part.register_forward_pre_hook(lambda module, args: read.append(args[0])))
        logits = plm.classify(batch)
    state = read[0]  # (batch, hidden), or (batch, seq, hidden) where the head takes the first token itself
    return logits, state[:, 0] if state.ndim == 3 else state


def text_state(plm: SharedPLM, output, batch: dict) -> Tensor:
    """A state of each whole text in what the trunk gave back, `(batch, hidden)`, where nothing is classified.

    The pooler's where there is one (BERT), the last `</s>` of the decoder (BART), else the first token (RoBERTa).
    """
    if getattr(output, "pooler_output", None) is not None:
        return output.pooler_output
    states = output.last_hidden_state  # (batch, seq, hidden)
    if not plm.config.is_encoder_decoder:
        return states[:, 0]
    places = torch.arange(states.shape[1], device=states.device)
    last = ((batch["input_ids"] == plm.config.eos_token_id) * places).argmax(1)  # (batch,)
    return states[torch.arange(len(states), device=states.device), last]


def fine_tuning_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """L_FT = -(1/B) sum log p(y | x): mean cross-entropy of the gold labels, in nats.

    Args:
        logits: `(batch, num_labels)`.
        labels: `(batch,)`.

    Returns:
        Scalar, in float32 whatever the logits' precision.
    """
    return cross_entropy(logits.float(), labels)


class FineTuning(Objective):
    """Cross-entropy of the gold label given the original text, with everything trained."""

    name = "fine_tuning"

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        logits = plm.classify(batch)  # (batch, num_labels)
        return ObjectiveOutput({"ft_loss": fine_tuning_loss(logits, batch["labels"])}, {"ft_loss": 1.0}, logits)


def masked_lm_loss(mlm_logits: Tensor, mlm_labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """L_MLM = -(1/N) sum over N places of log p(x_i | masked text), in nats.

    The places are the masked ones; under a policy that has the whole text predicted, all of them.

    Args:
        mlm_logits: `(n_mlm_places, vocab)`.
        mlm_labels: the original ids there, `(n_mlm_places,)`.
        weights: of the places, `(n_mlm_places,)`, in place of 1/N for all of them.

    Returns:
        Scalar, in float32; 0 with a zero gradient where nothing is masked, never NaN.
    """
    if weights is not None:
        return (cross_entropy(mlm_logits.float(), mlm_labels, reduction="none") * weights).sum()
    return cross_entropy(mlm_logits.float(), mlm_labels, reduction="sum") / max(1, len(mlm_labels))


def mlm_loss_and_filling(
    plm: SharedPLM,
    batch: dict,
    masked_ids: Tensor,
    fill: Fill = "argmax",
    top_k: int = 10,
    weights: Tensor | None = None,
) -> tuple[Tensor, FilledMasks]:
    """The masked-LM loss, and what the masks are filled with, from one pass over `masked_ids` `(batch, seq)`."""
    input_ids, mask = batch["input_ids"], batch["mask"]  # (batch, seq)
    places = batch.get("mlm_places", mask)  # (batch, seq)
    filled = plm.fill_masks(batch, places, fill, top_k, masked_ids)
    loss = masked_lm_loss(filled.mlm_logits, input_ids[places], weights)
    if places is mask:
        return loss, filled
    perturbed_ids = torch.where(mask, filled.perturbed_ids, input_ids)
    return loss, FilledMasks(filled.mlm_logits[mask[places]], perturbed_ids)


class MaskedLM(Objective):
    """Masked-LM training of trunk and head, as in pre-training; the classifier head gets no gradient.

    Args:
        masking: policy; 15 % is the convention of pre-training.
        replacement: see `replace_masked`.
    """

    name = "masked_lm"
    classifies = False

    def __init__(self, masking: MaskingPolicy | None = None, replacement: Replacement = "mask"):
        super().__init__()
        check_choice("replacement", replacement, Replacement)
        check_policy(masking)
        self.masking = masking or ExactMasking(0.15)
        self.replacement = replacement

    @property
    def columns(self) -> Mapping[str, int | float]:
        return self.masking.columns

    def sizes(self, batch: dict) -> dict[str, Tensor | int]:
        return {"mlm_loss": batch.get("mlm_places", batch["mask"]).sum()}

    def prepare(self, plm: SharedPLM, batch: dict, generator: torch.Generator | None = None) -> dict:
        return draw_mask(plm, batch, self.masking, generator)

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        batch = self.prepare(plm, batch)
        mask = batch["mask"]  # (batch, seq)
        masked_ids = replace_masked(batch["input_ids"], mask, plm.tokenizer, self.replacement)
        loss, filled = mlm_loss_and_filling(plm, batch, masked_ids)
        parts = {
            "mlm_loss": loss,
            "n_masked": mask.sum(),
            "n_correct": (filled.perturbed_ids[mask] == batch["input_ids"][mask]).sum(),
        }
        return ObjectiveOutput(parts, {"mlm_loss": 1.0}, None, filled.perturbed_ids, filled.mlm_logits)


def integrated_loss(mlm_loss: Tensor, ft_loss: Tensor, alpha: float) -> Tensor:
    """Equation 1 of arXiv 2307.10457: L = alpha * L_MLM + (1 - alpha) * L_FT."""
    return alpha * mlm_loss + (1 - alpha) * ft_loss


class MaskTuning(Objective):
    """Equation 1 on a batch that is masked anew each time it is seen.

    Args:
        alpha: weight of the masked-LM loss; the paper's 0.6 (SST-2), 0.7 (MNLI), 0.8 (QQP).
        masking: policy; default 5 % of each example's tokens, at least one.
        fill: "argmax" (default), "sample" or "top_k".
        top_k: for `fill="top_k"`.
        replacement: what stands at masked places; default always the mask token.
        classification: the loss on the refilled text, any objective that classifies; default cross-entropy (L_FT).
        fill_mode: "train" (default) fills from the same forward pass that L_MLM is computed on, dropout and all;
            "eval" from a pass of its own without dropout.
        mlm_reduction: what L_MLM is: "tokens" (default), the mean over all masked tokens of the batch; "examples", the
            mean over examples of each one's mean.
        classifier_reads: "refilled" (default); "original" leaves the refilling out, a control: the masked LM is then an
            auxiliary task beside fine-tuning on the texts as they are.
    """

    name = "mask_tuning"
    two_losses = True

    def __init__(
        self,
        alpha: float = 0.6,
        masking: MaskingPolicy | None = None,
        fill: Fill = "argmax",
        top_k: int = 10,
        replacement: Replacement = "mask",
        classification: Objective | None = None,
        fill_mode: FillMode = "train",
        mlm_reduction: Reduction = "tokens",
        classifier_reads: ClassifierReads = "refilled",
    ):
        super().__init__()
        SHARE.check("alpha", alpha)
        for name, value, choices in (("replacement", replacement, Replacement), ("fill_mode", fill_mode, FillMode),
                                     ("mlm_reduction", mlm_reduction, Reduction),
                                     ("classifier_reads", classifier_reads, ClassifierReads)):  # fmt: skip
            check_choice(name, value, choices)
        check_fill(fill, top_k)
        self.classification = FineTuning() if classification is None else classification
        if not getattr(self.classification, "classifies", False) or self.classification.two_losses:
            given = getattr(classification, "name", classification)
            raise UserError(
                f"classification is {given!r}; expected an objective that classifies and has one loss, such "
                "as FineTuning()."
            )
        if classifier_reads == "original" and self.classification.compares_texts:
            raise UserError(
                f"classification is {self.classification.name!r}, which compares a text with its refilled copy, but "
                "classifier_reads is 'original'; leave one of them out."
            )
        check_policy(masking)
        self.alpha, self.masking = float(alpha), masking or ExactMasking()
        self.fill, self.top_k, self.replacement = fill, top_k, replacement
        self.fill_mode, self.mlm_reduction, self.classifier_reads = fill_mode, mlm_reduction, classifier_reads
        self.learning_rate = self.classification.learning_rate

    @property
    def columns(self) -> Mapping[str, int | float]:
        return {**self.masking.columns, **self.classification.columns}

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        self.classification.build(plm, examples)

    def sizes(self, batch: dict) -> dict[str, Tensor | int]:
        of_tokens = {"mlm_loss": batch.get("mlm_places", batch["mask"]).sum()} if self.mlm_reduction == "tokens" else {}
        return of_tokens | self.classification.sizes(batch)

    def check(self, plm: SharedPLM) -> None:
        if not self.classification.compares_texts:  # those refuse to be trained alone, and check nothing else
            self.classification.check(plm)

    def prepare(self, plm: SharedPLM, batch: dict, generator: torch.Generator | None = None) -> dict:
        return self.classification.prepare(plm, draw_mask(plm, batch, self.masking, generator), generator)

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        batch = self.prepare(plm, batch)
        # a loss of weight 0 is computed without a graph: its backward pass would only yield zeros
        with gradients_if(self.alpha > 0):
            filled = self.masked_lm(plm, batch)
        with gradients_if(self.alpha < 1):
            classified = self.classify(plm, batch | {"perturbed_ids": filled.perturbed_ids})
        # equation 1 (`integrated_loss`); a classification loss may have several terms
        weights = {"mlm_loss": self.alpha}
        weights |= {name: (1 - self.alpha) * weight for name, weight in classified.weights.items()}
        parts = filled.parts | classified.parts
        return ObjectiveOutput(parts, weights, classified.logits, filled.perturbed_ids, filled.mlm_logits)

    def masked_lm(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        """Mask and fill: L_MLM, and the refilled text as `perturbed_ids`."""
        input_ids, mask = batch["input_ids"], batch["mask"]  # (batch, seq)
        masked_ids = replace_masked(input_ids, mask, plm.tokenizer, self.replacement)
        loss, filled = mlm_loss_and_filling(plm, batch, masked_ids, self.fill, self.top_k, self._weights(batch))
        perturbed_ids = filled.perturbed_ids
        if self.fill_mode == "eval":
            perturbed_ids = self._fill_without_dropout(plm, batch, masked_ids)
        parts = {"mlm_loss": loss, **perturbation_counts(input_ids, perturbed_ids, mask)}
        return ObjectiveOutput(parts, {"mlm_loss": 1.0}, None, perturbed_ids, filled.mlm_logits)

    def _fill_without_dropout(self, plm: SharedPLM, batch: dict, masked_ids: Tensor) -> Tensor:
        with evaluating(plm.mlm), gradients_if(False):
            return plm.fill_masks(batch, batch["mask"], self.fill, self.top_k, masked_ids).perturbed_ids  # (batch, seq)

    def _weights(self, batch: dict) -> Tensor | None:
        """The weight of each place in L_MLM, `(n_mlm_places,)`; None: all alike, adding up to 1."""
        places = batch.get("mlm_places", batch["mask"])  # (batch, seq)
        if self.mlm_reduction == "tokens":
            return None
        return (1.0 / (places.sum(dim=1, keepdim=True) * len(places))).expand(places.shape)[places]

    def classify(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        """The classification objective's loss on what the classifier reads: the refilled text, `perturbed_ids`."""
        if self.classifier_reads == "original":
            return self.classification(plm, batch)
        refilled = {"input_ids": batch["perturbed_ids"], "original_ids": batch["input_ids"]}
        return self.classification(plm, batch | refilled)

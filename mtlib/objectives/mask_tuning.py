"""Mask-tuning: mask, fill, classify the filled text, and train one trunk on both losses (equation 1)."""

from collections.abc import Collection, Mapping

import torch
from datasets import Dataset
from torch import Tensor

from mtlib.contexts import evaluating, gradients_if
from mtlib.errors import UserError
from mtlib.masking import ExactMasking, MaskingPolicy, check_policy, draw_mask, perturbation_counts, replace_masked
from mtlib.objectives.fine_tuning import FineTuning
from mtlib.objectives.masked_lm import mlm_loss_and_filling
from mtlib.objectives.objective import Objective, ObjectiveOutput
from mtlib.plm import SharedPLM
from mtlib.plm_checks import check_fill, check_top_k
from mtlib.settings import SHARE, ClassifierReads, Fill, FillMode, Reduction, Replacement, check_choice


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
            mean over examples of each one's mean; "sum" over all masked tokens.
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

    @property
    def token_draws(self) -> Collection[str]:
        return {*super().token_draws, *self.classification.token_draws}

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        self.masking.begin()
        self.classification.build(plm, examples)

    def totals(self, batch: dict) -> dict[str, Tensor | int]:
        return super().totals(batch) | self.classification.totals(batch)

    def check(self, plm: SharedPLM) -> None:
        check_top_k(self.fill, self.top_k, plm.tokenizer)
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
        loss = integrated_loss(filled.loss, classified.loss, self.alpha)
        return ObjectiveOutput(
            loss, filled.parts | classified.parts, classified.logits, filled.perturbed_ids, filled.mlm_logits
        )

    def masked_lm(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        """Mask and fill: L_MLM, and the refilled text as `perturbed_ids`."""
        input_ids, mask = batch["input_ids"], batch["mask"]  # (batch, seq)
        masked_ids = replace_masked(input_ids, mask, plm.tokenizer, self.replacement)
        loss, filled = mlm_loss_and_filling(plm, batch, masked_ids, self.fill, self.top_k, self._weights(batch))
        perturbed_ids = filled.perturbed_ids
        if self.fill_mode == "eval":
            perturbed_ids = self._fill_without_dropout(plm, batch, masked_ids)
        parts = {"mlm_loss": loss, **perturbation_counts(input_ids, perturbed_ids, mask)}
        return ObjectiveOutput(loss, parts, perturbed_ids=perturbed_ids, mlm_logits=filled.mlm_logits)

    def _fill_without_dropout(self, plm: SharedPLM, batch: dict, masked_ids: Tensor) -> Tensor:
        with evaluating(plm.mlm), gradients_if(False):
            return plm.fill_masks(batch, batch["mask"], self.fill, self.top_k, masked_ids).perturbed_ids  # (batch, seq)

    def _weights(self, batch: dict) -> Tensor | None:
        """The weight of each place in L_MLM, `(n_mlm_places,)`; None: all alike, adding up to 1."""
        places = batch.get("mlm_places", batch["mask"])  # (batch, seq)
        if self.mlm_reduction == "tokens":
            return None
        if self.mlm_reduction == "sum":
            return torch.ones(int(places.sum()), device=places.device)
        n_examples = batch.get("n_examples", len(places))
        return (1.0 / (places.sum(dim=1, keepdim=True) * n_examples)).expand(places.shape)[places]

    def classify(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        """The classification objective's loss on what the classifier reads: the refilled text, `perturbed_ids`."""
        if self.classifier_reads == "original":
            return self.classification(plm, batch)
        refilled = {"input_ids": batch["perturbed_ids"], "original_ids": batch["input_ids"]}
        return self.classification(plm, batch | refilled)

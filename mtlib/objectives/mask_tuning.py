"""Mask-tuning: mask, fill, classify the filled text, and train one trunk on both losses (equation 1)."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from mtlib.errors import UserError
from mtlib.masking import ExactMasking, MaskingPolicy, check_rate
from mtlib.objectives.fine_tuning import fine_tuning_loss
from mtlib.objectives.masked_lm import Replacement, check_replacement, draw_mask, masked_lm_loss, replace_masked
from mtlib.objectives.output import ObjectiveOutput
from mtlib.plm import FILLS, Fill, SharedPLM


def mask_tuning_loss(
    mlm_logits: Tensor,
    mlm_targets: Tensor,
    logits: Tensor,
    labels: Tensor,
    alpha: float,
    n_masked: Tensor | None = None,
    n_examples: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """L = alpha * L_MLM + (1 - alpha) * L_FT, equation 1 of arXiv 2307.10457.

    Args:
        mlm_logits: masked-LM logits at the masked places, `(n_masked, vocab)`.
        mlm_targets: the original ids there, `(n_masked,)`.
        logits: class logits of the *perturbed* text, `(batch, num_labels)`.
        labels: gold labels, `(batch,)`.
        alpha: weight of L_MLM, in [0, 1].
        n_masked, n_examples: the counts the two means divide by, when the batch is a slice of a larger one.

    Returns:
        The loss (scalar, nats, float32) and its parts `mlm_loss` and `ft_loss`. With nothing masked `mlm_loss` is 0.
    """
    check_rate("alpha", alpha)
    mlm_loss = masked_lm_loss(mlm_logits, mlm_targets, n_masked)
    ft_loss = fine_tuning_loss(logits, labels, n_examples)
    return alpha * mlm_loss + (1 - alpha) * ft_loss, {"mlm_loss": mlm_loss, "ft_loss": ft_loss}


@dataclass(frozen=True)
class MaskTuning:
    """Equation 1 on a batch that is masked anew each time it is seen.

    Args:
        alpha: weight of the masked-LM loss; the paper's 0.6 (SST-2), 0.7 (MNLI), 0.8 (QQP).
        masking: policy; default 5 % of each example's tokens, at least one.
        fill: "argmax" (default), "sample" or "top_k".
        top_k: for `fill="top_k"`.
        replacement: what stands at masked places; default always the mask token.
    """

    alpha: float = 0.6
    masking: MaskingPolicy = field(default_factory=ExactMasking)
    fill: Fill = "argmax"
    top_k: int = 10
    replacement: Replacement = "mask"

    def __post_init__(self):
        check_rate("alpha", self.alpha)
        check_replacement(self.replacement)
        if self.fill not in FILLS:
            raise UserError(f"fill is {self.fill!r}; expected one of {', '.join(FILLS)}.")
        if self.top_k < 1:
            raise UserError(f"top_k is {self.top_k}; expected 1 or more.")

    def prepare(self, plm: SharedPLM, batch: dict, generator: torch.Generator | None = None) -> dict:
        return draw_mask(plm, batch, self.masking, generator)

    def __call__(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        batch = self.prepare(plm, batch)
        # a loss of weight 0 is computed without a graph: its backward pass would only yield zeros
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.alpha > 0):
            filled = self.perturb(plm, batch)
        mask = batch["mask"]  # (batch, seq)
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.alpha < 1):
            logits = plm.classify({**batch, "input_ids": filled.perturbed_ids})  # (batch, num_labels)
        loss, parts = mask_tuning_loss(
            filled.mlm_logits,
            batch["input_ids"][mask],
            logits,
            batch["labels"],
            self.alpha,
            batch.get("n_masked"),
            batch.get("n_examples"),
        )
        parts |= perturbation_counts(batch["input_ids"], filled.perturbed_ids, mask)
        return ObjectiveOutput(loss, parts, logits, filled.perturbed_ids, filled.mlm_logits)

    def phases(self, plm: SharedPLM, batch: dict):
        """The two halves of equation 1 as objectives of their own, for the alternating update.

        Yields first alpha * L_MLM, then (1 - alpha) * L_FT on the text that the first phase filled.
        """
        batch = self.prepare(plm, batch)
        first = _MaskedLMPhase(self)
        yield first, batch
        yield _ClassificationPhase(self), {**batch, "perturbed_ids": first.perturbed_ids}

    def perturb(self, plm: SharedPLM, batch: dict):
        masked_ids = replace_masked(batch["input_ids"], batch["mask"], plm.tokenizer, self.replacement)
        return plm.fill_masks(batch, batch["mask"], self.fill, self.top_k, masked_ids)


def perturbation_counts(input_ids: Tensor, perturbed_ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """`n_masked`, and `n_changed`: how many of them were filled with another token than the original."""
    return {"n_masked": mask.sum(), "n_changed": (input_ids != perturbed_ids).sum()}


class _MaskedLMPhase:
    def __init__(self, objective: MaskTuning):
        self.objective = objective
        self.perturbed_ids = None

    def __call__(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        mask = batch["mask"]
        mlm_logits, self.perturbed_ids = self.objective.perturb(plm, batch)
        mlm_loss = masked_lm_loss(mlm_logits, batch["input_ids"][mask], batch.get("n_masked"))
        parts = {"mlm_loss": mlm_loss, **perturbation_counts(batch["input_ids"], self.perturbed_ids, mask)}
        return ObjectiveOutput(self.objective.alpha * mlm_loss, parts)


class _ClassificationPhase:
    def __init__(self, objective: MaskTuning):
        self.objective = objective

    def __call__(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        logits = plm.classify({**batch, "input_ids": batch["perturbed_ids"]})
        ft_loss = fine_tuning_loss(logits, batch["labels"], batch.get("n_examples"))
        return ObjectiveOutput((1 - self.objective.alpha) * ft_loss, {"ft_loss": ft_loss}, logits)

"""Pure masked-language-model training on text, without labels."""

from collections.abc import Mapping

import torch
from datasets import Dataset
from torch import Tensor
from torch.nn.functional import cross_entropy

from mtlib.masking import ExactMasking, MaskingPolicy, check_policy, draw_mask, replace_masked
from mtlib.objectives.objective import Objective, ObjectiveOutput
from mtlib.plm import FilledMasks, SharedPLM
from mtlib.settings import Fill, Replacement, check_choice


def masked_lm_loss(
    mlm_logits: Tensor, mlm_labels: Tensor, n_mlm_places: Tensor | None = None, weights: Tensor | None = None
) -> Tensor:
    """L_MLM = -(1/N) sum over N places of log p(x_i | masked text), in nats.

    The places are the masked ones; under a policy that has the whole text predicted, all of them.

    Args:
        mlm_logits: `(n_mlm_places, vocab)`.
        mlm_labels: the original ids there, `(n_mlm_places,)`.
        n_mlm_places: N, when this batch is a slice of a larger one; default its own count.
        weights: of the places, `(n_mlm_places,)`, in place of 1/N for all of them.

    Returns:
        Scalar, in float32; 0 with a zero gradient where nothing is masked, never NaN.
    """
    if weights is not None:
        return (cross_entropy(mlm_logits.float(), mlm_labels, reduction="none") * weights).sum()
    total = cross_entropy(mlm_logits.float(), mlm_labels, reduction="sum")
    n_mlm_places = torch.as_tensor(len(mlm_labels) if n_mlm_places is None else n_mlm_places, device=total.device)
    return total / n_mlm_places.clamp(min=1)


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
    loss = masked_lm_loss(filled.mlm_logits, input_ids[places], batch.get("n_mlm_places"), weights)
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

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        self.masking.begin()

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
        return ObjectiveOutput(loss, parts, perturbed_ids=filled.perturbed_ids, mlm_logits=filled.mlm_logits)

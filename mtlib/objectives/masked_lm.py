"""Pure masked-language-model training on text, without labels."""

from collections.abc import Mapping
from typing import get_args

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mtlib.errors import UserError
from mtlib.masking import ExactMasking, MaskingPolicy, maskable_positions
from mtlib.objectives.objective import Objective, ObjectiveOutput
from mtlib.plm import FilledMasks, SharedPLM
from mtlib.settings import Fill, Replacement

REPLACEMENTS = get_args(Replacement)


def masked_lm_loss(
    mlm_logits: Tensor, mlm_targets: Tensor, n_masked: Tensor | None = None, weights: Tensor | None = None
) -> Tensor:
    """L_MLM = -(1/N) sum over masked tokens of log p(x_i | masked text), in nats.

    Args:
        mlm_logits: `(n_masked, vocab)`, masked places only.
        mlm_targets: the original ids there, `(n_masked,)`.
        n_masked: N, when this batch is a slice of a larger one; default its own count.
        weights: of the masked tokens, `(n_masked,)`, in place of 1/N for all of them.

    Returns:
        Scalar, in float32; 0 with a zero gradient where nothing is masked, never NaN.
    """
    if weights is not None:
        return (cross_entropy(mlm_logits.float(), mlm_targets, reduction="none") * weights).sum()
    total = cross_entropy(mlm_logits.float(), mlm_targets, reduction="sum")
    n_masked = torch.as_tensor(len(mlm_targets) if n_masked is None else n_masked, device=total.device)
    return total / n_masked.clamp(min=1)


def replace_masked(input_ids: Tensor, mask: Tensor, tokenizer, replacement: Replacement = "mask") -> Tensor:
    """What stands at the masked places for the model to read, `(batch, seq)`.

    `"mask"`: always the mask token (the paper). `"80_10_10"`: BERT's rule, 80 % mask token, 10 % a random token,
    10 % the original, drawn from torch's global generator.
    """
    masked_ids = input_ids.masked_fill(mask, tokenizer.mask_token_id)
    if replacement == "mask":
        return masked_ids
    draw = torch.rand(input_ids.shape, device=input_ids.device)
    random_ids = torch.randint(len(tokenizer), input_ids.shape, device=input_ids.device)
    masked_ids = torch.where(mask & (draw >= 0.8), random_ids, masked_ids)
    return torch.where(mask & (draw >= 0.9), input_ids, masked_ids)


def check_replacement(value: str) -> None:
    if value not in REPLACEMENTS:
        raise UserError(f"replacement is {value!r}; expected one of {', '.join(REPLACEMENTS)}.")


def draw_mask(plm: SharedPLM, batch: dict, masking: MaskingPolicy, generator: torch.Generator | None) -> dict:
    """The batch with a fresh `mask`, unless it brings its own, and with `targets` where the whole text is predicted."""
    if "mask" not in batch:
        maskable = maskable_positions(batch, plm.tokenizer)  # (batch, seq)
        mask = masking(batch, maskable, generator, plm)
        if not (isinstance(mask, Tensor) and mask.dtype is torch.bool and mask.shape == maskable.shape):
            given = f"{mask.dtype} of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else repr(mask)
            raise UserError(
                f"{type(masking).__name__} returned {given}; expected a tensor of torch.bool of shape "
                f"{tuple(maskable.shape)}, True where a token is to be masked."
            )
        batch = {**batch, "mask": mask & maskable}  # no policy masks structural tokens or padding
    if masking.targets == "all" and "targets" not in batch:
        attended = batch.get("attention_mask", torch.ones_like(batch["mask"]))
        batch = {**batch, "targets": attended.bool()}  # (batch, seq)
    return batch


def predict_targets(
    plm: SharedPLM,
    batch: dict,
    masked_ids: Tensor,
    fill: Fill = "argmax",
    top_k: int = 10,
    weights: Tensor | None = None,
) -> tuple[Tensor, FilledMasks]:
    """The masked-LM loss, and what the masks are filled with, from one pass over `masked_ids` `(batch, seq)`."""
    input_ids, mask = batch["input_ids"], batch["mask"]  # (batch, seq)
    targets = batch.get("targets", mask)  # (batch, seq)
    filled = plm.fill_masks(batch, targets, fill, top_k, masked_ids)
    loss = masked_lm_loss(filled.mlm_logits, input_ids[targets], batch.get("n_masked"), weights)
    if targets is mask:
        return loss, filled
    perturbed_ids = torch.where(mask, filled.perturbed_ids, input_ids)
    return loss, FilledMasks(filled.mlm_logits[mask[targets]], perturbed_ids)


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
        check_replacement(replacement)
        self.masking = masking or ExactMasking(0.15)
        self.replacement = replacement

    @property
    def columns(self) -> Mapping[str, int | float]:
        return self.masking.columns

    def prepare(self, plm: SharedPLM, batch: dict, generator: torch.Generator | None = None) -> dict:
        return draw_mask(plm, batch, self.masking, generator)

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        batch = self.prepare(plm, batch)
        mask = batch["mask"]  # (batch, seq)
        masked_ids = replace_masked(batch["input_ids"], mask, plm.tokenizer, self.replacement)
        loss, filled = predict_targets(plm, batch, masked_ids)
        parts = {
            "mlm_loss": loss,
            "n_masked": mask.sum(),
            "n_correct": (filled.perturbed_ids[mask] == batch["input_ids"][mask]).sum(),
        }
        return ObjectiveOutput(loss, parts, perturbed_ids=filled.perturbed_ids, mlm_logits=filled.mlm_logits)

"""A batch once a policy has chosen its tokens: the mask, the masked text, and how much of it came back."""

import torch
from torch import Tensor

from mtlib.errors import UserError
from mtlib.masking.places import maskable_positions
from mtlib.masking.policy import MaskingPolicy
from mtlib.plm import SharedPLM
from mtlib.settings import Replacement


def draw_mask(plm: SharedPLM, batch: dict, masking: MaskingPolicy, generator: torch.Generator | None) -> dict:
    """The batch with a fresh `mask`, unless it brings its own, and `mlm_places` where all are predicted."""
    if "mask" not in batch:
        maskable = maskable_positions(batch, plm.tokenizer)  # (batch, seq)
        mask = masking(batch, maskable, generator, plm)
        if not (isinstance(mask, Tensor) and mask.dtype is torch.bool and mask.shape == maskable.shape):
            returned = f"{mask.dtype} of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else repr(mask)
            raise UserError(
                f"{type(masking).__name__} returned {returned}; expected a tensor of torch.bool of shape "
                f"{tuple(maskable.shape)}, True where a token is to be masked."
            )
        batch = {**batch, "mask": mask & maskable}  # no policy masks structural tokens or padding
    if masking.predict_all and "mlm_places" not in batch:
        attended = batch.get("attention_mask", torch.ones_like(batch["mask"]))
        batch = {**batch, "mlm_places": attended.bool()}  # (batch, seq)
    return batch


def replace_masked(input_ids: Tensor, mask: Tensor, tokenizer, replacement: Replacement = "mask") -> Tensor:
    """What stands at the masked places for the model to read, `(batch, seq)`.

    `"mask"`: always the mask token (the paper). `"80_10_10"`: BERT's rule, 80 % mask token, 10 % a random token
    (none of the structural ones), 10 % the original, drawn from torch's global generator.
    """
    masked_ids = input_ids.masked_fill(mask, tokenizer.mask_token_id)
    if replacement == "mask":
        return masked_ids
    draw = torch.rand(input_ids.shape, device=input_ids.device)
    random_ids = torch.randint(len(tokenizer), input_ids.shape, device=input_ids.device)
    structural = torch.tensor(tokenizer.all_special_ids, device=input_ids.device)  # would cut or pad the text
    random_ids = torch.where(torch.isin(random_ids, structural), tokenizer.mask_token_id, random_ids)
    masked_ids = torch.where(mask & (draw >= 0.8), random_ids, masked_ids)
    return torch.where(mask & (draw >= 0.9), input_ids, masked_ids)


def perturbation_counts(input_ids: Tensor, perturbed_ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """`n_masked`, and `n_changed`: how many of them were filled with another token than the original."""
    return {"n_masked": mask.sum(), "n_changed": (input_ids != perturbed_ids).sum()}

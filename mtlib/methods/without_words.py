"""The plain alternatives to refilling a word: leave a mask in its place, or delete it; once, before fine-tuning."""

from datasets import Dataset
from torch import Tensor

from mtlib.masking import replace_masked
from mtlib.method import LearningRates, Method, Prepared, Stage
from mtlib.methods.table3 import MaskingSettings, Refill, Stages
from mtlib.objectives import FineTuning
from mtlib.plm import SharedPLM


class LeaveMasks(Refill):
    """The training texts with masks where the policy masks, and nothing filled in."""

    def _fill(self, plm: SharedPLM, batch: dict) -> Tensor:
        return replace_masked(batch["input_ids"], batch["mask"], plm.tokenizer, self.replacement)


class DeleteMasked(LeaveMasks):
    """The training texts without the tokens that the policy masks."""

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0, batch_size: int = 64) -> Prepared:
        masked, counts = super().__call__(plm, examples, seed, batch_size)

        def delete(row: dict) -> dict:
            kept = [token != plm.tokenizer.mask_token_id for token in row["input_ids"]]
            of_tokens = {name: values for name, values in row.items()
                         if isinstance(values, list) and len(values) == len(kept)}  # fmt: skip
            shorter = {name: [value for value, keep in zip(values, kept, strict=True) if keep]
                       for name, values in of_tokens.items()}  # fmt: skip
            return shorter | ({"length": sum(kept)} if "length" in row else {})

        return Prepared(masked.map(delete, keep_in_memory=True), counts)


class DeletingSettings(MaskingSettings):
    def unread(self) -> dict[str, str]:
        return super().unread() | {"replacement": "nothing stands where a word was deleted"}


def masks_left(settings: MaskingSettings, rates: LearningRates, tokenizer) -> Stages:
    masking = settings.policy(tokenizer)
    leave = LeaveMasks(masking, replacement=settings.replacement)
    return (Stage(FineTuning(), rates, (*masking.preparers(), leave)),)


def deleted(settings: DeletingSettings, rates: LearningRates, tokenizer) -> Stages:
    masking = settings.policy(tokenizer)
    return (Stage(FineTuning(), rates, (*masking.preparers(), DeleteMasked(masking))),)


MASKS_LEFT = Method(
    "masks_left", "masks left in", "texts masked once and not filled, L_FT",
    masks_left, MaskingSettings, colour="#7f7f7f", marker="h",
)  # fmt: skip
DELETED = Method(
    "deleted", "words deleted", "texts without the masked words, L_FT",
    deleted, DeletingSettings, colour="#bcbd22", marker="H",
)  # fmt: skip

"""Policies around another policy: in one text of a pair alone, or with masks that are drawn once."""

from dataclasses import dataclass

import torch
from datasets import Dataset
from torch import Tensor
from torch.utils.data import DataLoader

from mtlib.encoding import Collator
from mtlib.errors import UserError
from mtlib.masking import MaskingPolicy, check_policy, draw_mask
from mtlib.plm import SharedPLM
from mtlib.preparer import Prepared, Preparer, with_column
from mtlib.settings import check_choice


class OneSide(MaskingPolicy):
    """Another policy, on the first or the second text of a pair alone; its rate is then a share of that text.

    Args:
        policy: which of the tokens there.
        side: "first" or "second".
        tokenizer: its separator ends the first text.
    """

    def __init__(self, policy: MaskingPolicy, side: str, tokenizer):
        check_policy(policy, required=True)
        check_choice("side", side, ("first", "second"))
        if tokenizer.sep_token_id is None:
            raise UserError(f"{type(tokenizer).__name__} has no separator token, so the texts of a pair look like one.")
        self.policy, self.side, self.separator = policy, side, tokenizer.sep_token_id
        self.columns, self.predict_all = policy.columns, policy.predict_all

    def __repr__(self) -> str:
        return f"OneSide({self.policy!r}, {self.side!r})"

    def preparers(self) -> tuple[Preparer, ...]:
        return self.policy.preparers()

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        ends = batch["input_ids"] == self.separator  # (batch, seq)
        second = (ends.cumsum(dim=1) - ends.long()) > 0  # (batch, seq): after the first separator
        if self.side == "second" and (ends.sum(dim=1) < 2).all():
            raise UserError("side is 'second', but the batch holds no pairs; leave it out for single texts.")
        return self.policy(batch, maskable & (second if self.side == "second" else ~second), generator, plm)


class FixedMasking(MaskingPolicy):
    """Another policy's masks, drawn once before training: the examples bring them along as the column `mask`."""

    columns = {"mask": 0}  # noqa: RUF012  (never changed)

    def __init__(self, policy: MaskingPolicy):
        check_policy(policy, required=True)
        self.policy, self.predict_all = policy, policy.predict_all

    def __repr__(self) -> str:
        return f"FixedMasking({self.policy!r})"

    def preparers(self) -> tuple[Preparer, ...]:
        return (*self.policy.preparers(), DrawMasks(self.policy))

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        return self.column(batch, "mask").bool()  # (batch, seq)


@dataclass(frozen=True)
class DrawMasks(Preparer):
    """Adds `mask`, the places that a policy masks, drawn once: a truth value for each token."""

    masking: MaskingPolicy

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        generator = torch.Generator().manual_seed(seed)
        masks: list[list[bool]] = []
        collate = Collator(plm.tokenizer, self.masking.columns)
        # a generator of its own: the loader would draw from the global one
        for batch in DataLoader(examples, 64, collate_fn=collate, generator=torch.Generator()):
            batch = {name: tensor.to(plm.device) for name, tensor in batch.items()}
            mask = draw_mask(plm, batch, self.masking, generator)["mask"]  # (batch, seq)
            attended = batch["attention_mask"].bool()
            masks += [row[kept].tolist() for row, kept in zip(mask.cpu(), attended.cpu(), strict=True)]
        return Prepared(with_column(examples, "mask", masks), {"masked": sum(map(sum, masks))})

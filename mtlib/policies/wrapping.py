"""A policy around another one, whose masks are drawn once; and what is computed once for each token of a set."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from datasets import Dataset
from torch import Tensor

from mtlib.draws import Draws
from mtlib.encoding import Collator, batches_by_length
from mtlib.masking import MaskingPolicy, draw_mask
from mtlib.method import Prepared, Preparer, with_column
from mtlib.plm import SharedPLM


class FixedMasking(MaskingPolicy):
    """Another policy's masks, drawn once before training: the examples bring them along as the column `mask`."""

    columns = {"mask": 0}  # noqa: RUF012  (never changed)

    def __init__(self, policy: MaskingPolicy):
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
        masks: list[list[bool]] = [[]] * len(examples)
        collate = Collator(plm.tokenizer, self.masking.columns)
        for rows, batch in batches_by_length(examples, collate, plm.device):
            draws = Draws.of(seed, -1, torch.tensor(rows, device=plm.device))
            mask = draw_mask(batch, self.masking, plm.tokenizer, draws, plm)["mask"].cpu()  # (batch, seq)
            for row, drawn, kept in zip(rows, mask, batch["attention_mask"].bool().cpu(), strict=True):
                masks[row] = drawn[kept].tolist()
        return Prepared(with_column(examples, "mask", masks), {"masked": sum(map(sum, masks))})


@torch.no_grad()
def each_token(plm: SharedPLM, examples: Dataset, answer: Callable[[dict], Tensor]) -> list[Tensor]:
    """What `answer(batch)`, `(batch, seq, ...)`, says of the tokens of each example: `(tokens, ...)`, on the CPU."""
    rows: list[Tensor] = [torch.empty(0)] * len(examples)
    for numbers, batch in batches_by_length(examples, Collator(plm.tokenizer), plm.device):
        attended = batch["attention_mask"].bool().cpu()  # (batch, seq)
        for number, row, own in zip(numbers, answer(batch).cpu(), attended, strict=True):
            rows[number] = row[own]
    return rows

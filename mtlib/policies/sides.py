"""Masks in one text of a pair alone."""

from torch import Tensor

from mtlib.errors import UserError
from mtlib.masking import MaskingPolicy, check_policy
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

    def preparers(self) -> tuple:
        return self.policy.preparers()

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        ends = batch["input_ids"] == self.separator  # (batch, seq)
        second = (ends.cumsum(dim=1) - ends.long()) > 0  # (batch, seq): after the first separator
        if self.side == "second" and (ends.sum(dim=1) < 2).all():
            raise UserError("side is 'second', but the batch holds no pairs; leave it out for single texts.")
        return self.policy(batch, maskable & (second if self.side == "second" else ~second), generator, plm)

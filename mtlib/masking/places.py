"""Where an ordinary token stands, and where a word begins."""

import numbers

import torch
from torch import Tensor

from mtlib.errors import UserError


def maskable_positions(batch, tokenizer) -> Tensor:
    """True where an ordinary token stands, bool `(batch, seq)`: no special token (nor [UNK]), no padding.

    Args:
        batch: mapping with `input_ids` `(batch, seq)` and, where there is padding, `attention_mask`.
        tokenizer: its `all_special_ids` are left out, as Hugging Face's own collator does.
    """
    input_ids = batch["input_ids"]
    special = torch.tensor(sorted(set(tokenizer.all_special_ids)), device=input_ids.device)
    maskable = ~torch.isin(input_ids, special)  # (batch, seq)
    if "attention_mask" in batch:
        maskable &= batch["attention_mask"].bool()
    return maskable


def continues_word(tokenizer) -> Tensor:
    """True for the vocabulary entries that go on with a word rather than begin one, bool `(vocab,)`.

    WordPiece marks continuations (`##ing`), byte-level BPE and SentencePiece mark beginnings (`Ġ`, `▁`).

    Raises:
        UserError: the vocabulary marks neither.
    """
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    # the commonest mark decides: byte-level vocabularies hold a few ordinary tokens such as "##" too
    count, mark = max((sum(piece.startswith(mark) for piece in pieces), mark) for mark in ("##", "Ġ", "▁"))
    if mark == "##" and count:
        flags = [piece.startswith("##") for piece in pieces]
    else:
        if not count:
            raise UserError(
                f"The tokenizer {type(tokenizer).__name__} marks neither word beginnings (Ġ, ▁) nor continuations "
                "(##), so whole words cannot be told apart; use ExactMasking."
            )
        flags = [not piece.startswith(mark) for piece in pieces]
    return torch.tensor(flags)


def check_rate(name: str, value: float) -> None:
    """Raise unless `value` is a number in [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0.0 <= value <= 1.0:
        raise UserError(f"{name} is {value!r}; expected a number from 0 to 1 (5 % is 0.05).")

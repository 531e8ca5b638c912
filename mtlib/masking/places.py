"""Where an ordinary token stands, and where a word begins."""

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

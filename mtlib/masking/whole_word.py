"""Masks of whole words."""

import torch
from torch import Tensor

from mtlib.masking.places import continues_word
from mtlib.masking.policy import CountedMasking


class WholeWordMasking(CountedMasking):
    """Whole words: `clamp(round(rate * w), 1, w)` of an example's `w` words, each with all its pieces; none at rate 0.

    Args:
        rate: share of words.
        tokenizer: tells which vocabulary entries continue a word. WordPiece marks continuations (`##ing`), byte-level
            BPE and SentencePiece mark beginnings (`Ġ`, `▁`); after a special token a piece always begins a word.
    """

    def __init__(self, rate: float, tokenizer):
        super().__init__(rate)
        self.continues_word = continues_word(tokenizer)  # (vocab,)

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        input_ids = batch["input_ids"]
        continues = self.continues_word.to(input_ids.device)[input_ids]  # (batch, seq)
        follows = torch.nn.functional.pad(maskable[:, :-1], (1, 0))  # (batch, seq): the place before is ordinary text
        begins = maskable & ~(continues & follows)  # (batch, seq)
        chosen = self.choose(begins, self.scores(batch, begins, plm), generator)  # (batch, seq)
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        word_begin = torch.where(begins, places, 0).cummax(dim=1).values  # (batch, seq): where its word begins
        return maskable & chosen.gather(1, word_begin)  # (batch, seq)

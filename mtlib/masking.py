"""Which tokens are masked: one class per policy.

A policy is called with `(input_ids, maskable, generator=None)` and returns `mask`, bool `(batch, seq)`, True where
a token is to be masked. Every policy draws one random number per candidate, in reading order, so the masks of
an example do not depend on how far its batch is padded, and a given generator gives the same masks again. They
run on the device of their inputs without a Python loop over examples.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from mtlib.errors import UserError


class MaskingPolicy(Protocol):
    """Anything that turns token ids and the places that may be masked into a mask."""

    def __call__(self, input_ids: Tensor, maskable: Tensor, generator: torch.Generator | None = None) -> Tensor: ...


@dataclass(frozen=True)
class ExactMasking:
    """The same share of every example: `clamp(round(rate * n), at_least, n)` of its `n` maskable tokens.

    The default of the project: at 5 % a Bernoulli draw leaves most short examples untouched (the paper's own
    study gives each example one outcome, so each must have had a mask). Halves are rounded to even, as Python does.
    """

    rate: float = 0.05
    at_least: int = 1

    def __post_init__(self):
        check_rate("rate", self.rate)
        if not (isinstance(self.at_least, int) and self.at_least >= 0):
            raise UserError(f"at_least is {self.at_least!r}; expected a whole number, 0 or more.")

    def __call__(self, input_ids: Tensor, maskable: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return _choose(maskable, self.rate, self.at_least, generator)  # (batch, seq)


@dataclass(frozen=True)
class BernoulliMasking:
    """Each maskable token by itself with probability `rate`, as Hugging Face's masked-LM collator does."""

    rate: float = 0.05

    def __post_init__(self):
        check_rate("rate", self.rate)

    def __call__(self, input_ids: Tensor, maskable: Tensor, generator: torch.Generator | None = None) -> Tensor:
        return _scores(maskable, generator) < self.rate  # (batch, seq)


class WholeWordMasking:
    """Whole words: `clamp(round(rate * w), at_least, w)` of an example's `w` words, each with all its pieces.

    Args:
        rate: share of words.
        tokenizer: tells which vocabulary entries continue a word. WordPiece marks continuations (`##ing`), byte-level
            BPE and SentencePiece mark beginnings (`Ġ`, `▁`); after a special token a piece always begins a word.
        at_least: words masked even where `rate` rounds to none.
    """

    def __init__(self, rate: float, tokenizer, at_least: int = 1):
        self.exact = ExactMasking(rate, at_least)
        self.continues_word = continues_word(tokenizer)  # (vocab,)

    def __call__(self, input_ids: Tensor, maskable: Tensor, generator: torch.Generator | None = None) -> Tensor:
        continues = self.continues_word.to(input_ids.device)[input_ids]  # (batch, seq)
        follows = torch.nn.functional.pad(maskable[:, :-1], (1, 0))  # (batch, seq): the place before is ordinary text
        begins = maskable & ~(continues & follows)  # (batch, seq)
        chosen = self.exact(input_ids, begins, generator)  # (batch, seq)
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        own_begin = torch.where(begins, places, 0).cummax(dim=1).values  # (batch, seq)
        return maskable & chosen.gather(1, own_begin)  # (batch, seq)


def masking_policy(name: str, rate: float, tokenizer) -> MaskingPolicy:
    """ "exact", "bernoulli" or "whole_word" at `rate`; the two that count mask at least one, unless the rate is 0."""
    at_least = 1 if rate > 0 else 0
    if name == "bernoulli":
        return BernoulliMasking(rate)
    if name == "whole_word":
        return WholeWordMasking(rate, tokenizer, at_least)
    return ExactMasking(rate, at_least)


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
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
        raise UserError(f"{name} is {value!r}; expected a number from 0 to 1 (5 % is 0.05).")


def _choose(candidates: Tensor, rate: float, at_least: int, generator) -> Tensor:
    n = candidates.sum(dim=1, keepdim=True)  # (batch, 1)
    # float64, so that the count is the one Python's round(rate * n) gives
    wanted = torch.round(rate * n.double()).long().clamp(min=at_least)  # (batch, 1)
    rank = _scores(candidates, generator).argsort(dim=1).argsort(dim=1)  # (batch, seq), non-candidates come last
    return candidates & (rank < wanted)


def _scores(candidates: Tensor, generator) -> Tensor:
    """Uniform numbers in [0, 1) at the candidates, 2 elsewhere: float `(batch, seq)`."""
    scores = torch.full(candidates.shape, 2.0, device=candidates.device)
    drawn = torch.rand(int(candidates.sum()), generator=generator, device=_draw_device(candidates, generator))
    scores[candidates] = drawn.to(candidates.device)
    return scores


def _draw_device(candidates: Tensor, generator) -> torch.device:
    return candidates.device if generator is None else generator.device

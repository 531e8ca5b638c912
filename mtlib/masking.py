"""Which tokens are masked.

This file has the contract of all masking policies, and the policies that need nothing but the text:
at random, whole words, words that a person names. Policies that rank, point, learn or know the
testbed are in `mtlib.policies`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedTokenizerBase

from mtlib.errors import UserError
from mtlib.plm import Batch, SharedPLM, mlm_positions_of
from mtlib.preparing import Transform
from mtlib.rng import RNG, KeyedRNG
from mtlib.settings import MASK_RATE, Share, check
from mtlib.spans import WordSpans, word_marks
from mtlib.tokens import special_tokens

PLM: TypeAlias = SharedPLM | None  # the one in training, for a policy that asks it


class MaskingPolicy(ABC):
    """Decides which tokens of a batch are masked.

    The masks of an example depend only on (seed, epoch, example) (`mtlib.rng`), not on its batch
    or on how far that is padded. Policies run on the device of their inputs, as a rule without a
    Python loop over examples. What is computed once for a training set (spans, tags, counts) is a
    column of the dataset, which the policy's transforms add.
    """

    # columns that the policy reads, each with the value that pads it
    columns: Mapping[str, int | float] = MappingProxyType({})
    # the masked LM is trained to predict the whole text, not only the masked tokens
    predict_all = False
    # it asks the classifier in training: masks are drawn in the step, not by the collator
    asks_classifier = False

    def transforms(self) -> tuple[Transform, ...]:
        """What has to be done to a training set before this policy can read it."""
        return ()

    @abstractmethod
    def __call__(self, batch: Batch, maskable: Tensor, rng: RNG = None, plm: PLM = None) -> Tensor:
        """True where a token is to be masked, bool `(batch, seq)`.

        Args:
            batch: `input_ids` `(batch, seq)`, and whatever else the objective's batch holds.
            maskable: the positions that may be masked, bool `(batch, seq)`.
            rng: source of all random numbers: `KeyedRNG` or a torch generator; None takes
                torch's global one.
            plm: the model in training, for a policy that asks it.
        """


@dataclass(frozen=True)
class CountedMasking(MaskingPolicy):
    """Masks the same share of every example: `clamp(round(rate * n), 1, n)` of `n` maskable tokens.

    At rate 0 nothing is masked. The tokens with the highest `scores` are masked, ties broken at
    random (`order`). Halves are rounded to even, as in Python.

    Args:
        rate: share of the maskable tokens, in [0, 1].
    """

    rate: float = MASK_RATE

    def __post_init__(self) -> None:
        check("rate", self.rate, Share)

    def scores(self, batch: Batch, maskable: Tensor, plm: PLM) -> Tensor | None:
        """How strongly each token should be masked, float `(batch, seq)`; None: all alike."""
        return None

    def __call__(self, batch: Batch, maskable: Tensor, rng: RNG = None, plm: PLM = None) -> Tensor:
        scores = self.scores(batch, maskable, plm)
        return self.choose(maskable, scores, rng)  # (batch, seq)

    def choose(
        self,
        candidates: Tensor,
        scores: Tensor | None,
        rng: RNG,
        counted: Tensor | None = None,
    ) -> Tensor:
        """The candidates that are masked, by score or drawn, bool `(batch, seq)`.

        Args:
            candidates: bool `(batch, seq)`.
            scores: float `(batch, seq)`; None: all candidates alike.
            rng: source of random numbers.
            counted: the tokens of which `rate` is a share, where those are not the candidates
                themselves, bool `(batch, seq)`.
        """
        counted = candidates if counted is None else counted
        n = counted.sum(dim=1, keepdim=True)  # (batch, 1)
        # float64, so that the count equals Python's round(rate * n)
        wanted = torch.round(self.rate * n.double()).long()  # (batch, 1)
        at_least = 1 if self.rate > 0 else 0
        wanted = wanted.clamp(min=at_least)
        numbers = uniform(candidates, rng)  # (batch, seq), 2 where there is no candidate
        if scores is None:
            order = numbers.argsort(dim=1, stable=True)  # (batch, seq); padding changes no tie
        else:
            order = self.order(numbers, scores.to(numbers.dtype), candidates)
        rank = order.argsort(dim=1)  # (batch, seq): the place of each token in the order
        return candidates & (rank < wanted)

    def order(self, numbers: Tensor, scores: Tensor, candidates: Tensor) -> Tensor:
        """The positions in the order in which they are taken, candidates first, `(batch, seq)`.

        Args:
            numbers: uniform random numbers, `(batch, seq)`, larger where there is no candidate.
            scores: `(batch, seq)`.
            candidates: bool `(batch, seq)`.
        """
        shuffled = numbers.argsort(dim=1)  # (batch, seq): candidates in random order, then the rest
        shuffled_scores = scores.masked_fill(~candidates, -torch.inf).gather(1, shuffled)
        by_score = shuffled_scores.argsort(dim=1, descending=True, stable=True)
        return shuffled.gather(1, by_score)  # the highest score first


class ExactMasking(CountedMasking):
    """Masks the same share of every example, with all of its tokens equally likely.

    This is the default of the project. At 5 %, a Bernoulli draw would leave most short examples
    without a mask. (The paper's own study gives one outcome per example, so each had a mask.)
    """


class OriginalMasking(ExactMasking):
    """As `ExactMasking`, but the masked LM is trained to predict the whole text.

    This is the paper's row +Orig, BART's own objective. An encoder predicts the token at every
    position, masked or not; an encoder-decoder writes the full text.
    """

    predict_all = True


@dataclass(frozen=True)
class BernoulliMasking(MaskingPolicy):
    """Masks each token independently with probability `rate`, as Hugging Face's collator does."""

    rate: float = MASK_RATE

    def __post_init__(self) -> None:
        check("rate", self.rate, Share)

    def __call__(self, batch: Batch, maskable: Tensor, rng: RNG = None, plm: PLM = None) -> Tensor:
        return uniform(maskable, rng) < self.rate  # (batch, seq)


class WholeWordMasking(CountedMasking):
    """Masks whole words: `clamp(round(rate * w), 1, w)` of an example's `w` words.

    A masked word is masked with all its pieces. At rate 0 nothing is masked.

    Args:
        rate: share of words.
        tokenizer: decides which pieces make up a word (`word_marks`).
    """

    def __init__(self, rate: float, tokenizer: PreTrainedTokenizerBase):
        super().__init__(rate)
        # of a frozen dataclass a plain subclass inherits frozen fields, and may set all else
        self.marks = word_marks(tokenizer)

    def __call__(self, batch: Batch, maskable: Tensor, rng: RNG = None, plm: PLM = None) -> Tensor:
        begins = self.marks.word_begins(batch["input_ids"], maskable)  # (batch, seq)
        chosen = self.choose(begins, self.scores(batch, begins, plm), rng)
        return maskable & with_all_pieces(chosen, begins)


class GivenWords(MaskingPolicy):
    """Masks words that a person names, each with all its pieces, in either text of a pair.

        policy = GivenWords(["Spielberg", "new york", "horror"])

    A text without any of these words gets no mask. The transform finds the words in the texts, so
    any fast tokenizer will do.

    Args:
        words: words and phrases, found as whole words ("art" is not found in "party").
    """

    columns = {"given_words": 0}

    def __init__(self, words: str | Iterable[str]):
        self.spans = WordSpans(words)

    def transforms(self) -> tuple[Transform, ...]:
        return (self.spans,)

    def __call__(self, batch: Batch, maskable: Tensor, rng: RNG = None, plm: PLM = None) -> Tensor:
        return maskable & (batch["given_words"] > 0)  # (batch, seq)


def draw_mask(
    batch: Batch,
    masking: MaskingPolicy,
    tokenizer: PreTrainedTokenizerBase,
    rng: RNG = None,
    plm: SharedPLM | None = None,
    round_up: bool = False,
) -> Batch:
    """The batch with a fresh `mask`, unless it brings one, and the positions to predict.

    `mlm_positions` and `mlm_weights`, both `(batch, k)`, are what the masked LM is to predict: the
    masked positions or, under a policy that has the whole text predicted, all. With `round_up` k is
    a power of two, so that few shapes occur. See `mtlib.plm.mlm_positions_of`.
    """
    if "mlm_positions" in batch:
        return batch
    if "mask" not in batch:
        maskable = maskable_positions(batch, tokenizer)  # (batch, seq)
        mask = masking(batch, maskable, rng, plm)
        if mask.dtype != torch.bool or mask.shape != maskable.shape:
            raise UserError(
                f"{type(masking).__name__} gives {mask.dtype} of shape {tuple(mask.shape)}; "
                f"expected torch.bool of shape {tuple(maskable.shape)}, (batch, seq)."
            )
        batch = {**batch, "mask": mask & maskable}  # no policy masks structural tokens or padding
    predicted = batch["mask"]  # (batch, seq)
    if masking.predict_all:
        predicted = batch.get("attention_mask", torch.ones_like(predicted)).bool()
    positions, weights = mlm_positions_of(predicted, round_up)
    return {**batch, "mlm_positions": positions, "mlm_weights": weights}


def maskable_positions(
    batch: Mapping[str, Tensor],
    tokenizer: PreTrainedTokenizerBase,
) -> Tensor:
    """True at ordinary tokens, bool `(batch, seq)`: no special tokens (nor [UNK]), no padding.

    Args:
        batch: `input_ids` `(batch, seq)` and, if there is one, `attention_mask`.
        tokenizer: decides which tokens are special.
    """
    input_ids = batch["input_ids"]
    special = torch.tensor(special_tokens(tokenizer), device=input_ids.device)
    maskable = ~torch.isin(input_ids, special)  # (batch, seq)
    if "attention_mask" in batch:
        maskable &= batch["attention_mask"].bool()
    return maskable


# --- random numbers and spans, for policies of one's own ---


def uniform(candidates: Tensor, rng: RNG) -> Tensor:
    """Uniform random numbers in [0, 1) at the candidates, 2 elsewhere: float `(batch, seq)`."""
    batch_size, length = candidates.shape
    rng = KeyedRNG.per_example(rng, batch_size, candidates.device)
    numbers = rng.uniform(length)  # (batch, seq)
    # The first number goes to the first candidate, wherever that is, so that padding on the left
    # changes nothing either.
    nth_candidate = (candidates.cumsum(dim=1) - 1).clamp(min=0)
    return numbers.gather(1, nth_candidate).masked_fill(~candidates, 2.0)


def gumbel(numbers: Tensor) -> Tensor:
    """Gumbel noise from uniform random numbers, of the same shape."""
    return -torch.log(-torch.log(numbers.clamp(1e-20, 1 - 1e-7)))


def span_begins(spans: Tensor) -> Tensor:
    """True at the first token of each span, bool `(batch, seq)`.

    Spans are numbered in reading order from 1. An [UNK] within a span does not start it anew.
    """
    last_span = pad(spans.cummax(dim=1).values, (1, 0))[:, :-1]
    return spans > last_span


def with_all_pieces(chosen: Tensor, begins: Tensor) -> Tensor:
    """True from each chosen beginning of a word up to the next beginning, bool `(batch, seq)`."""
    positions = torch.arange(begins.shape[1], device=begins.device)
    begin_of_word = torch.where(begins, positions, 0).cummax(dim=1).values  # (batch, seq)
    return chosen.gather(1, begin_of_word)

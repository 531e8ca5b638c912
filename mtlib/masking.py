"""Which tokens are masked, and what the model reads in their place.

Here stand the contract of all masking policies and those that need nothing but the text: by chance, whole words, words
that a person names. Policies that rank, point, learn or know the testbed are in `mtlib.policies`.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn.functional import pad

from mtlib.draws import Draws, Random
from mtlib.marking import MarkWords, word_marks
from mtlib.plm import places_of
from mtlib.preparing import Preparer
from mtlib.settings import MASK_RATE, Share, check
from mtlib.tokens import special_tokens


class MaskingPolicy(ABC):
    """Decides which tokens of a batch are masked.

    The masks of an example depend on its draws alone (`mtlib.draws`), not on its batch or how far that is padded.
    Policies run on the device of their inputs, as a rule without a Python loop over examples. What is computed once for
    a training set (spans, tags, counts) is a column of the dataset, which the policy's preparers add.
    """

    columns: Mapping[str, int | float] = MappingProxyType({})  # that it reads, each with the value that pads it
    preparer: Callable[[], Preparer] | None = None  # what adds them
    predict_all = False  # the masked LM is trained to predict the whole text, not the masked tokens alone
    asks_classifier = False  # the one in training, so that masks are drawn in the step and not by the collator

    def preparers(self) -> tuple[Preparer, ...]:
        """What has to be done to a training set before this policy can read it."""
        return () if self.preparer is None else (self.preparer(),)

    @abstractmethod
    def __call__(self, batch: Mapping[str, Tensor], maskable: Tensor, generator: Random = None, plm=None) -> Tensor:
        """True where a token is to be masked, bool `(batch, seq)`.

        Args:
            batch: `input_ids` `(batch, seq)`, and whatever else the objective's batch holds.
            maskable: the places that may be masked, bool `(batch, seq)`.
            generator: of all random numbers: `Draws` or a torch generator; None takes torch's global one.
            plm: the model in training, for a policy that asks it.
        """


@dataclass(frozen=True)
class CountedMasking(MaskingPolicy):
    """The same share of every example: `clamp(round(rate * n), 1, n)` of its `n` maskable tokens; none at rate 0.

    Which ones, `scores` decides. Halves are rounded to even, as Python does.

    Args:
        rate: share of the maskable tokens, in [0, 1].
        temperature: 0 takes the tokens with the highest scores, ties broken at random. Above 0 tokens are drawn without
            replacement with probabilities proportional to `exp(score / temperature)`.
    """

    rate: float = MASK_RATE
    temperature: float = field(default=0.0, kw_only=True)

    def __post_init__(self):
        check("rate", self.rate, Share)

    def scores(self, batch: Mapping[str, Tensor], maskable: Tensor, plm) -> Tensor | None:
        """How much each token is wanted, float `(batch, seq)`; None: all alike."""
        return None

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        return self.choose(maskable, self.scores(batch, maskable, plm), generator)  # (batch, seq)

    def choose(
        self,
        candidates: Tensor,
        scores: Tensor | None,
        generator: Random,
        counted: Tensor | None = None,
    ) -> Tensor:
        """The wanted number of candidates, those with the highest scores or a draw by them, bool `(batch, seq)`.

        `counted` are the tokens of which `rate` is a share, where those are not the candidates themselves.
        """
        n = (candidates if counted is None else counted).sum(dim=1, keepdim=True)  # (batch, 1)
        # float64, so that the count is the one Python's round(rate * n) gives
        wanted = torch.round(self.rate * n.double()).long().clamp(min=int(self.rate > 0))  # (batch, 1)
        keys = uniform(candidates, generator)  # (batch, seq), 2 where there is no candidate
        if scores is not None:
            keys = self._keys(keys, scores.to(keys.dtype), candidates)
        # the second argsort turns an order into ranks; stable, so that padding cannot change how ties fall
        rank = keys.argsort(dim=1, stable=True).argsort(dim=1, stable=True)  # (batch, seq)
        return candidates & (rank < wanted)

    def _keys(self, draws: Tensor, scores: Tensor, candidates: Tensor) -> Tensor:
        """Keys whose ascending order is the order in which tokens are taken, `(batch, seq)`."""
        if self.temperature > 0:  # the Gumbel trick: the largest of score + Gumbel noise is such a draw
            return (-(scores / self.temperature + gumbel(draws))).masked_fill(~candidates, torch.inf)
        by_chance = draws.argsort(dim=1)  # (batch, seq): candidates in random order, all others after them
        ordered = scores.masked_fill(~candidates, -torch.inf).gather(1, by_chance)
        places = by_chance.gather(1, ordered.argsort(dim=1, descending=True, stable=True))
        ranks = torch.empty_like(places).scatter_(1, places, torch.arange(places.shape[1]).expand_as(places).to(places))
        return ranks.to(draws.dtype).masked_fill(~candidates, torch.inf)


class ExactMasking(CountedMasking):
    """The same share of every example, all of its tokens equally likely.

    The default of the project: at 5 % a Bernoulli draw leaves most short examples untouched (the paper's own
    study gives each example one outcome, so each must have had a mask).
    """


class OriginalMasking(ExactMasking):
    """As `ExactMasking`, but the masked LM is trained to predict the whole text (+Orig: BART's own objective).

    An encoder predicts the token at every place, masked or not; an encoder-decoder writes the full text.
    """

    predict_all = True


@dataclass(frozen=True)
class BernoulliMasking(MaskingPolicy):
    """Each maskable token by itself with probability `rate`, as Hugging Face's masked-LM collator does."""

    rate: float = MASK_RATE

    def __post_init__(self):
        check("rate", self.rate, Share)

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        return uniform(maskable, generator) < self.rate  # (batch, seq)


class WholeWordMasking(CountedMasking):
    """Whole words: `clamp(round(rate * w), 1, w)` of an example's `w` words, each with all its pieces; none at rate 0.

    Args:
        rate: share of words.
        tokenizer: tells which pieces make up a word (`word_marks`).
    """

    def __init__(self, rate: float, tokenizer):
        super().__init__(rate)
        self.marks = word_marks(tokenizer)

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        input_ids = batch["input_ids"]
        goes_on, continues = (marks.to(input_ids.device)[input_ids] for marks in self.marks)  # (batch, seq)
        before = pad((goes_on * maskable)[:, :-1], (1, 0))  # (batch, seq): after a special token a word begins
        begins = maskable & (before + continues < 3)  # (batch, seq)
        return maskable & with_all_pieces(self.choose(begins, self.scores(batch, begins, plm), generator), begins)


class GivenWords(CountedMasking):
    """Words that a person names, each with all its pieces, in either text of a pair; nothing where there are none.

        policy = GivenWords(["Spielberg", "new york", "horror"])

    The preparer finds them in the texts, so any fast tokenizer will do.

    Args:
        words: words and phrases, found as whole words ("art" not in "party"); or a compiled regular expression, of
            which every word is masked that a match touches.
        rate: share of the places where they stand: `clamp(round(rate * p), 1, p)` of an example's `p`.
        match_case: "May" is not "may". A regular expression has its own flags.
    """

    columns = {"given_words": 0}

    def __init__(self, words: str | Iterable[str] | re.Pattern, rate: float = 1.0, match_case: bool = False):
        super().__init__(rate)
        self.marker = MarkWords(words, match_case)

    def preparers(self) -> tuple[Preparer, ...]:
        return (self.marker,)

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        spans = batch["given_words"].masked_fill(~maskable, 0)  # (batch, seq)
        begins = span_begins(spans)
        return (spans > 0) & with_all_pieces(self.choose(begins, None, generator), begins)


def draw_mask(
    batch: dict, masking: MaskingPolicy, tokenizer, generator: Random = None, plm=None, round_up: bool = False
) -> dict:
    """The batch with a fresh `mask`, unless it brings its own, and with `places` and `place_weights`, `(batch, k)`.

    Places are those that the masked LM is to predict: the masked ones or, under a policy that has the whole text
    predicted, all. See `plm.places_of`.
    """
    if "places" in batch:
        return batch
    if "mask" not in batch:
        maskable = maskable_positions(batch, tokenizer)  # (batch, seq)
        mask = masking(batch, maskable, generator, plm)
        batch = {**batch, "mask": mask & maskable}  # no policy masks structural tokens or padding
    predicted = batch["mask"]  # (batch, seq)
    if masking.predict_all:
        predicted = batch.get("attention_mask", torch.ones_like(predicted)).bool()
    places, weights = places_of(predicted, round_up)
    return {**batch, "places": places, "place_weights": weights}


def maskable_positions(batch: Mapping[str, Tensor], tokenizer) -> Tensor:
    """True where an ordinary token stands, bool `(batch, seq)`: no special token (nor [UNK]), no padding.

    Args:
        batch: `input_ids` `(batch, seq)` and, where there is one, `attention_mask`.
        tokenizer: says which tokens are special.
    """
    input_ids = batch["input_ids"]
    maskable = ~torch.isin(input_ids, torch.tensor(special_tokens(tokenizer), device=input_ids.device))  # (batch, seq)
    if "attention_mask" in batch:
        maskable &= batch["attention_mask"].bool()
    return maskable


# --- random numbers and spans, for policies of one's own ---


def uniform(candidates: Tensor, generator: Random) -> Tensor:
    """Uniform numbers in [0, 1) at the candidates, 2 elsewhere: float `(batch, seq)`."""
    numbers = Draws.by(generator, len(candidates), candidates.device).uniform(candidates.shape[1])
    # the first number for the first candidate, wherever that stands: padding on the left changes nothing either
    return numbers.gather(1, (candidates.cumsum(dim=1) - 1).clamp(min=0)).masked_fill(~candidates, 2.0)


def gumbel(draws: Tensor) -> Tensor:
    """Gumbel noise from uniform numbers."""
    return -torch.log(-torch.log(draws.clamp(1e-20, 1 - 1e-7)))


def span_begins(spans: Tensor) -> Tensor:
    """True at the first token of each span, where spans are numbered in reading order from 1, bool `(batch, seq)`.

    An [UNK] within a span does not begin it anew.
    """
    return spans > pad(spans.cummax(dim=1).values, (1, 0))[:, :-1]


def with_all_pieces(chosen: Tensor, begins: Tensor) -> Tensor:
    """True from each chosen beginning of a word up to the next beginning, bool `(batch, seq)`."""
    places = torch.arange(begins.shape[1], device=begins.device)
    return chosen.gather(1, torch.where(begins, places, 0).cummax(dim=1).values)

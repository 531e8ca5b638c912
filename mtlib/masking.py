"""Which tokens are masked: the policies' contract, those that choose by chance, and what becomes of a masked batch."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import count
from types import MappingProxyType

import torch
from datasets import Dataset
from torch import Tensor

from mtlib.errors import UserError
from mtlib.plm import SharedPLM
from mtlib.preparer import Prepared, Preparer, check_texts, with_column
from mtlib.settings import FROM_0, MASK_RATE, SHARE, Replacement


class MaskingPolicy(ABC):
    """Decides which tokens of a batch are masked.

    Every policy of ours draws its random numbers for the candidates (tokens or spans) in reading order. So the masks of
    an example do not depend on how far its batch is padded, and a given generator gives the same masks again. Policies
    run on the device of their inputs, as a rule without a Python loop over examples.

    A policy may choose by something that is computed once for a training set (spans, tags, counts). It then reads a
    column of the dataset, which a preparer adds. The preparer is named rather than imported, since it may lie in a
    package above this one (the testbed's grammar, the part-of-speech probe).
    """

    columns: Mapping[str, int | float] = MappingProxyType({})  # that it reads, each with the value that pads it
    prepared_by: str = ""  # "module:class" of the preparer that adds the columns
    predict_all: bool = False  # the masked LM is trained to predict the whole text, not the masked tokens alone

    def preparers(self) -> tuple[Preparer, ...]:
        """What has to be done to a training set before this policy can read it."""
        if not self.prepared_by:
            return ()
        module, name = self.prepared_by.split(":")
        return (getattr(import_module(module), name)(**self.preparer_options()),)

    def preparer_options(self) -> Mapping[str, object]:
        """The arguments of its preparer."""
        return {}

    def begin(self) -> None:  # noqa: B027  (most keep nothing)
        """A training begins: a policy that keeps anything about its model forgets it."""

    def column(self, batch: Mapping[str, Tensor], name: str) -> Tensor:
        """A column of the batch.

        Raises:
            UserError: the batch has none.
        """
        if name not in batch:
            raise UserError(
                f"{type(self).__name__} reads the column {name!r}, which the batch lacks. Let its preparer "
                f"({self.prepared_by}) add it to the examples, and the collator keep it: "
                "Collator(tokenizer, objective.columns)."
            )
        return batch[name]

    @abstractmethod
    def __call__(
        self, batch: Mapping[str, Tensor], maskable: Tensor, generator: torch.Generator | None = None, plm=None
    ) -> Tensor:
        """True where a token is to be masked, bool `(batch, seq)`.

        Args:
            batch: `input_ids` `(batch, seq)`, and whatever else the objective's batch holds.
            maskable: the places that may be masked, bool `(batch, seq)`.
            generator: of all random numbers; None takes torch's global one.
            plm: the model in training, for a policy that asks it.
        """


def check_policy(masking: MaskingPolicy | None, required: bool = False) -> None:
    """Raise `UserError` unless this is a policy, or None where that is not `required`."""
    if (required or masking is not None) and not isinstance(masking, MaskingPolicy):
        raise UserError(
            f"masking is {masking!r}; expected a masking policy, as ExactMasking(0.05) or "
            'masking_policy("exact", 0.05, tokenizer) makes one.'
        )


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
        SHARE.check("rate", self.rate)
        FROM_0.check("temperature", self.temperature)

    def scores(self, batch: Mapping[str, Tensor], maskable: Tensor, plm) -> Tensor | None:
        """How much each token is wanted, float `(batch, seq)`; None: all alike."""
        return None

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        return self.choose(maskable, self.scores(batch, maskable, plm), generator)  # (batch, seq)

    def choose(
        self,
        candidates: Tensor,
        scores: Tensor | None,
        generator: torch.Generator | None,
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


def gumbel(draws: Tensor) -> Tensor:
    """Gumbel noise from uniform numbers."""
    return -torch.log(-torch.log(draws.clamp(1e-20, 1 - 1e-7)))


def uniform(candidates: Tensor, generator: torch.Generator | None) -> Tensor:
    """Uniform numbers in [0, 1) at the candidates, 2 elsewhere: float `(batch, seq)`."""
    numbers = torch.full(candidates.shape, 2.0, device=candidates.device)
    device = candidates.device if generator is None else generator.device
    numbers[candidates] = torch.rand(int(candidates.sum()), generator=generator, device=device).to(candidates.device)
    return numbers


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
        SHARE.check("rate", self.rate)

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        return uniform(maskable, generator) < self.rate  # (batch, seq)


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


class MarkedMasking(CountedMasking):
    """Marked tokens and no others: `clamp(round(rate * n), 1, m)` of an example's `m` marked ones, none at rate 0.

    `n` counts all maskable tokens, so that a rate means the same as in other policies. At rate 1 all that is marked is
    masked; where nothing is marked, nothing is. A class below it names the column of the marks (0: not marked).
    """

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        (name,) = self.columns
        marked = maskable & (self.column(batch, name) > 0)  # (batch, seq)
        return self.choose(marked, None, generator, counted=maskable)


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


def draw_mask(plm: SharedPLM, batch: dict, masking: MaskingPolicy, generator: torch.Generator | None) -> dict:
    """The batch with a fresh `mask`, unless it brings its own, and `mlm_places` where all are predicted."""
    if "mask" not in batch:
        maskable = maskable_positions(batch, plm.tokenizer)  # (batch, seq)
        mask = masking(batch, maskable, generator, plm)
        if not (isinstance(mask, Tensor) and mask.dtype is torch.bool and mask.shape == maskable.shape):
            returned = f"{mask.dtype} of shape {tuple(mask.shape)}" if isinstance(mask, Tensor) else repr(mask)
            raise UserError(
                f"{type(masking).__name__} returned {returned}; expected a tensor of torch.bool of shape "
                f"{tuple(maskable.shape)}, True where a token is to be masked."
            )
        batch = {**batch, "mask": mask & maskable}  # no policy masks structural tokens or padding
    if masking.predict_all and "mlm_places" not in batch:
        attended = batch.get("attention_mask", torch.ones_like(batch["mask"]))
        batch = {**batch, "mlm_places": attended.bool()}  # (batch, seq)
    return batch


def replace_masked(input_ids: Tensor, mask: Tensor, tokenizer, replacement: Replacement = "mask") -> Tensor:
    """What stands at the masked places for the model to read, `(batch, seq)`.

    `"mask"`: always the mask token (the paper). `"80_10_10"`: BERT's rule, 80 % mask token, 10 % a random token
    (none of the structural ones), 10 % the original, drawn from torch's global generator.
    """
    masked_ids = input_ids.masked_fill(mask, tokenizer.mask_token_id)
    if replacement == "mask":
        return masked_ids
    draw = torch.rand(input_ids.shape, device=input_ids.device)
    random_ids = torch.randint(len(tokenizer), input_ids.shape, device=input_ids.device)
    structural = torch.tensor(tokenizer.all_special_ids, device=input_ids.device)  # would cut or pad the text
    random_ids = torch.where(torch.isin(random_ids, structural), tokenizer.mask_token_id, random_ids)
    masked_ids = torch.where(mask & (draw >= 0.8), random_ids, masked_ids)
    return torch.where(mask & (draw >= 0.9), input_ids, masked_ids)


def perturbation_counts(input_ids: Tensor, perturbed_ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
    """`n_masked`, and `n_changed`: how many of them were filled with another token than the original."""
    return {"n_masked": mask.sum(), "n_changed": (input_ids != perturbed_ids).sum()}


Spans = list[tuple[int, int]] | list[tuple[int, int, int]]  # first character, the one after the last; a number
WORD = re.compile(r"\w+(?:['’-]\w+)*")  # "don't" and "well-made" are one word
_ROWS = 1000  # texts tokenised at a time


class MarkTokens(Preparer):
    """Adds a column with the number of the span that each token belongs to, or 0.

    Spans are numbered in reading order from 1 on, unless they bring numbers of their own. Special tokens ([UNK] among
    them) belong to none. Counts the examples without a marked token. A class below it says which spans; it may read any
    dataset columns that it names.
    """

    reads = ("text", "text_pair")
    column: str  # the one that it adds

    def check(self, plm: SharedPLM) -> None:
        check_offsets(plm.tokenizer, self)

    @abstractmethod
    def spans(self, rows: Dataset) -> Iterator[tuple[Spans, Spans]]:
        """The spans of each row in its text and in its second text, by characters and in reading order."""

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        special = set(plm.tokenizer.all_special_ids)
        marks = []
        for row, encoded, spans in zip(examples, self._encoded(plm, examples), self.spans(examples), strict=True):
            ids, offsets, sequence = encoded
            if list(ids) != list(row["input_ids"]):
                raise UserError(
                    f"the tokens of {row['text'][:60]!r} are not those of its text, so that spans of it cannot be "
                    f"found; {type(self).__name__} must come before what changes tokens."
                )
            marks.append(_marks(row, ids, offsets, sequence, spans, special))
        return Prepared(
            with_column(examples, self.column, marks),
            {f"{self.column}_unmarked": sum(not any(row) for row in marks)},
        )

    def _encoded(self, plm: SharedPLM, examples: Dataset) -> Iterator[tuple]:
        """Tokens, their offsets and the text that each belongs to, as `tokenise` has made them."""
        check_texts(examples, self)
        check_offsets(plm.tokenizer, self)
        longest = max(map(len, examples["input_ids"]), default=0)  # where nothing was cut, this cuts nothing either
        for first in range(0, len(examples), _ROWS):
            rows = examples[first : first + _ROWS]
            encoded = plm.tokenizer(
                rows["text"], rows.get("text_pair"), truncation=True, max_length=longest, split_special_tokens=True,
                return_offsets_mapping=True,
            )  # fmt: skip
            for i, ids in enumerate(encoded["input_ids"]):
                yield ids, encoded["offset_mapping"][i], encoded.sequence_ids(i)


def check_offsets(tokenizer, preparer: Preparer) -> None:
    """Raise `UserError` where spans of a text cannot be found among its tokens."""
    if not tokenizer.is_fast:
        raise UserError(
            f"{type(tokenizer).__name__} does not say which characters a token stands for, which "
            f"{type(preparer).__name__} has to know; take a model with a fast tokenizer, or a policy that reads no "
            "text: exact, whole_word, frequency_rare or frequency_frequent."
        )


def mark_spans(text: str, offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int, int]]) -> list[int]:
    """The number of the span that each token belongs to; 0: it belongs to none.

    A token belongs to a span if they have a character in common. White space at a span's ends does not count, since
    byte-level BPE and SentencePiece give the space before a word to its first piece. So every piece of a word is found,
    those of a letter that several tokens share included. Where spans overlap, the later one wins.

    Args:
        text: the text that was tokenised.
        offsets: first character and the one after the last of each token (`return_offsets_mapping`).
        spans: the same of each span, and its number, above 0.
    """
    span_of = [0] * len(text)
    for start, end, number in spans:
        inner = text[start:end].strip()
        first = text.find(inner, start)
        span_of[first : first + len(inner)] = [number] * len(inner)
    return [max(span_of[start:end], default=0) for start, end in offsets]


def _marks(row: dict, ids, offsets, sequence, spans: tuple[Spans, Spans], special: set[int]) -> list[int]:
    """The number of each token's span: those of the second text go on where those of the first end."""
    number = count(1)
    numbered = [[(start, end, *(numbers or [next(number)])) for start, end, *numbers in of_text] for of_text in spans]
    first = mark_spans(row["text"], _of_text(offsets, sequence, 0), numbered[0])
    second = mark_spans(row.get("text_pair") or "", _of_text(offsets, sequence, 1), numbered[1])
    return [0 if token in special else a or b for token, a, b in zip(ids, first, second, strict=True)]


def _of_text(offsets, sequence, wanted: int) -> list[tuple[int, int]]:
    return [place if text == wanted else (0, 0) for place, text in zip(offsets, sequence, strict=True)]

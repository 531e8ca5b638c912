"""Spans of a text: from characters to tokens, and policies that mask what a span says."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mtlib.masking.policy import CountedMasking, MaskingPolicy, uniform
from mtlib.settings import ENGLISH_PIPELINE, SHARE


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


@dataclass(frozen=True)
class SpanMasking(MaskingPolicy):
    """One span of each example, all of its spans equally likely. An example without one is masked at random.

    Args:
        rate: share of the tokens masked in an example without a span (as in `ExactMasking`); the length of a span is
            its own.

    A class below it names the column that numbers the spans of an example in reading order from 1 on: for each token
    the span that it belongs to, or 0.
    """

    rate: float = 0.05

    def __post_init__(self):
        SHARE.check("rate", self.rate)

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        (name,) = self.columns
        spans = self.column(batch, name).masked_fill(~maskable, 0)  # (batch, seq)
        return self.one_span(spans, maskable, generator)

    def one_span(self, spans: Tensor, maskable: Tensor, generator: torch.Generator | None) -> Tensor:
        """The tokens of one span of each row, or some at random where it has none, bool `(batch, seq)`."""
        before = torch.nn.functional.pad(spans.cummax(dim=1).values, (1, 0))[:, :-1]
        begins = spans > before  # (batch, seq): an [UNK] within a span does not begin it anew
        first = uniform(begins, generator).argmin(dim=1, keepdim=True)  # (batch, 1): a place in the chosen span
        chosen = (spans > 0) & (spans == spans.gather(1, first))  # (batch, seq)
        without = maskable & ~(spans > 0).any(dim=1, keepdim=True)
        return chosen | CountedMasking(self.rate).choose(without, None, generator)


@dataclass(frozen=True)
class SalientSpanMasking(SpanMasking):
    """One named entity or date of each example (+SSM: Guu et al. 2020, Roberts et al. 2020).

    Args:
        rate: as in `SpanMasking`.
        pipeline: name of the installed spaCy pipeline that finds them.
    """

    pipeline: str = ENGLISH_PIPELINE

    columns = {"salient_spans": 0}  # noqa: RUF012  (never changed)
    prepared_by = "mtlib.masking.marking:MarkSalientSpans"

    def preparer_options(self):
        return {"pipeline": self.pipeline}


class MarkedMasking(CountedMasking):
    """Marked tokens and no others: `clamp(round(rate * n), 1, m)` of an example's `m` marked ones, none at rate 0.

    `n` counts all maskable tokens, so that a rate means the same as in other policies. At rate 1 all that is marked is
    masked; where nothing is marked, nothing is. A class below it names the column of the marks (0: not marked).
    """

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        (name,) = self.columns
        marked = maskable & (self.column(batch, name) > 0)  # (batch, seq)
        return self.choose(marked, None, generator, counted=maskable)


class KnownShortcutMasking(MarkedMasking):
    """The words that carry the testbed's shortcut: what a policy could do at best (positive control)."""

    columns = {"known_shortcut": 0}  # noqa: RUF012
    prepared_by = "mtlib.testbed.known_words:MarkShortcut"


class ShortcutFirstMasking(CountedMasking):
    """The share `rate` of every example: words that carry the testbed's shortcut, then others where they are too few.

    For pairs, whose shortcut lies in how many words the texts share. `KnownShortcutMasking` masks more of a pair that
    shares more words, so that the number of masks tells the label. Here it tells nothing.
    """

    columns = {"known_shortcut": 0}  # noqa: RUF012
    prepared_by = "mtlib.testbed.known_words:MarkShortcut"

    def scores(self, batch, maskable, plm) -> Tensor:
        return (self.column(batch, "known_shortcut") > 0).float()


class KnownCauseMasking(MarkedMasking):
    """The words that decide the label of a testbed sentence: what a policy had better spare (negative control)."""

    columns = {"known_cause": 0}  # noqa: RUF012
    prepared_by = "mtlib.testbed.known_words:MarkCause"

"""Oracles of the testbed: policies that know which words carry its shortcut, or its labels."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from datasets import Dataset
from torch import Tensor

from mtlib.masking import CountedMasking
from mtlib.preparing import Transform
from mtlib.spans import Spans, TokenSpans
from mtlib.testbed.known_words import cause_spans, grammar_of, shortcut_spans


class ShortcutSpans(TokenSpans):
    """Adds `known_shortcut`: the words that carry the testbed's shortcut."""

    column = "known_shortcut"
    reads = ("text", "text_pair", "uid")

    def spans(self, rows: Dataset) -> Iterator[tuple[Spans, Spans]]:
        for row in rows:
            grammar = grammar_of(row.get("uid"))
            yield shortcut_spans(grammar, row["text"], row.get("text_pair"))


class CausalSpans(TokenSpans):
    """Adds `known_cause`: the words that decide the label of a testbed sentence."""

    column = "known_cause"
    reads = ("text", "text_pair", "uid", "group")

    def spans(self, rows: Dataset) -> Iterator[tuple[Spans, Spans]]:
        for row in rows:
            grammar = grammar_of(row.get("uid"))
            template = row.get("group", "")
            yield cause_spans(grammar, row["text"], row.get("text_pair"), template)


@dataclass(frozen=True)
class KnownMasking(CountedMasking):
    """Masks only marked tokens: of an example's `m` marked ones `clamp(round(rate * n), 1, m)`.

    `n` counts all maskable tokens, so that a rate means the same as in other policies. At rate 1
    all marked tokens are masked, at rate 0 none; where nothing is marked, nothing is masked. The
    words that carry the shortcut are the best that a policy could mask (positive control), the
    words that decide the label are what it had better leave (negative control).

    Args:
        spans: the class of the transform that numbers the tokens of the spans.
        then_others: whether other tokens are masked where the marked ones do not suffice, so that
            every example has the share `rate` masked. For pairs the shortcut is how many words the
            texts share. With marked tokens only, pairs that share more words get more masks, and
            the number of masks gives the label away.
    """

    spans: type[TokenSpans] = field(kw_only=True)
    then_others: bool = field(default=False, kw_only=True)

    @property
    def columns(self) -> dict[str, int]:
        return {self.spans.column: 0}

    def transforms(self) -> tuple[Transform, ...]:
        return (self.spans(),)

    def __call__(self, batch, maskable, rng=None, plm=None) -> Tensor:
        marked = maskable & (batch[self.spans.column] > 0)  # (batch, seq)
        if self.then_others:
            return self.choose(maskable, marked.float(), rng)
        return self.choose(marked, None, rng, counted=maskable)


known_shortcut = partial(KnownMasking, spans=ShortcutSpans)
known_shortcut_first = partial(KnownMasking, spans=ShortcutSpans, then_others=True)
known_cause = partial(KnownMasking, spans=CausalSpans)

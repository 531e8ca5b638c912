"""The testbed's oracles: policies that are told which words carry its shortcut, and which decide the label."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from datasets import Dataset
from torch import Tensor

from mtlib.marking import MarkTokens, Spans
from mtlib.masking import CountedMasking
from mtlib.preparing import Preparer
from mtlib.testbed.known_words import cause_spans, grammar_of, shortcut_spans


class MarkShortcut(MarkTokens):
    """Adds `known_shortcut`: the words that carry the testbed's shortcut."""

    column = "known_shortcut"
    reads = ("text", "text_pair", "uid")

    def spans(self, rows: Dataset) -> Iterator[tuple[Spans, Spans]]:
        return (shortcut_spans(grammar_of(row.get("uid")), row["text"], row.get("text_pair")) for row in rows)


class MarkCause(MarkTokens):
    """Adds `known_cause`: the words that decide the label of a testbed sentence."""

    column = "known_cause"
    reads = ("text", "text_pair", "uid", "group")

    def spans(self, rows: Dataset) -> Iterator[tuple[Spans, Spans]]:
        for row in rows:
            yield cause_spans(grammar_of(row.get("uid")), row["text"], row.get("text_pair"), row.get("group", ""))


@dataclass(frozen=True)
class KnownMasking(CountedMasking):
    """Marked tokens and no others: `clamp(round(rate * n), 1, m)` of an example's `m` marked ones, none at rate 0.

    `n` counts all maskable tokens, so that a rate means the same as in other policies. At rate 1 all that is marked is
    masked; where nothing is marked, nothing is. The words that carry the shortcut are what a policy could mask at best
    (positive control), those that decide the label what it had better spare (negative control).

    Args:
        marker: marks them.
        then_others: other tokens where the marked ones are too few, so that every example has the share `rate` masked.
            For pairs, whose shortcut lies in how many words the texts share: without others more of a pair is masked
            that shares more words, so that the number of masks tells the label.
    """

    marker: type[MarkTokens] = field(kw_only=True)
    then_others: bool = field(default=False, kw_only=True)

    @property
    def columns(self) -> dict[str, int]:
        return {self.marker.column: 0}

    def preparers(self) -> tuple[Preparer, ...]:
        return (self.marker(),)

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        marked = maskable & (batch[self.marker.column] > 0)  # (batch, seq)
        if self.then_others:
            return self.choose(maskable, marked.float(), generator)
        return self.choose(marked, None, generator, counted=maskable)


known_shortcut = partial(KnownMasking, marker=MarkShortcut)
known_shortcut_first = partial(KnownMasking, marker=MarkShortcut, then_others=True)
known_cause = partial(KnownMasking, marker=MarkCause)

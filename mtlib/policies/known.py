"""The testbed's oracles: policies that are told which words carry its shortcut, and which decide the label."""

from collections.abc import Iterator

from datasets import Dataset
from torch import Tensor

from mtlib.marking import MarkTokens, Spans
from mtlib.masking import CountedMasking
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


class MarkedMasking(CountedMasking):
    """Marked tokens and no others: `clamp(round(rate * n), 1, m)` of an example's `m` marked ones, none at rate 0.

    `n` counts all maskable tokens, so that a rate means the same as in other policies. At rate 1 all that is marked is
    masked; where nothing is marked, nothing is. A class below it names the column of the marks (0: not marked).
    """

    testbed_only = True

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        (name,) = self.columns
        marked = maskable & (batch[name] > 0)  # (batch, seq)
        return self.choose(marked, None, generator, counted=maskable)


class KnownShortcutMasking(MarkedMasking):
    """The words that carry the testbed's shortcut: what a policy could do at best (positive control)."""

    columns = {"known_shortcut": 0}
    preparer = MarkShortcut


class ShortcutFirstMasking(CountedMasking):
    """The share `rate` of every example: words that carry the testbed's shortcut, then others where they are too few.

    For pairs, whose shortcut lies in how many words the texts share. `KnownShortcutMasking` masks more of a pair that
    shares more words, so that the number of masks tells the label. Here it tells nothing.
    """

    columns = {"known_shortcut": 0}
    preparer = MarkShortcut
    testbed_only = True

    def scores(self, batch, maskable, plm) -> Tensor:
        return (batch["known_shortcut"] > 0).float()


class KnownCauseMasking(MarkedMasking):
    """The words that decide the label of a testbed sentence: what a policy had better spare (negative control)."""

    columns = {"known_cause": 0}
    preparer = MarkCause

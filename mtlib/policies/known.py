"""The testbed's oracles: policies that are told which words carry its shortcut, and which decide the label."""

from torch import Tensor

from mtlib.masking import CountedMasking, MarkedMasking


class KnownShortcutMasking(MarkedMasking):
    """The words that carry the testbed's shortcut: what a policy could do at best (positive control)."""

    columns = {"known_shortcut": 0}  # noqa: RUF012  (never changed)
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

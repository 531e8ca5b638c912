"""The spans that the supervised policy learns to mask: the words that decide a label.

On the testbed they are known. On real reviews they are the words that differ between a review and its counterfactual in
the training pairs of IMDB-CAD. Its dev and test pairs are evaluation sets, and are never read here.
"""

from collections.abc import Iterator
from difflib import SequenceMatcher

from datasets import Dataset

from mtlib.data.sources import is_testbed
from mtlib.data.training_pairs import described_pairs
from mtlib.encoding import tokenise
from mtlib.errors import UserError
from mtlib.masking.marking import WORD, MarkTokens, Spans, check_offsets
from mtlib.masking.pointer import PointedSpan
from mtlib.masking.supervised import PointAtSpans, marked_spans
from mtlib.plm import SharedPLM
from mtlib.testbed.known_words import MarkCause, of_testbed

_LONGEST = 10  # words of a span; longer ones are sentences written anew


class PointAtAnswers(PointAtSpans):
    """Learns from the known words of the testbed, or from IMDB-CAD's training pairs.

    Args:
        source: of the pairs, "hub" or a folder of original releases; "testbed" where they are not needed.
    """

    reads = MarkCause.reads

    def __init__(self, source: str = "hub"):
        self.source = source

    def reading_from(self, source: str) -> "PointAtAnswers":
        return PointAtAnswers(source)

    def check(self, plm: SharedPLM) -> None:
        check_offsets(plm.tokenizer, self)
        if not is_testbed(self.source):
            described_pairs(self.source)

    def training_spans(self, plm: SharedPLM, examples: Dataset, seed: int) -> list[PointedSpan]:
        if "uid" in examples.column_names and all(map(of_testbed, examples["uid"])):
            marked = MarkCause()(plm, examples, seed).examples
            return list(marked_spans(marked, MarkCause.column))
        if "text_pair" in examples.column_names:
            raise UserError("supervised learns from single reviews, IMDB-CAD's; for other data take another policy.")
        longest = max(map(len, examples["input_ids"]))
        pairs, _ = described_pairs(self.source)
        reviews = tokenise(pairs, plm.tokenizer, longest, keep=pairs.column_names)
        marked = MarkEdits()(plm, reviews, seed).examples
        return list(marked_spans(marked, MarkEdits.column))


class MarkEdits(MarkTokens):
    """Marks the words of a review that its counterfactual has not, in pairs ("<pair>:original", "<pair>:edited")."""

    column = "edits"
    reads = ("text", "group")

    def spans(self, rows: Dataset) -> Iterator[tuple[Spans, Spans]]:
        texts = dict(zip(rows["group"], rows["text"], strict=True))
        other = {"original": "edited", "edited": "original"}
        for group, text in zip(rows["group"], rows["text"], strict=True):
            pair, _, half = group.rpartition(":")
            yield edited_spans(text, texts[f"{pair}:{other[half]}"]), []


def edited_spans(text: str, other: str) -> Spans:
    """The runs of words of `text` that differ from `other`, those of more than ten words left out."""
    words, theirs = (list(WORD.finditer(each)) for each in (text, other))
    matcher = SequenceMatcher(None, [w[0].lower() for w in words], [w[0].lower() for w in theirs], autojunk=False)
    return [
        (words[first].start(), words[last - 1].end())
        for what, first, last, _, _ in matcher.get_opcodes()
        if what in ("replace", "delete") and last - first <= _LONGEST
    ]

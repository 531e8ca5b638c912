"""IMDB-CAD's training pairs, reviews and their counterfactuals, from which the supervised policy learns on real data.

Its dev and test pairs are evaluation sets, and are never read here.
"""

from collections.abc import Iterator
from difflib import SequenceMatcher

from datasets import Dataset

from mtlib.data.sources import load_described
from mtlib.errors import UserError
from mtlib.masking import WORD, MarkTokens, Spans

CAD_TRAIN = "imdb_cad_train"
_LONGEST = 10  # words of a span; longer ones are sentences written anew


def described_pairs(source: str) -> tuple[Dataset, dict]:
    """The pairs and their description (`sources.load_described`).

    Raises:
        UserError: the source does not have them.
    """
    try:
        return load_described(CAD_TRAIN, source)
    except UserError as error:
        raise UserError(
            f"the policies supervised and supervised_top5 learn from IMDB-CAD's training pairs (the set {CAD_TRAIN}), "
            f"which cannot be read: {str(error).rstrip('.')}. Give a source that has them, or take another policy."
        ) from error


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

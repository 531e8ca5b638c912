"""The spans that the supervised policy learns to mask: the words that decide a label.

On the testbed they are known. On real reviews they are the words that differ between a review and its counterfactual in
the training pairs of IMDB-CAD. Its dev and test pairs are evaluation sets, and are never read here.
"""

from datasets import Dataset

from mtlib.data.sources import is_testbed
from mtlib.data.training_pairs import MarkEdits, described_pairs
from mtlib.encoding import tokenise
from mtlib.errors import UserError
from mtlib.masking import check_offsets
from mtlib.plm import SharedPLM
from mtlib.policies.pointer import PointedSpan
from mtlib.policies.supervised import PointAtSpans, marked_spans
from mtlib.testbed.known_words import MarkCause, of_testbed


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
            raise UserError(
                "supervised learns from single reviews, IMDB-CAD's. For pairs take another policy, or in Python give "
                "spans of your own (mtlib.policies.supervised.PointAtSpans)."
            )
        longest = max(map(len, examples["input_ids"]))
        pairs, _ = described_pairs(self.source)
        reviews = tokenise(pairs, plm.tokenizer, longest, keep=pairs.column_names)
        marked = MarkEdits()(plm, reviews, seed).examples
        return list(marked_spans(marked, MarkEdits.column))

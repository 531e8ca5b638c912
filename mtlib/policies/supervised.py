"""The supervised policy of Ye et al.: a small network learns to point at a span, and that span is masked.

It learns from the words that decide a label. On the testbed they are known. On real reviews they are the words that
differ between a review and its counterfactual in the training pairs of IMDB-CAD. Its dev and test pairs are evaluation
sets, and are never read here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

import torch
from datasets import Dataset
from torch import Tensor

from mtlib.contexts import forked_random_state
from mtlib.data.sources import CAD_TRAIN, is_testbed, load
from mtlib.encoding import each_token, tokenise
from mtlib.errors import UserError
from mtlib.marking import WORD, MarkTokens, Spans, check_offsets
from mtlib.masking import MaskingPolicy, gumbel, maskable_positions, uniform
from mtlib.plm import SharedPLM, word_embeddings
from mtlib.policies.known import MarkCause
from mtlib.policies.pointer import PointedSpan, SpanPointer, best_spans, fit_span_pointer
from mtlib.preparing import Prepared, Preparer, with_column
from mtlib.testbed.known_words import of_testbed


@dataclass(frozen=True)
class SupervisedMasking(MaskingPolicy):
    """The span that a learned pointer points at, `pointer.SpanPointer` (Ye et al. 2021).

    Args:
        best_of: 1 takes the best span; above it, a draw of so many of the best by their probability.

    How many tokens are masked follows from the span.
    """

    columns = {"span_start": -torch.inf, "span_end": -torch.inf}

    best_of: int = 1

    def preparers(self) -> tuple[Preparer, ...]:
        return (PointAtAnswers(),)

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        start, end = (batch[name].masked_fill(~maskable, -torch.inf) for name in self.columns)
        first, last, scores = best_spans(start, end, self.best_of)  # (batch, best_of)
        possible = scores.isfinite()
        noise = gumbel(uniform(possible, generator))  # (batch, best_of): the largest sum is a draw by probability
        chosen = (scores + noise).argmax(dim=1, keepdim=True)  # (batch, 1)
        places = torch.arange(maskable.shape[1], device=maskable.device)
        inside = (places >= first.gather(1, chosen)) & (places <= last.gather(1, chosen))
        return maskable & inside & possible.gather(1, chosen)  # (batch, seq)


@dataclass(frozen=True)
class PointAtAnswers(Preparer):
    """Trains a `SpanPointer` and adds what it says of every token: `span_start` and `span_end`, log-probabilities.

    The network reads the word embeddings of the model as it is when the stage begins, and computes in float32
    throughout. It learns from the known words of the testbed, or from IMDB-CAD's training pairs; a class below it may
    have `training_spans` of its own. Counts the spans, and notes the mean loss of the last epoch.

    Args:
        source: of the pairs, "hub" or a folder of original releases; "testbed" where they are not needed.
    """

    source: str = "hub"

    reads = MarkCause.reads
    epochs = 3

    def reading_from(self, source: str) -> "PointAtAnswers":
        return PointAtAnswers(source)

    def check(self, plm: SharedPLM) -> None:
        check_offsets(plm.tokenizer, self)
        if not is_testbed(self.source):
            load(CAD_TRAIN, self.source)

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        spans = self.training_spans(plm, examples, seed)

        def logarithms(rows, batch) -> Tensor:
            logits = torch.stack(pointer(batch, maskable_positions(batch, plm.tokenizer)), dim=-1)  # (batch, seq, 2)
            # a text without a token of its own: no place is possible
            return logits.float().log_softmax(dim=1).nan_to_num(nan=-torch.inf, neginf=-torch.inf)

        with torch.autocast(plm.device.type, enabled=False):
            with forked_random_state(plm.device, seed):
                pointer = SpanPointer(word_embeddings(plm.trunk)[0].weight).to(plm.device)
                loss = fit_span_pointer(pointer, spans, plm.tokenizer, self.epochs, seed)
            pointer.eval()
            rows = each_token(plm, examples, logarithms)
        for place, name in enumerate(SupervisedMasking.columns):
            examples = with_column(examples, name, [row[:, place].tolist() for row in rows])
        return Prepared(examples, {"supervised_spans": len(spans), "supervised_loss": round(loss, 4)})

    def training_spans(self, plm: SharedPLM, examples: Dataset, seed: int) -> list[PointedSpan]:
        """What the pointer learns from; `marked_spans` makes it of what a `MarkTokens` marks."""
        if "uid" in examples.column_names and all(map(of_testbed, examples["uid"])):
            return marked_spans(MarkCause(), plm, examples)
        if "text_pair" in examples.column_names:
            raise UserError(
                "supervised learns from single reviews, IMDB-CAD's. For pairs take another policy, or in Python give "
                "spans of your own (mtlib.policies.supervised.PointAtAnswers.training_spans)."
            )
        pairs, longest = load(CAD_TRAIN, self.source), max(map(len, examples["input_ids"]))
        return marked_spans(MarkEdits(), plm, tokenise(pairs, plm.tokenizer, longest, keep=pairs.column_names))


def marked_spans(marker: MarkTokens, plm: SharedPLM, examples: Dataset) -> list[PointedSpan]:
    """The spans that it marks in some examples."""
    spans = []
    for row in marker(plm, examples).examples:
        numbers = row[marker.column]
        for number in sorted({*numbers} - {0}):
            places = [place for place, other in enumerate(numbers) if other == number]
            spans.append(PointedSpan(row["input_ids"], places[0], places[-1]))
    return spans


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


def edited_spans(text: str, other: str, longest: int = 10) -> Spans:
    """The runs of words of `text` that differ from `other`; those of more than `longest` words are sentences anew."""
    words, theirs = (list(WORD.finditer(each)) for each in (text, other))
    matcher = SequenceMatcher(None, [w[0].lower() for w in words], [w[0].lower() for w in theirs], autojunk=False)
    return [
        (words[first].start(), words[last - 1].end())
        for what, first, last, _, _ in matcher.get_opcodes()
        if what in ("replace", "delete") and last - first <= longest
    ]

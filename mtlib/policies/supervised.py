"""The supervised policy of Ye et al.: a small network learns to point at the span to mask.

It learns from the words that decide a label. On the testbed they are known. On real reviews they
are the words that differ between a review and its counterfactual in the training pairs of IMDB-CAD.
The dev and test pairs are evaluation sets and are never read here.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial

import torch
from datasets import Dataset
from torch import Tensor

from mtlib.contexts import forked_random_state
from mtlib.data.sources import CAD_TRAIN, is_testbed, load
from mtlib.encoding import each_token, tokenise
from mtlib.masking import MaskingPolicy, gumbel, maskable_positions, uniform
from mtlib.plm import SharedPLM, word_embeddings
from mtlib.policies import check_for_pairs
from mtlib.policies.known import CausalSpans
from mtlib.policies.pointer import PointedSpan, SpanPointer, best_spans, fit_span_pointer
from mtlib.preparing import Prepared, Transform, with_column
from mtlib.rows.folding import WORD
from mtlib.spans import Spans, TokenSpans, check_offsets
from mtlib.testbed.known_words import is_of_testbed

LONGEST_EDIT = 10  # words; in a longer run a sentence was written anew


@dataclass(frozen=True)
class SupervisedMasking(MaskingPolicy):
    """Masks the span that a trained `pointer.SpanPointer` points at (Ye et al. 2021).

    Args:
        best_of: 1 masks the likeliest span. A larger number draws one of so many likeliest spans,
            by their probability.
    """

    columns = {"span_start": -torch.inf, "span_end": -torch.inf}

    best_of: int = 1

    def transforms(self) -> tuple[Transform, ...]:
        return (PointAtAnswers(),)

    def __call__(self, batch, maskable, rng=None, plm=None) -> Tensor:
        start = batch["span_start"].masked_fill(~maskable, -torch.inf)  # (batch, seq)
        end = batch["span_end"].masked_fill(~maskable, -torch.inf)  # (batch, seq)
        first, last, scores = best_spans(start, end, self.best_of)  # (batch, best_of)
        possible = scores.isfinite()
        # with Gumbel noise, the largest score is a draw by probability
        noise = gumbel(uniform(possible, rng))  # (batch, best_of)
        chosen = (scores + noise).argmax(dim=1, keepdim=True)  # (batch, 1)
        positions = torch.arange(maskable.shape[1], device=maskable.device)  # (seq,)
        inside = (positions >= first.gather(1, chosen)) & (positions <= last.gather(1, chosen))
        return maskable & inside & possible.gather(1, chosen)  # (batch, seq)


@dataclass(frozen=True)
class PointAtAnswers(Transform):
    """Trains a `SpanPointer` and adds its log-probabilities, `span_start` and `span_end`.

    The pointer uses the model's word embeddings as they are when the stage begins, and computes in
    float32. It learns from the known words of the testbed, or from IMDB-CAD's training pairs, cut
    to the length of the longest training text.
    Reports the number of spans and the mean loss of the last epoch.

    Args:
        source: where the pairs are read from, "hub" or a folder of original releases; "testbed"
            where they are not needed.
    """

    source: str = "hub"

    reads = CausalSpans.reads
    epochs = 3

    def reading_from(self, source: str) -> "PointAtAnswers":
        return PointAtAnswers(source)

    def check(self, plm: SharedPLM) -> None:
        check_offsets(plm.tokenizer, self)
        if not is_testbed(self.source):
            load(CAD_TRAIN, self.source)

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        spans = self.training_spans(plm, examples)
        with torch.autocast(plm.device.type, enabled=False):
            with forked_random_state(plm.device, seed):
                pointer = SpanPointer(word_embeddings(plm.trunk)[0].weight).to(plm.device)
                loss = fit_span_pointer(pointer, spans, plm.tokenizer, self.epochs, seed)
            pointer.eval()
            rows = each_token(plm, examples, partial(log_probabilities, pointer, plm.tokenizer))
        examples = with_column(examples, "span_start", [row[:, 0].tolist() for row in rows])
        examples = with_column(examples, "span_end", [row[:, 1].tolist() for row in rows])
        counts = {"supervised_spans": len(spans), "supervised_loss": round(loss, 4)}
        return Prepared(examples, counts)

    def training_spans(self, plm: SharedPLM, examples: Dataset) -> list[PointedSpan]:
        """What the pointer learns from."""
        columns = examples.column_names
        if "uid" in columns and all(is_of_testbed(uid) for uid in examples["uid"]):
            return marked_spans(CausalSpans(), plm, examples)
        if "text_pair" in columns:
            check_for_pairs("supervised")
        pairs = load(CAD_TRAIN, self.source)
        max_length = max(len(ids) for ids in examples["input_ids"])
        with warnings.catch_warnings(action="ignore"):  # it is meant to cut
            tokenised = tokenise(pairs, plm.tokenizer, max_length, keep=pairs.column_names)
        return marked_spans(EditSpans(), plm, tokenised)


def log_probabilities(pointer: SpanPointer, tokenizer, rows: list[int], batch: dict) -> Tensor:
    """log p_start and log p_end of each token, `(batch, seq, 2)`.

    -inf where no span may begin or end, in a text without a maskable token everywhere.
    """
    logits = torch.stack(pointer(batch, maskable_positions(batch, tokenizer)), dim=-1)
    logarithms = logits.float().log_softmax(dim=1)  # nan where all logits of a text are -inf
    return logarithms.nan_to_num(nan=-torch.inf, neginf=-torch.inf)


def marked_spans(marker: TokenSpans, plm: SharedPLM, examples: Dataset) -> list[PointedSpan]:
    """The spans in the examples, from the first to the last token of each."""
    spans = []
    for row in marker(plm, examples).examples:
        numbers = row[marker.column]
        for number in sorted(set(numbers) - {0}):
            first = numbers.index(number)
            last = len(numbers) - 1 - numbers[::-1].index(number)
            spans.append(PointedSpan(row["input_ids"], first, last))
    return spans


class EditSpans(TokenSpans):
    """Marks the words of a review that its counterfactual does not have.

    The column `group` says which reviews are a pair: "<pair>:original" and "<pair>:edited".
    """

    column = "edits"
    reads = ("text", "group")

    def spans(self, rows: Dataset) -> Iterator[tuple[Spans, Spans]]:
        text_of = dict(zip(rows["group"], rows["text"], strict=True))
        other_half = {"original": "edited", "edited": "original"}
        for group, text in zip(rows["group"], rows["text"], strict=True):
            pair, _, half = group.rpartition(":")
            counterfactual = text_of[f"{pair}:{other_half[half]}"]
            yield edited_spans(text, counterfactual), []


def edited_spans(text: str, other: str) -> Spans:
    """The runs of words in `text` that differ from `other`, with up to `LONGEST_EDIT` words."""
    matches = list(WORD.finditer(text))
    words = [match[0].lower() for match in matches]
    other_words = [match[0].lower() for match in WORD.finditer(other)]
    matcher = SequenceMatcher(None, words, other_words, autojunk=False)
    spans = []
    for operation, first, last, _, _ in matcher.get_opcodes():
        if operation in ("replace", "delete") and last - first <= LONGEST_EDIT:
            spans.append((matches[first].start(), matches[last - 1].end()))
    return spans

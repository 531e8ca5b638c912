"""The supervised policy of Ye et al.: a small network learns to point at a span, and that span is masked."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import torch
from datasets import Dataset
from torch import Tensor

from mtlib.contexts import forked_random_state
from mtlib.errors import UserError
from mtlib.masking import MaskingPolicy, gumbel, uniform
from mtlib.plm import SharedPLM, word_embeddings
from mtlib.policies.pointer import (
    PointedSpan,
    PointerHits,
    SpanPointer,
    best_spans,
    fit_span_pointer,
    pointer_hits,
    span_logits,
)
from mtlib.preparer import Prepared, Preparer, with_column
from mtlib.settings import COUNT


@dataclass(frozen=True)
class SupervisedMasking(MaskingPolicy):
    """The span that a learned pointer points at, `pointer.SpanPointer` (Ye et al. 2021).

    Args:
        best_of: 1 takes the best span; above it, a draw of so many of the best by their probability.

    How many tokens are masked follows from the span.
    """

    columns = {"span_start": -torch.inf, "span_end": -torch.inf}  # noqa: RUF012  (never changed)
    prepared_by = "mtlib.policies.answers:PointAtAnswers"

    best_of: int = 1

    def __post_init__(self):
        COUNT.check("best_of", self.best_of)

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        start, end = (self.column(batch, name).masked_fill(~maskable, -torch.inf) for name in self.columns)
        first, last, scores = best_spans(start, end, self.best_of)  # (batch, best_of)
        possible = scores.isfinite()
        noise = gumbel(uniform(possible, generator))  # (batch, best_of): the largest sum is a draw by probability
        chosen = (scores + noise).argmax(dim=1, keepdim=True)  # (batch, 1)
        places = torch.arange(maskable.shape[1], device=maskable.device)
        inside = (places >= first.gather(1, chosen)) & (places <= last.gather(1, chosen))
        return maskable & inside & possible.gather(1, chosen)  # (batch, seq)


class PointAtSpans(Preparer):
    """Trains a `SpanPointer` and adds what it says of every token: `span_start` and `span_end`, log-probabilities.

    The network reads the word embeddings of the model as it is when the stage begins. A class below it says which spans
    it learns from. Counts those spans, and notes the mean loss of the last epoch. It computes in float32 throughout.
    """

    epochs = 3

    @abstractmethod
    def training_spans(self, plm: SharedPLM, examples: Dataset, seed: int) -> list[PointedSpan]:
        """What the pointer learns from; `marked_spans` makes it from what a `MarkTokens` marks."""

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        spans = self.training_spans(plm, examples, seed)
        with torch.autocast(plm.device.type, enabled=False):
            pointer, losses = self._trained(plm, spans, seed)
            starts, ends = self._logarithms(pointer, examples, plm.tokenizer.all_special_ids)
        examples = with_column(with_column(examples, "span_start", starts), "span_end", ends)
        return Prepared(examples, {"supervised_spans": len(spans), "supervised_loss": round(losses[-1], 4)})

    def hits(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> PointerHits:
        """How well a pointer that learned from nine tenths of the texts does on the last tenth.

        The texts are those of the training spans, in their order, so that pairs of nearly the same text stay together.
        """
        spans = self.training_spans(plm, examples, seed)
        texts = [list(of_text) for _, of_text in groupby(spans, key=lambda span: span.input_ids)]
        seen, unseen = texts[: len(texts) * 9 // 10], texts[len(texts) * 9 // 10 :]
        if not seen:
            raise UserError(f"{len(texts)} texts have a span to learn from; 2 or more are needed to hold one out.")
        ids = [of_text[0].input_ids for of_text in unseen]
        wanted = [[any(span.start <= place <= span.end for span in of_text) for place in range(len(tokens))]
                  for tokens, of_text in zip(ids, unseen, strict=True)]  # fmt: skip
        with torch.autocast(plm.device.type, enabled=False):
            pointer, _ = self._trained(plm, [span for of_text in seen for span in of_text], seed)
            return pointer_hits(pointer, ids, wanted, plm.tokenizer.all_special_ids)

    def _trained(self, plm: SharedPLM, spans: list[PointedSpan], seed: int) -> tuple[SpanPointer, list[float]]:
        """A new pointer that has learned from the spans, and its losses."""
        with forked_random_state(plm.device, seed):
            pointer = SpanPointer(word_embeddings(plm.trunk).weight).to(plm.device)
            losses = fit_span_pointer(pointer, spans, plm.tokenizer.all_special_ids, self.epochs, seed=seed)
        return pointer.eval(), losses

    @torch.no_grad()
    def _logarithms(self, pointer: SpanPointer, examples: Dataset, special_ids) -> tuple[list, list]:
        starts_and_ends, special = ([], []), torch.tensor(sorted(special_ids))
        for first in range(0, len(examples), 64):
            ids = examples[first : first + 64]["input_ids"]
            for kept, logits in zip(starts_and_ends, span_logits(pointer, ids, special), strict=True):
                # a text without a token of its own: no place is possible
                logs = logits.float().log_softmax(dim=-1).nan_to_num(nan=-torch.inf, neginf=-torch.inf).cpu()
                kept += [row[: len(tokens)].tolist() for row, tokens in zip(logs, ids, strict=True)]
        return starts_and_ends


def marked_spans(examples: Dataset, column: str) -> Iterator[PointedSpan]:
    """The spans that a column of their numbers marks (`marking.MarkTokens`)."""
    for ids, numbers in zip(examples["input_ids"], examples[column], strict=True):
        for number in sorted({*numbers} - {0}):
            places = [place for place, other in enumerate(numbers) if other == number]
            yield PointedSpan(list(ids), places[0], places[-1])

"""The supervised policy of Ye et al.: a small network learns to point at a span, and that span is masked."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from mtlib.contexts import forked_random_state
from mtlib.errors import UserError
from mtlib.masking.learned import best_spans, pointer_loss
from mtlib.plm import SharedPLM, word_embeddings
from mtlib.preparer import Prepared, Preparer, with_column


class SpanPointer(nn.Module):
    """Where an answer is likely to stand: two distributions over the tokens of a text, of its start and of its end.

    A two-layer BiLSTM on frozen word embeddings with a linear layer for each of the two.

    Args:
        embeddings: the word embeddings of a trunk, `(vocab, dim)`.
        hidden: of the LSTM, in each direction.
    """

    def __init__(self, embeddings: Tensor, hidden: int = 128):
        super().__init__()
        self.register_buffer("embeddings", embeddings.detach().float().clone(), persistent=False)
        self.lstm = nn.LSTM(embeddings.shape[1], hidden, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * hidden, 2)

    def forward(self, input_ids: Tensor, lengths: Tensor, text: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of start and end, `(batch, seq)` each, -inf outside the text.

        Args:
            input_ids: `(batch, seq)`, padded on the right.
            lengths: `(batch,)`, without the padding, at least 1.
            text: where a span may begin and end, bool `(batch, seq)`.
        """
        packed = pack_padded_sequence(self.embeddings[input_ids], lengths.cpu(), True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], True, total_length=input_ids.shape[1])
        logits = self.head(states).masked_fill(~text.unsqueeze(-1), -torch.inf)  # (batch, seq, 2)
        return logits[..., 0], logits[..., 1]


class PointedSpan(NamedTuple):
    """A training example: tokens, and the first and last of the span that is to be masked."""

    input_ids: list[int]
    start: int
    end: int


def fit_span_pointer(
    pointer: SpanPointer, spans: Sequence[PointedSpan], special_ids: Iterable[int], epochs: int = 3,
    batch_size: int = 32, learning_rate: float = 1e-3, seed: int = 0,
) -> list[float]:  # fmt: skip
    """Train `pointer` in place with Adam on `pointer_loss`; the mean loss of every epoch. Depends on `seed` alone."""
    if not spans:
        raise UserError("there is no span to learn from; expected texts with at least one marked span.")
    special = torch.tensor(sorted(special_ids))
    optimizer = torch.optim.Adam(pointer.parameters(), lr=learning_rate)
    generator, losses = torch.Generator().manual_seed(seed), []
    pointer.train()
    for _ in range(epochs):
        total = 0.0
        for rows in torch.randperm(len(spans), generator=generator).split(batch_size):
            some = [spans[i] for i in rows.tolist()]
            start, end = (torch.tensor([span[i] for span in some], device=pointer.embeddings.device) for i in (1, 2))
            loss = pointer_loss(*_pointed(pointer, [span.input_ids for span in some], special), start, end)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(pointer.parameters(), 1.0)
            optimizer.step()
            total += loss.item() * len(some)
        losses.append(total / len(spans))
    return losses


def _pointed(pointer: SpanPointer, ids: Sequence[list[int]], special: Tensor) -> tuple[Tensor, Tensor]:
    lengths = torch.tensor([len(row) for row in ids])
    input_ids = pad_sequence([torch.tensor(row) for row in ids], batch_first=True)  # (batch, seq)
    text = (torch.arange(input_ids.shape[1]) < lengths[:, None]) & ~torch.isin(input_ids, special)
    device = pointer.embeddings.device
    return pointer(input_ids.to(device), lengths, text.to(device))


class PointerHits(NamedTuple):
    """How well a pointer finds what it has learned to find, in texts that it has not seen."""

    texts: int
    touched: float  # the share of the texts in which the best span covers a token of a training span
    by_chance: float  # the share that a span of the same length would touch, somewhere in the text
    length: float  # tokens of the best span, mean


@torch.no_grad()
def pointer_hits(
    pointer: SpanPointer, ids: Sequence[list[int]], wanted: Sequence[Sequence[bool]], special_ids: Iterable[int]
) -> PointerHits:
    """`PointerHits` on texts: their tokens, and a flag for each token that is to be found."""
    special, touched, by_chance, lengths = torch.tensor(sorted(special_ids)), [], [], []
    for tokens, flags in zip(ids, wanted, strict=True):
        start, end = (logits.float().log_softmax(-1).cpu() for logits in _pointed(pointer, [tokens], special))
        first, last, _ = (found.item() for found in best_spans(start, end))
        length = last - first + 1
        text = [flag for token, flag in zip(tokens, flags, strict=True) if token not in special]
        windows = [any(text[place : place + length]) for place in range(len(text) - length + 1)]
        touched.append(any(flags[first : last + 1]))
        by_chance.append(sum(windows) / len(windows))
        lengths.append(length)
    return PointerHits(len(ids), *(sum(values) / len(ids) for values in (touched, by_chance, lengths)))


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
            for kept, logits in zip(starts_and_ends, _pointed(pointer, ids, special), strict=True):
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

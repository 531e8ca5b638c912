"""A network that points at a span: its two softmaxes, their loss, the spans that they find best, its training."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from mtlib.errors import UserError


def pointer_loss(start_logits: Tensor, end_logits: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """L = -log p_start(i) - log p_end(j), mean over the batch, in nats.

    Args:
        start_logits, end_logits: `(batch, seq)`, -inf where there is no text.
        start, end: the first and the last token of the span, `(batch,)`.

    Returns:
        Scalar.
    """
    return cross_entropy(start_logits.float(), start) + cross_entropy(end_logits.float(), end)


def best_spans(start: Tensor, end: Tensor, k: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """The k likeliest spans by log p_start(i) + log p_end(j), i <= j: first tokens, last tokens, scores, `(batch, k)`.

    Args:
        start, end: log-probabilities `(batch, seq)`, -inf where no span may begin or end. Where both are -inf there is
            no text: a span does not run over it either, so that in a pair it stays in one of the two texts. (An [UNK]
            ends a span as well.)
        k: where there are fewer spans, the rest have the score -inf.
    """
    seq = start.shape[1]
    pairs = start.unsqueeze(2) + end.unsqueeze(1)  # (batch, seq, seq): from i to j
    backward = torch.ones(seq, seq, dtype=torch.bool, device=start.device).tril(-1)
    text = (start.isneginf() & end.isneginf()).cumsum(dim=1)  # (batch, seq): a number for each stretch of text
    apart = text.unsqueeze(2) != text.unsqueeze(1)  # (batch, seq, seq)
    pairs = pairs.masked_fill(backward | apart, -torch.inf).flatten(1)
    pairs = torch.nn.functional.pad(pairs, (0, max(0, k - pairs.shape[1])), value=-torch.inf)
    # equal spans stand in reading order however far a row is padded: `max` gives the first, and sorting is stable
    ordered = pairs.max(dim=1, keepdim=True) if k == 1 else pairs.sort(dim=1, descending=True, stable=True)
    scores, places = (part[:, :k] for part in ordered)  # (batch, k)
    return places // seq, places % seq, scores


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


_BATCH, _RATE = 32, 1e-3


def fit_span_pointer(
    pointer: SpanPointer,
    spans: Sequence[PointedSpan],
    special_ids: Iterable[int],
    epochs: int = 3,
    seed: int = 0,
) -> list[float]:
    """Train `pointer` in place with Adam on `pointer_loss`; the mean loss of every epoch. Depends on `seed` alone."""
    if not spans:
        raise UserError("there is no span to learn from; expected texts with at least one marked span.")
    special = torch.tensor(sorted(special_ids))
    optimizer = torch.optim.Adam(pointer.parameters(), lr=_RATE)
    generator, losses = torch.Generator().manual_seed(seed), []
    pointer.train()
    for _ in range(epochs):
        total = 0.0
        for rows in torch.randperm(len(spans), generator=generator).split(_BATCH):
            some = [spans[i] for i in rows.tolist()]
            start, end = (torch.tensor([span[i] for span in some], device=pointer.embeddings.device) for i in (1, 2))
            loss = pointer_loss(*span_logits(pointer, [span.input_ids for span in some], special), start, end)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(pointer.parameters(), 1.0)
            optimizer.step()
            total += loss.item() * len(some)
        losses.append(total / len(spans))
    return losses


def span_logits(pointer: SpanPointer, ids: Sequence[list[int]], special: Tensor) -> tuple[Tensor, Tensor]:
    """The pointer's logits of start and end for texts given by their tokens, `(batch, seq)` each."""
    lengths = torch.tensor([len(row) for row in ids])
    input_ids = pad_sequence([torch.tensor(row) for row in ids], batch_first=True)  # (batch, seq)
    text = (torch.arange(input_ids.shape[1]) < lengths[:, None]) & ~torch.isin(input_ids, special)
    device = pointer.embeddings.device
    return pointer(input_ids.to(device), lengths, text.to(device))

"""A network that points at a span: its two softmaxes, their loss, the spans that they find best, its training."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from mtlib.encoding import Collator
from mtlib.masking import maskable_positions


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
    pairs = pad(pairs, (0, max(0, k - pairs.shape[1])), value=-torch.inf)
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

    def forward(self, batch: Mapping[str, Tensor], text: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of start and end, `(batch, seq)` each, -inf outside the text.

        Args:
            batch: `input_ids` and `attention_mask`, `(batch, seq)`, padded on the right.
            text: where a span may begin and end, bool `(batch, seq)`.
        """
        input_ids, lengths = batch["input_ids"], batch["attention_mask"].sum(1).cpu()
        packed = pack_padded_sequence(self.embeddings[input_ids], lengths, True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], True, total_length=input_ids.shape[1])
        logits = self.head(states).masked_fill(~text.unsqueeze(-1), -torch.inf)  # (batch, seq, 2)
        return logits[..., 0], logits[..., 1]


class PointedSpan(NamedTuple):
    """A training example: tokens, and the first and last of the span that is to be masked."""

    input_ids: list[int]
    start: int
    end: int


def fit_span_pointer(
    pointer: SpanPointer, spans: Sequence[PointedSpan], tokenizer, epochs: int = 3, seed: int = 0
) -> float:
    """Train `pointer` in place with Adam on `pointer_loss`, by `seed` alone; the mean loss of the last epoch."""
    collate = Collator(tokenizer, {"start": 0, "end": 0})
    optimizer = torch.optim.Adam(pointer.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(seed)
    pointer.train()
    for _ in range(epochs):
        total = 0.0
        for rows in torch.randperm(len(spans), generator=generator).split(32):
            batch = collate([spans[row]._asdict() for row in rows.tolist()])
            batch = {name: tensor.to(pointer.embeddings.device) for name, tensor in batch.items()}
            loss = pointer_loss(*pointer(batch, maskable_positions(batch, tokenizer)), batch["start"], batch["end"])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(pointer.parameters(), 1.0)
            optimizer.step()
            total += loss.item() * len(rows)
    return total / len(spans)

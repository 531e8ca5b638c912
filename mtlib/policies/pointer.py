"""A network that points at a span: the model, its loss, its training, and its likeliest spans."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from mtlib.encoding import Collator
from mtlib.masking import maskable_positions


def pointer_loss(start_logits: Tensor, end_logits: Tensor, start: Tensor, end: Tensor) -> Tensor:
    """L = -log p_start(i) - log p_end(j), mean over the batch, in nats (Ye et al. 2021).

    Args:
        start_logits, end_logits: `(batch, seq)`, -inf where there is no text.
        start, end: the first and the last token of the span, `(batch,)`.

    Returns:
        Scalar.
    """
    return cross_entropy(start_logits.float(), start) + cross_entropy(end_logits.float(), end)


def best_spans(start: Tensor, end: Tensor, k: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """The k likeliest spans (i, j) by log p_start(i) + log p_end(j), where i <= j.

    Args:
        start, end: log-probabilities `(batch, seq)`, -inf where no span may begin or end. Where
            both are -inf there is no text, and a span does not run across: in a pair it stays in
            one of the two texts. (An [UNK] ends a span as well.)
        k: number of spans. If there are fewer, the rest have the score -inf.

    Returns:
        First tokens, last tokens and scores, `(batch, k)` each.
    """
    seq = start.shape[1]
    scores = start.unsqueeze(2) + end.unsqueeze(1)  # (batch, seq, seq): of the span from i to j
    is_backward = torch.ones(seq, seq, dtype=torch.bool, device=start.device).tril(-1)
    no_text = start.isneginf() & end.isneginf()  # (batch, seq)
    stretch = no_text.cumsum(dim=1)  # (batch, seq): a number for each stretch of text
    is_across = stretch.unsqueeze(2) != stretch.unsqueeze(1)  # (batch, seq, seq)
    scores = scores.masked_fill(is_backward | is_across, -torch.inf).flatten(1)
    scores = pad(scores, (0, max(0, k - scores.shape[1])), value=-torch.inf)
    # spans with equal scores keep their reading order, however far a row is padded: `max` returns
    # the first of them, and the sort is stable
    if k == 1:
        best_scores, best = scores.max(dim=1, keepdim=True)  # (batch, 1)
    else:
        ordered_scores, order = scores.sort(dim=1, descending=True, stable=True)
        best_scores = ordered_scores[:, :k]  # (batch, k)
        best = order[:, :k]  # (batch, k)
    return best // seq, best % seq, best_scores


class SpanPointer(nn.Module):
    """Two distributions over the tokens of a text: where an answer starts, and where it ends.

    A two-layer BiLSTM on frozen word embeddings, with a linear layer for each distribution.

    Args:
        embeddings: the word embeddings of a trunk, `(vocab, dim)`.
        hidden: width of the LSTM in each direction.
    """

    def __init__(self, embeddings: Tensor, hidden: int = 128):
        super().__init__()
        frozen = embeddings.detach().float().clone()
        self.register_buffer("embeddings", frozen, persistent=False)
        self.lstm = nn.LSTM(
            embeddings.shape[1],
            hidden,
            num_layers=2,
            bidirectional=True,
            batch_first=True,
        )
        self.head = nn.Linear(2 * hidden, 2)

    def forward(self, batch: Mapping[str, Tensor], text: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of start and end, `(batch, seq)` each, -inf outside the text.

        Args:
            batch: `input_ids` and `attention_mask`, `(batch, seq)`, padded on the right.
            text: where a span may begin and end, bool `(batch, seq)`.
        """
        embedded = self.embeddings[batch["input_ids"]]  # (batch, seq, dim)
        lengths = batch["attention_mask"].sum(1).cpu()  # (batch,)
        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        states, _ = self.lstm(packed)
        # (batch, seq, 2 * hidden)
        states, _ = pad_packed_sequence(states, batch_first=True, total_length=embedded.shape[1])
        logits = self.head(states).masked_fill(~text.unsqueeze(-1), -torch.inf)  # (batch, seq, 2)
        return logits[..., 0], logits[..., 1]


class PointedSpan(NamedTuple):
    """A training example: tokens, and the first and the last token of the span to mask."""

    input_ids: list[int]
    start: int
    end: int


def fit_span_pointer(
    pointer: SpanPointer,
    spans: Sequence[PointedSpan],
    tokenizer,
    epochs: int,
    seed: int,
) -> float:
    """Train `pointer` in place with Adam on `pointer_loss`.

    The order of the spans depends only on `seed`. Returns the mean loss of the last epoch.
    """
    collate = Collator(tokenizer, {"start": 0, "end": 0})
    optimizer = torch.optim.Adam(pointer.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(seed)
    pointer.train()
    for _ in range(epochs):
        total = 0.0
        for rows in torch.randperm(len(spans), generator=generator).split(32):
            batch = collate([spans[row]._asdict() for row in rows.tolist()])
            batch = {name: tensor.to(pointer.embeddings.device) for name, tensor in batch.items()}
            start_logits, end_logits = pointer(batch, maskable_positions(batch, tokenizer))
            loss = pointer_loss(start_logits, end_logits, batch["start"], batch["end"])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(pointer.parameters(), 1.0)
            optimizer.step()
            total += loss.item() * len(rows)
    return total / len(spans)

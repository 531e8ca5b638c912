"""Policies that follow a network which was trained before (`supervised`, `meta_learned`): its spans, its scores."""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from mtlib.masking.policy import CountedMasking, MaskingPolicy, gumbel, uniform
from mtlib.settings import COUNT


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


@dataclass(frozen=True)
class MetaLearnedMasking(CountedMasking):
    """Tokens drawn by learned scores, which were trained so that fine-tuning learns quickly. Our reconstruction.

    The slides of Ye et al. (2021) do not give the objective; see `meta_learned` for ours.
    """

    columns = {"meta_scores": 0.0}  # noqa: RUF012  (never changed)
    prepared_by = "mtlib.masking.meta_learned:LearnToMask"

    temperature: float = field(default=1.0, kw_only=True)

    def scores(self, batch, maskable, plm) -> Tensor:
        return self.column(batch, "meta_scores")


@dataclass(frozen=True)
class SupervisedMasking(MaskingPolicy):
    """The span that a learned pointer points at, `supervised.SpanPointer` (Ye et al. 2021).

    Args:
        best_of: 1 takes the best span; above it, a draw of so many of the best by their probability.

    How many tokens are masked follows from the span.
    """

    columns = {"span_start": -torch.inf, "span_end": -torch.inf}  # noqa: RUF012  (never changed)
    prepared_by = "mtlib.testbed.answers:PointAtAnswers"

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

"""Policies that mask a span of its own length which the text brings along: a named entity."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mtlib.masking.policy import CountedMasking, MaskingPolicy, uniform
from mtlib.settings import ENGLISH_PIPELINE, MASK_RATE, SHARE


@dataclass(frozen=True)
class SalientSpanMasking(MaskingPolicy):
    """One named entity or date of each example (+SSM: Guu et al. 2020, Roberts et al. 2020), all equally likely.

    An example without one is masked at random. The column `salient_spans` numbers the spans of an example in reading
    order from 1 on: for each token the span that it belongs to, or 0.

    Args:
        rate: share of the tokens masked in an example without a span (as in `ExactMasking`); the length of a span is
            its own.
        pipeline: name of the installed spaCy pipeline that finds them.
    """

    rate: float = MASK_RATE
    pipeline: str = ENGLISH_PIPELINE

    columns = {"salient_spans": 0}  # noqa: RUF012  (never changed)
    prepared_by = "mtlib.masking.marking:MarkSalientSpans"

    def __post_init__(self):
        SHARE.check("rate", self.rate)

    def preparer_options(self):
        return {"pipeline": self.pipeline}

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        spans = self.column(batch, "salient_spans").masked_fill(~maskable, 0)  # (batch, seq)
        before = torch.nn.functional.pad(spans.cummax(dim=1).values, (1, 0))[:, :-1]
        begins = spans > before  # (batch, seq): an [UNK] within a span does not begin it anew
        first = uniform(begins, generator).argmin(dim=1, keepdim=True)  # (batch, 1): a place in the chosen span
        chosen = (spans > 0) & (spans == spans.gather(1, first))  # (batch, seq)
        without = maskable & ~(spans > 0).any(dim=1, keepdim=True)
        return chosen | CountedMasking(self.rate).choose(without, None, generator)

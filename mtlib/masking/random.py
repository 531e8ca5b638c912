"""Policies that choose tokens by chance alone."""

from dataclasses import dataclass

from torch import Tensor

from mtlib.masking.policy import CountedMasking, MaskingPolicy, uniform
from mtlib.settings import MASK_RATE, SHARE


class ExactMasking(CountedMasking):
    """The same share of every example, all of its tokens equally likely.

    The default of the project: at 5 % a Bernoulli draw leaves most short examples untouched (the paper's own
    study gives each example one outcome, so each must have had a mask).
    """


class OriginalMasking(ExactMasking):
    """As `ExactMasking`, but the masked LM is trained to predict the whole text (+Orig: BART's own objective).

    An encoder predicts the token at every place, masked or not; an encoder-decoder writes the full text.
    """

    predict_all = True


@dataclass(frozen=True)
class BernoulliMasking(MaskingPolicy):
    """Each maskable token by itself with probability `rate`, as Hugging Face's masked-LM collator does."""

    rate: float = MASK_RATE

    def __post_init__(self):
        SHARE.check("rate", self.rate)

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        return uniform(maskable, generator) < self.rate  # (batch, seq)

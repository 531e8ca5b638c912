"""Policies that choose tokens by chance alone."""

from torch import Tensor

from mtlib.masking.places import check_rate
from mtlib.masking.policy import CountedMasking, MaskingPolicy, uniform


class ExactMasking(CountedMasking):
    """The same share of every example, all of its tokens equally likely.

    The default of the project: at 5 % a Bernoulli draw leaves most short examples untouched (the paper's own
    study gives each example one outcome, so each must have had a mask).
    """

    def __init__(self, rate: float = 0.05, at_least: int = 1):
        super().__init__(rate, at_least)


class OriginalMasking(ExactMasking):
    """As `ExactMasking`, but the masked LM is trained to predict the whole text (+Orig: BART's own objective).

    An encoder predicts the token at every place, masked or not; an encoder-decoder writes the full text.
    """

    targets = "all"


class BernoulliMasking(MaskingPolicy):
    """Each maskable token by itself with probability `rate`, as Hugging Face's masked-LM collator does."""

    def __init__(self, rate: float = 0.05):
        check_rate("rate", rate)
        self.rate = rate

    def __repr__(self) -> str:
        return f"BernoulliMasking(rate={self.rate!r})"

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        return uniform(maskable, generator) < self.rate  # (batch, seq)

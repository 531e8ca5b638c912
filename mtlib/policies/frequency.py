"""A policy that masks the tokens that are rarest, or most frequent, in the training set."""

from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from datasets import Dataset
from torch import Tensor

from mtlib.masking import CountedMasking
from mtlib.plm import SharedPLM
from mtlib.preparing import Prepared, Transform, with_column


class CountTokens(Transform):
    """Adds `token_counts`: how often each token occurs in the training set."""

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        counts = Counter(chain.from_iterable(examples["input_ids"]))
        rows = [[counts[token] for token in ids] for ids in examples["input_ids"]]
        return Prepared(with_column(examples, "token_counts", rows))


@dataclass(frozen=True)
class FrequencyMasking(CountedMasking):
    """The tokens that are rarest, or most frequent, in the training set (`prefer`)."""

    columns = {"token_counts": 0}

    prefer: Literal["rare", "frequent"] = "rare"

    def transforms(self) -> tuple[Transform, ...]:
        return (CountTokens(),)

    def scores(self, batch, maskable, plm) -> Tensor:
        """The logarithm of the count; its negative for "rare".

        In float32, so that counts above 16 million tie.
        """
        logarithms = batch["token_counts"].clamp(min=1).float().log()  # (batch, seq)
        return {"rare": -1, "frequent": 1}[self.prefer] * logarithms

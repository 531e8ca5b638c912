"""What is made from a policy's masks before training: a column of them, and blocked words."""

from collections import Counter
from dataclasses import dataclass
from itertools import chain, compress

import torch
from datasets import Dataset
from torch import Tensor

from mtlib.encoding import each_token
from mtlib.masking import MaskingPolicy, draw_mask
from mtlib.plm import SharedPLM
from mtlib.preparing import Prepared, Transform, with_column
from mtlib.rng import KeyedRNG, example_keys


@dataclass(frozen=True)
class DrawMasks(Transform):
    """Adds `mask`: for each token whether a policy masks it, drawn once.

    Args:
        masking: the policy.
        stream: of random numbers. "masks" gives the masks of a training's first epoch.
    """

    masking: MaskingPolicy
    stream: str = "masks"

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        def drawn(rows: list[int], batch: dict) -> Tensor:
            keys = example_keys(seed, epoch=0, examples=torch.tensor(rows, device=plm.device))
            rng = KeyedRNG(keys, stream=self.stream)
            return draw_mask(batch, self.masking, plm.tokenizer, rng, plm)["mask"]  # (batch, seq)

        masks = [mask.tolist() for mask in each_token(plm, examples, drawn, self.masking.columns)]
        n_masked = sum(sum(mask) for mask in masks)
        return Prepared(with_column(examples, "mask", masks), {"masked": n_masked})


@dataclass(frozen=True)
class BlockMasked(Transform):
    """Keeps the model from filling in the tokens that a policy masks at least half of the time.

    For given words: the model may have learned which of them goes with a label, and put it back.
    """

    masking: MaskingPolicy
    tells_model = True

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        drawn, _ = DrawMasks(self.masking)(plm, examples, seed)
        occurrences = Counter(chain.from_iterable(examples["input_ids"]))
        masked = Counter()
        for row in drawn.select_columns(["input_ids", "mask"]):
            masked.update(compress(row["input_ids"], row["mask"]))
        blocked = [token for token, n in masked.items() if 2 * n >= occurrences[token]]
        plm.block(blocked)
        return Prepared(examples, {"barred": len(blocked)})  # as records call it

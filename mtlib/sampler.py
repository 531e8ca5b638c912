"""The order of the training examples: batches of like lengths."""

import torch
from transformers.trainer_pt_utils import LengthGroupedSampler


class LengthGroups(LengthGroupedSampler):
    """Batches of like lengths, in an order that depends on `(seed, trainer.epoch)` alone.

    The stock sampler draws from the global generator, whose state a resumed run does not have at an epoch's start.
    """

    def __init__(self, batch_size: int, lengths: list[int], seed: int, trainer):
        super().__init__(batch_size, lengths=lengths, generator=torch.Generator())
        self.seed = seed
        self.trainer = trainer

    def __iter__(self):
        self.generator.manual_seed(self.seed * 1_000_003 + self.trainer.epoch)
        return super().__iter__()

"""Masks that are drawn once for each example and kept over all epochs."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from mtlib.masking.policy import MaskingPolicy
from mtlib.settings import Targets


@dataclass(frozen=True)
class FixedMasking(MaskingPolicy):
    """Another policy's masks, drawn once before training: the examples bring them along as the column `mask`.

    Args:
        policy: which tokens.
    """

    policy: MaskingPolicy

    @property
    def targets(self) -> Targets:
        return self.policy.targets

    @property
    def columns(self) -> Mapping[str, int | float]:
        return {**self.policy.columns, "mask": 0}

    def preparers(self) -> tuple:
        from mtlib.stages import DrawMasks  # it imports the policies

        return (*self.policy.preparers(), DrawMasks(self.policy))

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        return self.column(batch, "mask").bool()  # (batch, seq)

"""What an extension of the core is made of: a policy, an objective, a transform, and a method."""

import torch
from datasets import Dataset
from pydantic import Field
from torch import nn
from torch.nn.functional import cross_entropy

from mtlib.masking import CountedMasking
from mtlib.method import Method, Stage
from mtlib.objectives import FineTuning, MaskTuning, Objective, ObjectiveOutput
from mtlib.preparing import Prepared, Transform
from mtlib.settings import Settings


class LongestFirst(CountedMasking):
    """Masks the tokens with the highest ids."""

    def scores(self, batch, maskable, plm):
        return batch["input_ids"].float()


class WeightedFineTuning(Objective):
    """Cross-entropy, each example weighted by a column, and a gate that scales the logits."""

    name = "weighted"

    def __init__(self, learning_rate: float | None = None):
        super().__init__()
        self.gate = nn.Parameter(torch.ones(()))
        self.learning_rate = learning_rate

    @property
    def columns(self):
        return {"weight": 0.0}

    def forward(self, plm, batch):
        logits = self.gate * plm.classify(batch)
        losses = cross_entropy(logits.float(), batch["labels"], reduction="none")  # (batch,)
        parts = {"ft_loss": (batch["weight"] * losses).mean(), "gate": self.gate.detach()}
        return ObjectiveOutput(parts, {"ft_loss": 1.0}, logits)


def weighted(data: Dataset) -> Dataset:
    """Every second example counts double."""
    return data.add_column("weight", [1.0 + i % 2 for i in range(len(data))])


class Weigh(Transform):
    """The same, before a stage."""

    def __call__(self, plm, examples, seed=0):
        return Prepared(weighted(examples), {"doubled": len(examples) // 2})


class WeighedSettings(Settings):
    mask_rate: float = Field(0.3, description="share of the tokens that is masked")
    warm: bool = Field(False, description="start the second stage from the pretrained model")


def weighed_stages(settings, rates, tokenizer):
    masking = LongestFirst(settings.mask_rate)
    start = "pretrained" if settings.warm else "previous"
    return (
        Stage(FineTuning(), rates, name="teacher"),
        Stage(
            MaskTuning(0.5, masking, classification=WeightedFineTuning()), rates, (Weigh(),), start
        ),
    )


WEIGHED = Method("weighed", "weighed", "tests.weighed:weighed_stages", WeighedSettings)

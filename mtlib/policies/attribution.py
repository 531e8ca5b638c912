"""A policy that masks what the classifier in training leans on most, or least."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mtlib.contexts import evaluating
from mtlib.masking import CountedMasking
from mtlib.plm import word_embeddings

Attribution = Literal["most", "least"]


@dataclass(frozen=True)
class AttributionMasking(CountedMasking):
    """The tokens that the classifier in training leans on most, or least (`prefer`).

    By gradient x input: |sum_d e_id * d log p(y | x) / d e_id|, where e_i is the word embedding of token i and y the
    label that the classifier predicts. Gold labels are not read, so that unlabelled text will do.
    """

    asks_classifier = True

    prefer: Attribution = "most"

    def scores(self, batch, maskable, plm) -> Tensor:
        return {"most": 1, "least": -1}[self.prefer] * attribution(plm, batch)  # (batch, seq)


def attribution(plm, batch: Mapping[str, Tensor]) -> Tensor:
    """|gradient x input| of the predicted label's log-probability for each token, `(batch, seq)`; without dropout.

    An encoder-decoder reads a token twice, and the two products are added.
    """
    embedded = []

    def keep(module, args, output):
        embedded.append(output if output.requires_grad else output.requires_grad_())
        return embedded[-1]

    with ExitStack() as hooks, evaluating(plm), torch.enable_grad():
        for module in word_embeddings(plm.trunk):
            hooks.enter_context(module.register_forward_hook(keep))
        predicted = plm.classify(batch).float().log_softmax(dim=-1).max(dim=-1).values  # (batch,)
        gradients = torch.autograd.grad(predicted.sum(), embedded)  # (batch, seq, hidden) each
    products = [
        (gradient * read.detach()).float().sum(dim=-1) for gradient, read in zip(gradients, embedded, strict=True)
    ]
    for shifted in products[1:]:  # the decoder reads each token a place later than it stands
        products[0][:, :-1] += shifted[:, 1:]
    return products[0].abs()  # (batch, seq)

"""A policy that masks the tokens with the highest, or lowest, attribution."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mtlib.contexts import evaluating
from mtlib.masking import CountedMasking
from mtlib.plm import word_embeddings


@dataclass(frozen=True)
class AttributionMasking(CountedMasking):
    """The tokens with the highest, or lowest (`prefer`), attribution under the current classifier.

    The attribution is gradient x input: |sum_d e_id * d log p(y | x) / d e_id|, where e_i is the
    word embedding of token i and y the label that the classifier predicts. Gold labels are not
    used, so that unlabelled text will do.
    """

    asks_classifier = True

    prefer: Literal["most", "least"] = "most"

    def scores(self, batch, maskable, plm) -> Tensor:
        sign = {"most": 1, "least": -1}[self.prefer]
        return sign * attribution(plm, batch)  # (batch, seq)


def attribution(plm, batch: Mapping[str, Tensor]) -> Tensor:
    """|gradient x input| of the predicted label's log-probability for each token, `(batch, seq)`.

    Computed without dropout. An encoder-decoder embeds each token twice; the two products are
    added.
    """
    embedded = []

    def keep(module, args, output):
        embedded.append(output if output.requires_grad else output.requires_grad_())
        return embedded[-1]

    with ExitStack() as hooks, evaluating(plm), torch.enable_grad():
        for module in word_embeddings(plm.trunk):
            hooks.enter_context(module.register_forward_hook(keep))
        log_probabilities = plm.classify(batch).float().log_softmax(dim=-1)  # (batch, labels)
        predicted = log_probabilities.max(dim=-1).values  # (batch,)
        gradients = torch.autograd.grad(predicted.sum(), embedded)  # (batch, seq, hidden) each
    products = []
    for gradient, inputs in zip(gradients, embedded, strict=True):
        products.append((gradient * inputs.detach()).float().sum(dim=-1))  # (batch, seq)
    total = products[0]
    for of_decoder in products[1:]:  # which reads each token one position to the right
        total[:, :-1] += of_decoder[:, 1:]
    return total.abs()  # (batch, seq)

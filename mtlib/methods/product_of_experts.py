"""Product of experts: the model learns what a bias-only network, trained along with it, cannot explain."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated

import torch
from datasets import Dataset
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mtlib.errors import UserError
from mtlib.method import LearningRates, Method, Stage
from mtlib.methods.bias_models import ENTAILMENT, BiasSettings, add_bias
from mtlib.objectives import Objective, ObjectiveOutput, fine_tuning_loss, require_built
from mtlib.plm import SharedPLM
from mtlib.settings import Above0, From0


def product_of_experts_loss(
    logits: Tensor,
    bias_logits: Tensor,
    labels: Tensor,
    bias_weight: float = 1.0,
    class_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """L = CE(log p + log b, y) + bias_weight * CE_w(b, y), Karimi Mahabadi et al. 2020.

    p is the model's distribution, b the bias network's. A class that b already gives a high probability leaves p
    little to learn. Gradients reach both arguments in both terms, as in the released code.

    Args:
        logits: of the model, `(batch, classes)`.
        bias_logits: of the bias network, `(batch, classes)`.
        labels: gold labels, `(batch,)`.
        bias_weight: of the bias network's own loss.
        class_weights: `(classes,)`; that loss is then the mean weighted by the gold label's weight.

    Returns:
        The loss (scalar, nats, float32) and its parts `ft_loss` (of the product) and `bias_loss` (unweighted).
    """
    product = logits.float().log_softmax(-1) + bias_logits.float().log_softmax(-1)  # (batch, classes)
    parts = {
        "ft_loss": fine_tuning_loss(product, labels),
        "bias_loss": cross_entropy(bias_logits.float(), labels, class_weights),
    }
    return parts["ft_loss"] + bias_weight * parts["bias_loss"], parts


def debiased_focal_loss(
    logits: Tensor,
    bias_logits: Tensor,
    labels: Tensor,
    focus: float = 2.0,
    bias_weight: float = 1.0,
    class_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """L = mean of (1 - b_y)^focus * CE(p, y), + bias_weight * CE_w(b, y): the sibling of the product, DFL.

    Arguments and result as for `product_of_experts_loss`; at `focus` 0 the first term is plain cross-entropy.
    """
    bias = bias_logits.float().softmax(-1).gather(1, labels[:, None]).squeeze(1)  # (batch,)
    losses = cross_entropy(logits.float(), labels, reduction="none")  # (batch,)
    parts = {
        # the floor keeps the gradient finite where the bias network is certain and focus lies between 0 and 1
        "ft_loss": ((1 - bias).clamp(min=1e-6) ** focus * losses).mean(),
        "bias_loss": cross_entropy(bias_logits.float(), labels, class_weights),
    }
    return parts["ft_loss"] + bias_weight * parts["bias_loss"], parts


class ProductOfExperts(Objective):
    """The product of the model and a bias network; at test the model stands alone.

    The network, three layers with tanh between them, reads `bias_features`, `(batch, n)`, numbers that a preparer put
    beside each example. So nothing of its loss reaches the trunk. On pairs they are by default Clark's seven features
    of overlap; those of the paper are `TokenOverlap`. Where a bias model reads words, the features are
    its log-probabilities.

    Args:
        bias_weight: of the network's own loss.
        halve_others: class weights of that loss, 1 for entailment and 1/2 for the other two labels of NLI, whom the
            overlap features cannot tell apart. No effect on two labels.
        focus: None for the product; a number for the debiased focal loss instead (2 in the paper).
        learning_rate: of the network; default the classifier's, as published. At the 1e-4 of a short fine-tuning a
            network of a dozen parameters learns nothing in 2,000 steps, and the product is then plain fine-tuning.
    """

    name = "product_of_experts"
    prepared_by = "mtlib.methods.bias.AddBias"

    def __init__(
        self,
        bias_weight: float = 1.0,
        halve_others: bool = False,
        focus: float | None = None,
        learning_rate: float | None = None,
    ):
        super().__init__()
        self.learning_rate = learning_rate
        self.bias_weight, self.focus = bias_weight, focus
        self.halve_others = halve_others
        self.bias_network: nn.Module | None = None

    @property
    def columns(self) -> Mapping[str, float]:
        return {"bias_features": 0.0}

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        if not examples:
            raise UserError("the bias network is made for the features of a training set; give one.")
        n = len(examples[0]["bias_features"])
        self.bias_network = nn.Sequential(
            nn.Linear(n, n), nn.Tanh(), nn.Linear(n, n), nn.Tanh(), nn.Linear(n, plm.config.num_labels)
        )

    def sizes(self, batch: dict) -> dict[str, Tensor | int]:
        return {"bias_loss": self.class_weights().to(batch["labels"].device)[batch["labels"]].sum()}

    def class_weights(self) -> Tensor:
        """Of the bias network's loss, in the order of the labels: `(classes,)`."""
        weights = torch.ones(self.bias_network[-1].out_features)
        if self.halve_others and len(weights) == 3:
            weights[1:] = 0.5  # GLUE's order: entailment, neutral, contradiction
        return weights

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        require_built(self, self.bias_network)
        logits = plm.classify(batch)  # (batch, classes)
        bias_logits = self.bias_network(batch["bias_features"].to(self.bias_network[0].weight.dtype))
        function = product_of_experts_loss if self.focus is None else partial(debiased_focal_loss, focus=self.focus)
        _, parts = function(
            logits, bias_logits, batch["labels"], bias_weight=self.bias_weight,
            class_weights=self.class_weights().to(logits.device),
        )  # fmt: skip
        return ObjectiveOutput(parts, {"ft_loss": 1.0, "bias_loss": self.bias_weight}, logits)


class ProductOfExpertsSettings(BiasSettings):
    bias_learning_rate: Annotated[
        Above0 | None, Field(description="of the bias network (default: the classifier's)")
    ] = None
    focus: Annotated[
        From0 | None, Field(description="exponent of the debiased focal loss, which replaces the product")
    ] = None


def _stages(settings: ProductOfExpertsSettings, rates: LearningRates, tokenizer) -> tuple[Stage, ...]:
    objective = ProductOfExperts(
        halve_others=settings.bias in ENTAILMENT, focus=settings.focus, learning_rate=settings.bias_learning_rate
    )
    return (Stage(objective, rates, (add_bias(settings),)),)


PRODUCT_OF_EXPERTS = Method(
    "product_of_experts", "product of experts", "an ensemble with a bias network trained along",
    _stages, ProductOfExpertsSettings, paper="PoE", colour="#005f73", marker="*",
)  # fmt: skip

"""Product of experts: the model learns what a bias network, trained along, cannot explain."""

import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from mtlib.method import LearningRates, Stage
from mtlib.methods.bias import unexplained
from mtlib.methods.settings import ProductOfExpertsSettings
from mtlib.objectives import Objective, ObjectiveOutput, fine_tuning_loss, require_built
from mtlib.plm import SharedPLM
from mtlib.settings import From0, check


def product_loss(logits: Tensor, bias_logits: Tensor, labels: Tensor) -> Tensor:
    """CE(log p + log b, y), batch mean in nats, float32.

    p is the model's distribution, b the bias's. If b already gives a class a high probability, p
    has little to learn (Clark et al. 2019, Karimi Mahabadi et al. 2020). Logits equal log p and
    log b up to a constant, which does not change the cross-entropy.

        logits = torch.zeros(1, 2)
        bias_logits = torch.tensor([[0.9, 0.1]]).log()
        product_loss(logits, bias_logits, torch.tensor([0]))  # -log 0.9

    Args:
        logits: of the model, `(batch, classes)`.
        bias_logits: of the bias, `(batch, classes)`, its log-probabilities for example.
        labels: gold labels, `(batch,)`.
    """
    return fine_tuning_loss(logits.float() + bias_logits.float(), labels)


def debiased_focal_loss(
    logits: Tensor,
    bias_logits: Tensor,
    labels: Tensor,
    focus: float = 2.0,
) -> Tensor:
    """DFL, the mean of (1 - b_y)^focus * CE(p, y), in nats, float32.

    At `focus` 0 this is plain cross-entropy (Karimi Mahabadi et al. 2020). The other arguments are
    those of `product_loss`.

        logits = torch.zeros(1, 2)
        bias_logits = torch.tensor([[0.5, 0.5]]).log()
        debiased_focal_loss(logits, bias_logits, torch.tensor([0]))  # 0.5^2 * log 2
    """
    losses = cross_entropy(logits.float(), labels, reduction="none")  # (batch,)
    weights = unexplained(bias_logits.float().log_softmax(-1), labels)  # (batch,)
    # keeps the gradient finite if the bias network is certain and focus is between 0 and 1
    weights = weights.clamp(min=1e-6)
    return (weights**focus * losses).mean()


class ProductOfExperts(Objective):
    """L = CE(log p + log b, y) + CE_w(b, y), of the model p and a bias network b.

    At test time the model stands alone. The network, three layers with tanh between them, reads
    `bias_features`, `(batch, n)`, numbers that a transform put beside each example. So nothing of
    its own loss reaches the trunk; the product's gradient reaches both, as in the released code. On
    pairs the features are by default Clark's seven of overlap; those of the paper are
    `token_overlap`. If a bias model reads words, the features are its log-probabilities.

    Args:
        halve_others: class weights w of the network's own loss: 1 for entailment and 1/2 for the
            other two labels of NLI, which the overlap features cannot distinguish. No effect on
            two labels.
        focus: None for the product; a number for the debiased focal loss instead (2 in the paper).
        learning_rate: of the network; by default the classifier's, as published. At the 1e-4 of a
            short fine-tuning, a network of a dozen parameters learns nothing in 2,000 steps, and
            the product is then plain fine-tuning.
    """

    name = "product_of_experts"
    columns = {"bias_features": 0.0}

    def __init__(
        self,
        halve_others: bool = False,
        focus: float | None = None,
        learning_rate: float | None = None,
    ):
        super().__init__()
        self.halve_others = halve_others
        check("focus", focus, From0 | None)
        self.focus = focus
        self.learning_rate = learning_rate
        self.bias_network: nn.Module | None = None

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        n = len(examples[0]["bias_features"])
        n_labels = plm.config.num_labels
        self.bias_network = nn.Sequential(
            nn.Linear(n, n),
            nn.Tanh(),
            nn.Linear(n, n),
            nn.Tanh(),
            nn.Linear(n, n_labels),
        )
        weights = torch.ones(n_labels)
        if self.halve_others and n_labels == 3:  # entailment, neutral, contradiction
            weights[1:] = 0.5
        self.register_buffer("class_weights", weights, persistent=False)  # (classes,)

    def denominators(self, batch: dict) -> dict[str, Tensor | int]:
        return {"bias_loss": self.class_weights[batch["labels"]].sum()}

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        require_built(self, self.bias_network)
        labels = batch["labels"]  # (batch,)
        logits = plm.classify(batch)  # (batch, classes)
        features = batch["bias_features"].to(self.bias_network[0].weight.dtype)  # (batch, n)
        bias_logits = self.bias_network(features)  # (batch, classes)
        if self.focus is None:
            loss = product_loss(logits, bias_logits, labels)
        else:
            loss = debiased_focal_loss(logits, bias_logits, labels, self.focus)
        bias_loss = cross_entropy(bias_logits.float(), labels, self.class_weights)
        components = {"ft_loss": loss, "bias_loss": bias_loss}
        return ObjectiveOutput(components, {"ft_loss": 1.0, "bias_loss": 1.0}, logits)


def product_of_experts(
    settings: ProductOfExpertsSettings,
    rates: LearningRates,
    tokenizer,
) -> tuple[Stage, ...]:
    """One training; a bias model on entailment's features tells two labels apart, not three."""
    bias = settings.add_bias()
    experts = ProductOfExperts(
        halve_others=bias.model.entailment,
        focus=settings.focus,
        learning_rate=settings.bias_learning_rate,
    )
    return (Stage(experts, rates, (bias,)),)

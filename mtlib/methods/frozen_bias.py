"""Learned-Mixin+H, Bias Product and Reweight: a frozen bias model (Clark et al. 2019)."""

from collections.abc import Callable

from datasets import Dataset
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from mtlib.method import LearningRates, Recipe, Stage
from mtlib.methods.bias import ReadsBias, unexplained
from mtlib.methods.product_of_experts import product_loss
from mtlib.methods.settings import BiasSettings
from mtlib.methods.states import classify_with_states
from mtlib.objectives import Objective, ObjectiveOutput, require_built
from mtlib.plm import SharedPLM
from mtlib.settings import From0, check


class BiasProduct(ReadsBias):
    """L = CE(log p + log b, y), an ensemble without a gate; at test the model stands alone."""

    name = "bias_product"
    loss = staticmethod(product_loss)


def learned_mixin_losses(
    logits: Tensor,
    bias_log_probabilities: Tensor,
    labels: Tensor,
    gate: Tensor,
) -> dict[str, Tensor]:
    """The two terms of L = CE(log p + g log b, y) + w H(softmax(g log b)), as batch means.

    The entropy rewards a peaked scaled bias, so that the gate cannot go to 0 and switch the
    ensemble off. At g = 1 the first term is that of `BiasProduct` (Clark et al. 2019).

        bias = torch.tensor([[0.5, 0.5]]).log()
        losses = learned_mixin_losses(torch.zeros(1, 2), bias, torch.tensor([0]), torch.ones(1))
        losses["ft_loss"], losses["entropy"]  # log 2, log 2

    Args:
        logits, bias_log_probabilities: `(batch, classes)`.
        labels: gold labels, `(batch,)`.
        gate: g, 0 or more, `(batch,)`.

    Returns:
        `ft_loss` (of the ensemble) and `entropy` (unweighted): scalars, nats, float32.
    """
    scaled = gate.float()[:, None] * bias_log_probabilities  # (batch, classes)
    log_scaled = scaled.log_softmax(-1)
    return {
        "ft_loss": product_loss(logits, scaled, labels),
        "entropy": -(log_scaled.exp() * log_scaled).sum(-1).mean(),
    }


class LearnedMixin(ReadsBias):
    """Learned-Mixin+H: the gate g = softplus(w·h + c) of the state h that the classifier reads.

    It is trained along with the model. The log has the mean `gate`.

    Args:
        entropy_weight: w, 0.03 for MNLI; Utama et al. reran QQP with 0.01.
    """

    name = "learned_mixin"

    def __init__(self, entropy_weight: float = 0.03):
        super().__init__()
        check("entropy_weight", entropy_weight, From0)
        self.entropy_weight = entropy_weight
        self.gate: nn.Linear | None = None

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        self.gate = nn.Linear(plm.config.hidden_size, 1)

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        require_built(self, self.gate)
        states = classify_with_states(plm, batch)
        gate = softplus(self.gate(states.text).float()).squeeze(1)  # (batch,)
        bias = batch["bias_log_probabilities"]  # (batch, classes)
        components = learned_mixin_losses(states.logits, bias, batch["labels"], gate)
        components["gate"] = gate.detach().mean()
        weights = {"ft_loss": 1.0, "entropy": self.entropy_weight}
        return ObjectiveOutput(components, weights, states.logits)


def reweight_loss(logits: Tensor, bias_log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """L = sum of (1 - b_y) CE(p, y) / sum of (1 - b_y), in nats, float32.

    The better the bias explains an example, the less it counts (Clark et al. 2019). Arguments as
    for `learned_mixin_losses`.

        bias = torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()
        labels = torch.tensor([0, 0])
        reweight_loss(torch.zeros(2, 2), bias, labels)  # log 2, with weights 0.5 and 0.1
    """
    weights = unexplained(bias_log_probabilities, labels)  # (batch,)
    losses = cross_entropy(logits.float(), labels, reduction="none")  # (batch,)
    return (weights * losses).sum() / weights.sum()


class Reweight(ReadsBias):
    """Cross-entropy in which an example weighs 1 - b_y, see `reweight_loss`."""

    name = "reweight"
    loss = staticmethod(reweight_loss)

    def denominators(self, batch: dict) -> dict[str, Tensor | int]:
        return {"ft_loss": unexplained(batch["bias_log_probabilities"], batch["labels"]).sum()}


def _with_bias(objective: Callable[[], Objective]) -> Recipe:
    """The recipe of a method that trains once, on this objective and the bias model's columns."""

    def recipe(settings: BiasSettings, rates: LearningRates, tokenizer) -> tuple[Stage, ...]:
        return (Stage(objective(), rates, (settings.add_bias(),)),)

    return recipe


learned_mixin = _with_bias(LearnedMixin)
bias_product = _with_bias(BiasProduct)
reweight = _with_bias(Reweight)

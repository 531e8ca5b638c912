"""Methods with a frozen bias model (Clark et al. 2019): Learned-Mixin+H, Bias Product and Reweight."""

import math
from collections.abc import Callable
from contextlib import ExitStack

import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

from mtlib.method import Method, Stage
from mtlib.methods.bias import SMALLEST, ReadsBias
from mtlib.methods.bias_models import BiasSettings, add_bias
from mtlib.objectives import Objective, ObjectiveOutput, fine_tuning_loss, require_built
from mtlib.plm import SharedPLM


def bias_product_loss(logits: Tensor, bias_log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """L = CE(log p + log b, y), batch mean in nats, float32: an ensemble without a gate (Clark et al. 2019).

    Args:
        logits: of the model, `(batch, classes)`.
        bias_log_probabilities: log b, `(batch, classes)`, below log 1e-6 taken for that; no gradient reaches it.
        labels: gold labels, `(batch,)`.
    """
    return fine_tuning_loss(logits.float().log_softmax(-1) + _finite(bias_log_probabilities), labels)


class BiasProduct(ReadsBias):
    """Cross-entropy of the product with the bias; at test the model stands alone."""

    name = "bias_product"

    def loss(self, logits: Tensor, batch: dict) -> Tensor:
        return bias_product_loss(logits, batch["bias_log_probabilities"], batch["labels"])


def learned_mixin_losses(
    logits: Tensor, bias_log_probabilities: Tensor, labels: Tensor, gate: Tensor
) -> dict[str, Tensor]:
    """The two terms of L = CE(log p + g log b, y) + w H(softmax(g log b)), batch means (Clark et al. 2019).

    The entropy is added: it rewards a peaked scaled bias, so that the gate cannot go to 0 and switch the ensemble off.
    At g = 1 the first term is `bias_product_loss`.

    Args:
        logits, bias_log_probabilities, labels: as there.
        gate: g, 0 or more, `(batch,)`.

    Returns:
        `ft_loss` (of the ensemble) and `entropy` (unweighted): scalars, nats, float32.
    """
    scaled = gate.float()[:, None] * _finite(bias_log_probabilities)  # (batch, classes)
    log_scaled = scaled.log_softmax(-1)
    return {
        "ft_loss": fine_tuning_loss(logits.float().log_softmax(-1) + scaled, labels),
        "entropy": -(log_scaled.exp() * log_scaled).sum(-1).mean(),
    }


class LearnedMixin(ReadsBias):
    """Learned-Mixin+H: g = softplus(w·h + c) of the state h that the classifier reads, trained along.

    Logs the mean `gate`; the share of examples whose label the bias model gets wrong, `misled`; and `gate_misled`, the
    mean of gate * (1 if misled else 0), so that `gate_misled / misled` is the mean gate of these examples.

    Args:
        entropy_weight: w, 0.03 for MNLI; Utama et al. reran QQP with 0.01.
    """

    name = "learned_mixin"

    def __init__(self, entropy_weight: float = 0.03):
        super().__init__()
        self.entropy_weight = entropy_weight
        self.gate: nn.Linear | None = None

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        super().build(plm, examples)
        self.gate = nn.Linear(plm.config.hidden_size, 1)

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        require_built(self, self.gate)
        logits, state = classify_with_state(plm, batch)  # (batch, classes), (batch, hidden)
        gate = softplus(self.gate(state).float()).squeeze(1)  # (batch,)
        bias, labels = batch["bias_log_probabilities"], batch["labels"]
        misled = (bias.argmax(-1) != labels).float()  # (batch,)
        gates = {"gate": gate.detach(), "misled": misled, "gate_misled": gate.detach() * misled}
        parts = learned_mixin_losses(logits, bias, labels, gate) | {name: each.mean() for name, each in gates.items()}
        return ObjectiveOutput(parts, {"ft_loss": 1.0, "entropy": self.entropy_weight}, logits)


def classify_with_state(plm: SharedPLM, batch: dict) -> tuple[Tensor, Tensor]:
    """Class logits `(batch, num_labels)`, and the state of each text before dropout `(batch, hidden)`, in one pass."""
    read = []  # by the parts of the classifier that stand above the trunk, in their order
    with ExitStack() as hooks:
        for part in plm.classifier.children():
            if part is not plm.trunk:
                hooks.enter_context(part.register_forward_pre_hook(lambda module, args: read.append(args[0])))
        logits = plm.classify(batch)
    state = read[0]  # (batch, hidden), or (batch, seq, hidden) where the head takes the first token itself
    return logits, state[:, 0] if state.ndim == 3 else state


def reweight_loss(logits: Tensor, bias_log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """L = sum of (1 - b_y) CE(p, y) / sum of (1 - b_y): examples count the less, the better the bias explains them.

    Arguments as for `bias_product_loss`; in nats, float32; 0 where all weights are 0.
    """
    weights = _reweighting(bias_log_probabilities, labels)  # (batch,)
    losses = cross_entropy(logits.float(), labels, reduction="none")  # (batch,)
    return (weights * losses).sum() / weights.sum().clamp(min=torch.finfo(torch.float32).tiny)


class Reweight(ReadsBias):
    """Cross-entropy in which an example weighs 1 - b_y."""

    name = "reweight"

    def sizes(self, batch: dict) -> dict[str, Tensor | int]:
        return {"ft_loss": _reweighting(batch["bias_log_probabilities"], batch["labels"]).sum()}

    def loss(self, logits: Tensor, batch: dict) -> Tensor:
        return reweight_loss(logits, batch["bias_log_probabilities"], batch["labels"])


def _finite(bias_log_probabilities: Tensor) -> Tensor:
    """Without a gradient, and with probabilities below `SMALLEST` taken for that: log 0 would give NaN."""
    return bias_log_probabilities.detach().float().clamp(min=math.log(SMALLEST))


def _reweighting(bias_log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """1 - b_y, `(batch,)`."""
    bias = bias_log_probabilities.detach().float().exp()  # (batch, classes)
    return (1 - bias.gather(1, labels[:, None]).squeeze(1)).clamp(min=0)


def _stages(make: Callable[[], Objective]):
    """The stages of a method that trains on one of these objectives."""
    return lambda settings, rates, tokenizer: (Stage(make(), rates, (add_bias(settings),)),)


LEARNED_MIXIN = Method(
    "learned_mixin", "Learned-Mixin+H", "an ensemble with a frozen bias model, gated",
    _stages(LearnedMixin), BiasSettings, paper="Learned-Mixin+H", colour="#6a3d9a", marker="X",
)  # fmt: skip
BIAS_PRODUCT = Method(
    "bias_product", "Bias Product", "an ensemble with a frozen bias model, without a gate",
    _stages(BiasProduct), BiasSettings, colour="#b15928", marker=(10, 1, 0),
)  # fmt: skip
REWEIGHT = Method(
    "reweight", "Reweight", "examples weigh the less, the better the bias model explains them",
    _stages(Reweight), BiasSettings, colour="#8b6f00", marker="<",
)  # fmt: skip

"""How the two losses of an objective pull at the trunk they share."""

import torch
from torch import nn

from mtlib.contexts import forked_random_state
from mtlib.objectives import Objective
from mtlib.plm import SharedPLM


def gradient_diagnostics(plm: SharedPLM, objective: Objective, batch: dict) -> dict[str, torch.Tensor]:
    """Norms of the trunk's gradients of L_MLM and L_FT (unweighted means of one batch), and their cosine.

    Over the parameters that both losses reach (a pooler, for one, serves the classifier alone). The random state is
    put back afterwards, so that looking does not change the training.
    """
    parameters = [parameter for parameter in plm.trunk.parameters() if parameter.requires_grad]
    of_step = objective.totals(batch)
    of_slice = {name: value for name, value in batch.items() if name not in of_step}
    with forked_random_state(plm.device):
        filled = objective.masked_lm(plm, of_slice)
        classified = objective.classify(plm, of_slice | {"perturbed_ids": filled.perturbed_ids})
    gradients = zip(*(_gradients(output.loss, parameters) for output in (filled, classified)), strict=True)
    shared = [pair for pair in gradients if None not in pair] or [(torch.zeros(1), torch.zeros(1))]
    mlm, ft = (torch.cat([gradient.flatten() for gradient in side]) for side in zip(*shared, strict=True))
    return {
        "mlm_grad_norm": mlm.norm(),
        "ft_grad_norm": ft.norm(),
        "grad_cosine": torch.nn.functional.cosine_similarity(mlm, ft, dim=0),
    }


def _gradients(loss: torch.Tensor, parameters: list[nn.Parameter]) -> tuple:
    if not loss.requires_grad or not parameters:
        return (None,) * len(parameters)
    return torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)

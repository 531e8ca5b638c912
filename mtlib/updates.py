"""How the two losses of Mask-tuning become optimiser steps, where that is more than one backward pass."""

import torch
from torch import nn

DECAY = 0.95  # of the running norm of the classification gradient


class BalancedUpdate:
    """One step on equation 1 with the two gradients brought to the same length first. Ours, not the paper's.

    On the parameters that both losses reach (the shared trunk, tied embeddings included):

        g = alpha * (r / |g_MLM|) * g_MLM + (1 - alpha) * g_FT

    where r is the running mean of |g_FT| (exponential, `DECAY`, its first value at the start). So alpha is a share of
    the step, whatever the scales of the two losses. A parameter that one loss alone reaches (a head, the pooler) keeps
    the gradient of that loss, unweighted. At alpha 0 the masked LM only fills: the step is `no_integrated_loss`. With
    nothing masked g_MLM counts as 0.

    GradNorm (Chen et al. 2018) equalises gradient norms too, but learns the weights.

    The gradients of the slices of a step are summed before they are measured, so the step does not depend on how the
    batch is cut. Costs one more copy of the gradients than the joint update; the activations of the two passes are not
    held at the same time.
    """

    def __init__(self):
        self.ft_norm: torch.Tensor | None = None  # r, a scalar
        self._mlm_gradients: list[torch.Tensor | None] | None = None  # of the slices so far

    def add_slice(self, model: nn.Module, backward_mlm, backward_ft) -> None:
        """Add the gradients of one slice; each argument runs one loss forward and backward.

        Args:
            model: its parameters' `.grad` holds g_FT between slices.
            backward_mlm: called first; None where the masked LM is not trained (alpha 0).
            backward_ft: called second.
        """
        parameters = list(model.parameters())
        if backward_mlm is not None:
            ft_gradients = [parameter.grad for parameter in parameters]
            _set(parameters, self._mlm_gradients or [None] * len(parameters))
            backward_mlm()
            self._mlm_gradients = [parameter.grad for parameter in parameters]
            _set(parameters, ft_gradients)
        backward_ft()

    def combine(self, model: nn.Module, alpha: float) -> None:
        """Leave the gradient of the whole step in `.grad`, ready to be clipped and stepped on."""
        mlm_gradients, self._mlm_gradients = self._mlm_gradients, None
        if mlm_gradients is None:
            return
        pairs = list(zip(model.parameters(), mlm_gradients, strict=True))
        shared = [(p.grad, mlm) for p, mlm in pairs if p.grad is not None and mlm is not None]
        ft_norm = _norm([ft for ft, _ in shared])
        self.ft_norm = ft_norm if self.ft_norm is None else DECAY * self.ft_norm + (1 - DECAY) * ft_norm
        mlm_norm = _norm([mlm for _, mlm in shared])
        scale = torch.where(mlm_norm > 0, self.ft_norm / mlm_norm, 0.0)
        for parameter, mlm in pairs:
            if mlm is None:
                continue
            if parameter.grad is None:
                parameter.grad = mlm
            else:
                parameter.grad.mul_(1 - alpha).add_(mlm * (alpha * scale))


def _norm(gradients: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.get_total_norm(gradients) if gradients else torch.tensor(0.0)


def _set(parameters: list[nn.Parameter], gradients: list[torch.Tensor | None]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient

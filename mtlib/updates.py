"""How the two losses of an objective become optimiser steps, where that takes more than one backward pass."""

import torch
from torch import Tensor, nn

from mtlib.errors import UserError
from mtlib.objectives import Objective
from mtlib.plm import SharedPLM
from mtlib.settings import Update, check_choice

DECAY = 0.95  # of the running norm of the classification gradient


class AlternatingUpdate:
    """Two AdamW steps for each batch: one on alpha * L_MLM, then one on (1 - alpha) * L_FT, each with its own moments.

    Our second reading of the paper's "two training phases". Alpha is then all but inert, since Adam divides the scale
    of a loss out. Weights decay in either step, so twice a batch.

    Args:
        optimizer: for the first step, with the same groups of parameters as the trainer's own, which does the second.
    """

    def __init__(self, optimizer: torch.optim.Optimizer):
        self.optimizer = optimizer

    def step(self, trainer, model: nn.Module, batch: dict, totals: dict | None = None) -> Tensor:
        """Both backward passes and the first of the two steps; the trainer clips and steps for the second."""
        objective, alpha = trainer.training_objective, trainer.training_objective.alpha
        filled = trainer.run_loss(model, objective.masked_lm, batch, totals)
        loss = _backward(trainer, alpha * filled.loss)
        trainer.accelerator.clip_grad_norm_(model.parameters(), trainer.args.max_grad_norm or float("inf"))
        for group, scheduled in zip(self.optimizer.param_groups, trainer.optimizer.param_groups, strict=True):
            group["lr"] = scheduled["lr"]
        self.optimizer.step()
        model.zero_grad()
        refilled = batch | {"perturbed_ids": filled.perturbed_ids}
        classified = trainer.run_loss(model, objective.classify, refilled, totals)
        return loss + _backward(trainer, (1 - alpha) * classified.loss)

    def state_dict(self) -> dict:
        return self.optimizer.state_dict()

    def load_state_dict(self, state: dict) -> None:
        self.optimizer.load_state_dict(state)


class BalancedUpdate:
    """One step on equation 1 with the two gradients brought to the same length first. Ours, not the paper's.

    On the parameters that both losses reach (the shared trunk, tied embeddings included):

        g = alpha * (r / |g_MLM|) * g_MLM + (1 - alpha) * g_FT

    where r is the running mean of |g_FT| (exponential, `DECAY`, its first value at the start). So alpha is a share of
    the step, whatever the scales of the two losses. A parameter that one loss alone reaches (a head, the pooler) keeps
    the gradient of that loss, unweighted. At alpha 0 the masked LM only fills: the step is `no_integrated_loss`. With
    nothing masked g_MLM counts as 0.

    It needs a masked LM that has something to learn. A gradient of a loss near 0 is hardly more than noise, and is
    lengthened all the same: with masks that fall on "the" or the full stop alone, most trainings stayed at their first
    classification loss for long, which the joint update did not.

    GradNorm (Chen et al. 2018) equalises gradient norms too, but learns the weights.

    The gradients of the slices of a step are summed before they are measured, so the step does not depend on how the
    batch is cut. Costs one more copy of the gradients than the joint update; the activations of the two passes are not
    held at the same time.
    """

    def __init__(self):
        self.ft_norm: Tensor | None = None  # r, a scalar
        self._mlm_gradients: list[Tensor | None] | None = None  # of the slices so far

    def step(self, trainer, model: nn.Module, batch: dict, totals: dict | None = None) -> Tensor:
        """Both backward passes of one slice; after the last slice `.grad` holds the gradient of the whole step."""
        objective, alpha, loss = trainer.training_objective, trainer.training_objective.alpha, 0.0
        # several processes: DistributedDataParallel would reduce gradients that are swapped out in between
        with trainer.accelerator.no_sync(model):
            with torch.set_grad_enabled(alpha > 0):
                filled = trainer.run_loss(model, objective.masked_lm, batch, totals)
            if alpha > 0:  # each loss adds to the gradients of its own slices so far
                ft_gradients = _swap_gradients(model, self._mlm_gradients)
                loss = alpha * _backward(trainer, filled.loss)
                self._mlm_gradients = _swap_gradients(model, ft_gradients)
            refilled = batch | {"perturbed_ids": filled.perturbed_ids}
            classified = trainer.run_loss(model, objective.classify, refilled, totals)
            loss = loss + (1 - alpha) * _backward(trainer, classified.loss)
        if trainer.accelerator.sync_gradients:
            if trainer.args.world_size > 1:
                self._average_over_processes(trainer, model)
            scaler = trainer.accelerator.scaler  # of fp16
            self.combine(model, alpha, 1.0 if scaler is None else scaler.scale(torch.ones((), device=loss.device)))
        return loss

    def _average_over_processes(self, trainer, model: nn.Module) -> None:
        of_both = [[parameter.grad for parameter in model.parameters()], self._mlm_gradients or []]
        for gradient in (gradient for side in of_both for gradient in side if gradient is not None):
            gradient.copy_(trainer.accelerator.reduce(gradient, "mean"))

    def combine(self, model: nn.Module, alpha: float, unit: Tensor | float = 1.0) -> None:
        """Leave the gradient of the whole step in `.grad`, ready to be clipped and stepped on.

        Args:
            unit: what fp16 has multiplied all gradients by. A step with one that is not finite changes no mean.
        """
        mlm_gradients, self._mlm_gradients = self._mlm_gradients, None
        if mlm_gradients is None:
            return
        pairs = list(zip(model.parameters(), mlm_gradients, strict=True))
        shared = [(p.grad, mlm) for p, mlm in pairs if p.grad is not None and mlm is not None]
        ft_norm, mlm_norm = (torch.nn.utils.get_total_norm(side) for side in zip(*shared, strict=True))
        ft_norm = ft_norm / unit
        if self.ft_norm is None:
            self.ft_norm = ft_norm
        else:  # in place: a CUDA graph reads it anew where it stands
            mean = torch.where(self.ft_norm.isfinite(), DECAY * self.ft_norm + (1 - DECAY) * ft_norm, ft_norm)
            self.ft_norm.copy_(torch.where(ft_norm.isfinite(), mean, self.ft_norm))
        scale = torch.where(mlm_norm > 0, self.ft_norm * unit / mlm_norm, 0.0)
        for parameter, mlm in pairs:
            if mlm is None:
                continue
            if parameter.grad is None:
                parameter.grad = mlm
            else:
                parameter.grad.mul_(1 - alpha).add_(mlm * (alpha * scale))

    def state_dict(self) -> dict:
        return {"ft_norm": self.ft_norm}

    def load_state_dict(self, state: dict) -> None:
        self.ft_norm = state["ft_norm"]


def check_update(plm: SharedPLM, objective: Objective, args) -> None:
    """Raise `UserError` where the update that `args` name cannot be done with this model, objective and precision."""
    check_choice("update", args.update, Update)
    if args.update == "joint":
        return
    if not objective.two_losses:
        raise UserError(f'update="{args.update}" needs the two losses of MaskTuning, not {type(objective).__name__}.')
    trained = any(parameter.requires_grad for parameter in plm.trunk_parameters())
    if args.update == "balanced" and not (plm.shared and trained):
        raise UserError('update="balanced" weighs two gradients on one trunk that is trained; use update="joint".')
    if args.update == "alternating" and (args.fp16 or args.gradient_accumulation_steps > 1 or args.world_size > 1):
        raise UserError(
            'update="alternating" steps twice per batch; it needs gradient_accumulation_steps=1, one process, and bf16 '
            "or float32."
        )


def _backward(trainer, loss: Tensor) -> Tensor:
    # DistributedDataParallel averages gradients over processes, whereas the slices' losses are to be summed
    loss = loss * trainer.args.world_size
    trainer.accelerator.backward(loss)
    return loss.detach()


def _swap_gradients(model: nn.Module, gradients: list[Tensor | None] | None) -> list[Tensor | None]:
    """Put these into `.grad` (None: nothing yet), and return what was there."""
    parameters = list(model.parameters())
    before = [parameter.grad for parameter in parameters]
    for parameter, gradient in zip(parameters, gradients or [None] * len(parameters), strict=True):
        parameter.grad = gradient
    return before

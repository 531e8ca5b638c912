"""How two losses become optimiser steps when one backward pass is not enough."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast, get_args

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from transformers import TrainingArguments

from mtlib.errors import UserError
from mtlib.objectives import MaskTuning, Objective, ObjectiveOutput, with_refilled
from mtlib.plm import Batch, SharedPLM
from mtlib.settings import Update, check_choice

DECAY = 0.95  # of the running mean of the norm of the classification gradient

Loss = Callable[[SharedPLM, Batch], ObjectiveOutput]


class StepTrainer(Protocol):
    """What an update reads of the trainer (`mtlib.trainer.ObjectiveTrainer`)."""

    accelerator: Accelerator
    optimizer: torch.optim.Optimizer | None
    training_objective: Objective

    @property
    def args(self) -> TrainingArguments: ...

    def run_loss(
        self,
        model: nn.Module,
        loss: Loss,
        batch: Batch,
        totals: Mapping[str, Tensor] | None = None,
    ) -> ObjectiveOutput: ...


class AlternatingUpdate:
    """Two AdamW steps per batch: one on alpha * L_MLM, then one on (1 - alpha) * L_FT.

    Each has its own moments. This is our second reading of the paper's "two training phases". Alpha
    then has almost no effect, since Adam divides by the scale of the loss. Weights decay in either
    step, so twice per batch.

    Args:
        optimizer: for the first step, with the same parameter groups as the trainer's own
            optimiser, which takes the second step.
    """

    def __init__(self, optimizer: torch.optim.Optimizer):
        self.optimizer = optimizer

    def step(
        self,
        trainer: StepTrainer,
        model: nn.Module,
        batch: Batch,
        totals: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Both backward passes and the first step; the trainer clips and takes the second step.

        Returns:
            The sum of both weighted losses, a scalar without a graph.
        """
        objective = cast(MaskTuning, trainer.training_objective)
        alpha = objective.alpha
        filled = trainer.run_loss(model, objective.masked_lm, batch, totals)
        mlm_loss = _backward(trainer, alpha * filled.loss)
        self._step_on_masked_lm(trainer, model)
        refilled = with_refilled(batch, filled)
        classified = trainer.run_loss(model, objective.classify, refilled, totals)
        return mlm_loss + _backward(trainer, (1 - alpha) * classified.loss)

    def _step_on_masked_lm(self, trainer: StepTrainer, model: nn.Module) -> None:
        largest_norm = trainer.args.max_grad_norm or float("inf")
        trainer.accelerator.clip_grad_norm_(model.parameters(), largest_norm)
        assert trainer.optimizer is not None
        scheduled_groups = trainer.optimizer.param_groups
        for group, scheduled in zip(self.optimizer.param_groups, scheduled_groups, strict=True):
            group["lr"] = scheduled["lr"]
        self.optimizer.step()
        model.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state)


class BalancedUpdate:
    """One step on equation 1 after both gradients were scaled to the same length (ours).

    On the parameters that both losses reach (the shared trunk, tied embeddings included):

        g = alpha * (r / |g_MLM|) * g_MLM + (1 - alpha) * g_FT

    where r is the running mean of |g_FT| (exponential, `DECAY`, starting at its first value). So
    alpha is a share of the step, whatever the scales of the two losses are. A parameter that only
    one loss reaches (a head, the pooler) keeps the gradient of that loss, unweighted. At alpha 0
    the masked LM only fills: the step is `no_integrated_loss`. If nothing is masked, g_MLM counts
    as 0.

    The masked LM must have something to learn. The gradient of a loss near 0 is hardly more than
    noise, and is lengthened all the same: with masks only on "the" or on the full stop, most
    trainings stayed at their first classification loss for long, unlike with the joint update.

    GradNorm (Chen et al. 2018) equalises gradient norms too, but learns the weights.

    The gradients of the micro-batches of a step are summed before they are measured, so the step
    does not depend on how the batch is cut. It needs memory for one more copy of the gradients than
    the joint update, but never holds the activations of both passes at the same time.
    """

    def __init__(self) -> None:
        self.ft_norm: Tensor | None = None  # r, a scalar
        self._mlm_gradients: list[Tensor | None] | None = None  # of the micro-batches so far

    def step(
        self,
        trainer: StepTrainer,
        model: nn.Module,
        batch: Batch,
        totals: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Both backward passes of one micro-batch.

        After the last micro-batch, `.grad` holds the gradient of the whole step.

        Returns:
            The micro-batch's share of equation 1, a scalar without a graph.
        """
        # DistributedDataParallel would reduce gradients that are swapped out in between
        with trainer.accelerator.no_sync(model):
            loss = self._both_backward_passes(trainer, model, batch, totals)
        if trainer.accelerator.sync_gradients:
            if trainer.args.world_size > 1:
                self._average_over_processes(trainer, model)
            objective = cast(MaskTuning, trainer.training_objective)
            self.combine(model, objective.alpha, _loss_scale(trainer, loss.device))
        return loss

    def _both_backward_passes(
        self,
        trainer: StepTrainer,
        model: nn.Module,
        batch: Batch,
        totals: Mapping[str, Tensor] | None,
    ) -> Tensor:
        objective = cast(MaskTuning, trainer.training_objective)
        alpha = objective.alpha
        loss: Tensor | float = 0.0
        with torch.set_grad_enabled(alpha > 0):
            filled = trainer.run_loss(model, objective.masked_lm, batch, totals)
        if alpha > 0:  # each loss adds to the gradients of its own micro-batches so far
            ft_gradients = _swap_gradients(model, self._mlm_gradients)
            loss = alpha * _backward(trainer, filled.loss)
            self._mlm_gradients = _swap_gradients(model, ft_gradients)
        refilled = with_refilled(batch, filled)
        classified = trainer.run_loss(model, objective.classify, refilled, totals)
        return loss + (1 - alpha) * _backward(trainer, classified.loss)

    def _average_over_processes(self, trainer: StepTrainer, model: nn.Module) -> None:
        ft_gradients = [parameter.grad for parameter in model.parameters()]
        mlm_gradients = self._mlm_gradients or []
        for gradient in (*ft_gradients, *mlm_gradients):
            if gradient is not None:
                gradient.copy_(trainer.accelerator.reduce(gradient, "mean"))

    def combine(self, model: nn.Module, alpha: float, loss_scale: Tensor | float = 1.0) -> None:
        """Leave the gradient of the whole step in `.grad`, ready for clipping and the optimiser.

        Args:
            model: its `.grad` holds g_FT.
            alpha: weight of the masked-LM gradient.
            loss_scale: what fp16 has multiplied all gradients by. A non-finite g_FT leaves the
                running mean as it is.
        """
        mlm_gradients = self._mlm_gradients
        self._mlm_gradients = None
        if mlm_gradients is None:
            return
        pairs = list(zip(model.parameters(), mlm_gradients, strict=True))
        shared = [(p.grad, mlm) for p, mlm in pairs if p.grad is not None and mlm is not None]
        shared_ft, shared_mlm = zip(*shared, strict=True)
        ft_norm = self._update_mean(torch.nn.utils.get_total_norm(shared_ft) / loss_scale)
        mlm_norm = torch.nn.utils.get_total_norm(shared_mlm)
        scale = torch.where(mlm_norm > 0, ft_norm * loss_scale / mlm_norm, 0.0)
        for parameter, mlm in pairs:
            if mlm is None:
                continue
            if parameter.grad is None:
                parameter.grad = mlm
            else:
                parameter.grad.mul_(1 - alpha).add_(mlm * (alpha * scale))

    def _update_mean(self, ft_norm: Tensor) -> Tensor:
        """Take the norm of one step into the running mean r, and return that."""
        if self.ft_norm is None:
            self.ft_norm = ft_norm
            return ft_norm
        mean = DECAY * self.ft_norm + (1 - DECAY) * ft_norm
        mean = torch.where(self.ft_norm.isfinite(), mean, ft_norm)
        # in place: a CUDA graph reads it from where it stands
        return self.ft_norm.copy_(torch.where(ft_norm.isfinite(), mean, self.ft_norm))

    def state_dict(self) -> dict[str, Any]:
        return {"ft_norm": self.ft_norm}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.ft_norm = state["ft_norm"]


def check_update(
    update: str, plm: SharedPLM, objective: Objective, args: TrainingArguments
) -> None:
    """Raise `UserError` if an update does not fit this model, objective or precision."""
    check_choice("update", update, get_args(Update))
    if update == "joint":
        return
    if not isinstance(objective, MaskTuning):
        given = type(objective).__name__
        raise UserError(f'update="{update}" needs the two losses of MaskTuning, not {given}.')
    if type(objective).forward is not MaskTuning.forward:
        raise UserError(
            f'update="{update}" takes the two losses apart and passes over the forward of '
            f"{type(objective).__name__}; override `classify` instead, or give a classification."
        )
    if update == "balanced":
        _check_shared_trunk(plm)
    else:
        _check_one_step_per_batch(args)


def _check_shared_trunk(plm: SharedPLM) -> None:
    trained = any(parameter.requires_grad for parameter in plm.trunk_parameters())
    if not (plm.shared and trained):
        message = "weighs two gradients on one trunk that is trained"
        raise UserError(f'update="balanced" {message}; use update="joint".')


def _check_one_step_per_batch(args: TrainingArguments) -> None:
    if args.fp16 or args.gradient_accumulation_steps > 1 or args.world_size > 1:
        raise UserError(
            'update="alternating" steps twice per batch; it needs gradient_accumulation_steps=1, '
            "one process, and bf16 or float32."
        )


def _backward(trainer: StepTrainer, loss: Tensor) -> Tensor:
    # DistributedDataParallel averages gradients over processes, whereas losses are to be summed
    loss = loss * trainer.args.world_size
    trainer.accelerator.backward(loss)
    return loss.detach()


def _loss_scale(trainer: StepTrainer, device: torch.device) -> Tensor | float:
    """What fp16 multiplies a loss by."""
    scaler = trainer.accelerator.scaler
    return 1.0 if scaler is None else scaler.scale(torch.ones((), device=device))


def _swap_gradients(model: nn.Module, gradients: list[Tensor | None] | None) -> list[Tensor | None]:
    """Put these into `.grad` (None: nothing yet), and return what was there."""
    parameters = list(model.parameters())
    before = [parameter.grad for parameter in parameters]
    new = gradients or [None] * len(parameters)
    for parameter, gradient in zip(parameters, new, strict=True):
        parameter.grad = gradient
    return before

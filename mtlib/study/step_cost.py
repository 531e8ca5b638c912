"""What a training step costs in each method: passes, seconds and memory, measured on the spot."""

import statistics
import time
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path

import pandas
import torch
from datasets import Dataset

from mtlib.data.tasks import get_task
from mtlib.encoding import Collator
from mtlib.methods import get_method
from mtlib.objectives import Objective
from mtlib.plm import SharedPLM
from mtlib.runs.config import RunConfig


def step_costs(configs: Mapping[str, RunConfig], examples: Dataset, repeats: int = 3) -> pandas.DataFrame:
    """What a training step on one batch costs, measured on the spot, added up over the trainings of a method.

    The methods take their steps in turn, so that whatever else the machine does slows them alike.

    Args:
        configs: of runs, by the names of the rows; their models, methods and settings count.
        examples: the batch, tokenised, with the columns that the methods' preparers would add.
        repeats: steps after a first one that is not counted; their median does.

    Returns:
        `trainings`; `passes` through the trunk in a step; `seconds` forward and backward; `megabytes` that a step holds
        at a time for its backward passes (of several trainings the most; parameters, their gradients and the
        optimiser's moments are not counted, but the second copy of the gradients of the balanced update is);
        `parameters` that exist during training alone.
    """
    steps = {name: _steps(config.resolved(), examples) for name, config in configs.items()}
    for _ in range(1 + repeats):
        for step in chain.from_iterable(steps.values()):
            step.take()
    lines = {}
    for name, of_method in steps.items():
        passes, kept = zip(*(step.passes_and_bytes() for step in of_method), strict=True)
        lines[name] = {
            "trainings": len(of_method),
            "passes": sum(passes),
            "seconds": sum(statistics.median(step.seconds[1:]) for step in of_method),
            "megabytes": max(kept) / 2**20,
            "parameters": sum(p.numel() for step in of_method for p in step.objective.parameters()),
        }
    return pandas.DataFrame.from_dict(lines, orient="index")


class _Step:
    """A step of one training, again and again on the same batch."""

    def __init__(self, plm: SharedPLM, objective: Objective, update: str, examples: Dataset):
        self.plm, self.objective, self.update, self.seconds = plm.train(), objective, update, []
        objective.build(plm, examples)
        self.batch = Collator(plm.tokenizer, objective.columns)(examples.to_list())

    def losses(self) -> Iterator[torch.Tensor]:
        """What the step goes backward from: one loss, or in the updates with two backward passes one after the other.

        As `mtlib.updates` has them: the graph of the first is gone before the second is made.
        """
        batch = self.objective.prepare(self.plm, self.batch)
        if self.update == "joint":
            yield self.objective(self.plm, batch).loss
            return
        with torch.set_grad_enabled(self.objective.alpha > 0):
            filled = self.objective.masked_lm(self.plm, batch)
        batch["perturbed_ids"] = filled.perturbed_ids
        if self.objective.alpha > 0:
            yield filled.loss
        del filled
        yield self.objective.classify(self.plm, batch).loss

    def take(self) -> None:
        started = time.perf_counter()
        for loss in self.losses():
            loss.backward()
        self.seconds.append(time.perf_counter() - started)
        self.plm.zero_grad()

    def passes_and_bytes(self) -> tuple[int, int]:
        passes, held, kept = [], [], {}
        of_model = {parameter.untyped_storage().data_ptr() for parameter in self.plm.parameters()}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with (
            self.plm.trunk.register_forward_hook(lambda *_: passes.append(1)),
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        ):
            for loss in self.losses():  # held until then, so that no storage is freed and its address used again
                gradients = 0
                if self.update == "balanced" and held:  # those of the first loss wait for those of the second
                    gradients = sum(p.grad.nbytes for p in self.plm.parameters() if p.grad is not None)
                held.append(gradients + sum(size for place, size in kept.items() if place not in of_model))
                loss.backward()
                kept.clear()
        self.plm.zero_grad()
        return len(passes), max(held)


def _steps(config: RunConfig, examples: Dataset) -> list[_Step]:
    """The steps of a method's trainings."""
    settings, n_labels = config.settings, len(get_task(config.task).labels)
    shared, update = getattr(settings, "shared", True), getattr(settings, "update", "joint")
    tokenizer = _pretrained(config.model_path, num_labels=n_labels, shared=shared).tokenizer
    return [
        _Step(
            _pretrained(config.model_path, num_labels=n_labels, shared=shared), stage.objective,
            update if stage.objective.two_losses else "joint", examples,
        )
        for stage in get_method(config.method).stages(settings, config.rates, tokenizer)
    ]  # fmt: skip


@cache
def _pretrained(path: str | Path, **options) -> SharedPLM:
    return SharedPLM.from_pretrained(path, **options)

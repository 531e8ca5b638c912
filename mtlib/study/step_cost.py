"""What a training step costs in each method: passes, seconds and memory, measured on the spot."""

import statistics
import time
from collections.abc import Mapping
from functools import cache
from itertools import chain
from pathlib import Path

import pandas
import torch
from datasets import Dataset

from mtlib.collator import Collator
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
        `trainings`; `passes` through the trunk in a step; `seconds` forward and backward; `megabytes` that the forward
        passes of a step keep for the backward pass, parameters not counted (of several trainings the most);
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

    def __init__(self, plm: SharedPLM, objective: Objective, examples: Dataset):
        self.plm, self.objective, self.seconds = plm.train(), objective, []
        objective.build(plm, examples)
        self.batch = Collator(plm.tokenizer, objective.columns)(examples.to_list())

    def forward(self) -> torch.Tensor:
        return self.objective(self.plm, self.objective.prepare(self.plm, self.batch)).loss

    def take(self) -> None:
        started = time.perf_counter()
        self.forward().backward()
        self.seconds.append(time.perf_counter() - started)
        self.plm.zero_grad()

    def passes_and_bytes(self) -> tuple[int, int]:
        passes, kept = [], {}
        of_model = {parameter.untyped_storage().data_ptr() for parameter in self.plm.parameters()}

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return tensor

        with (
            self.plm.trunk.register_forward_hook(lambda *_: passes.append(1)),
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        ):
            loss = self.forward()  # held, so that no storage is freed and its address used again
        del loss
        return len(passes), sum(size for place, size in kept.items() if place not in of_model)


def _steps(config: RunConfig, examples: Dataset) -> list[_Step]:
    """The steps of a method's trainings."""
    tokenizer = _pretrained(config.model_path).tokenizer
    return [
        _Step(_pretrained(config.model_path, **stage.model_options), stage.objective, examples)
        for stage in get_method(config.method).stages(config.settings, config.rates, tokenizer)
    ]


@cache
def _pretrained(path: str | Path, **options) -> SharedPLM:
    return SharedPLM.from_pretrained(path, num_labels=2, **options)

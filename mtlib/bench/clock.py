"""Seconds of some work, of the steps of a training, and of a process of its own, whose memory is measured too."""

import itertools
import multiprocessing
import tempfile
import time
from collections.abc import Callable

import torch
from datasets import Dataset
from transformers import TrainerCallback

from mtlib.bench.workloads import be_quiet, make_trainer
from mtlib.objectives import Objective
from mtlib.plm import SharedPLM
from mtlib.runs import environment


def seconds(work: Callable) -> float:
    started = _now()
    work()
    return _now() - started


def step_seconds(plm: SharedPLM, objective: Objective, examples: Dataset, **settings) -> list[float]:
    """Of each step of a training but the last, from its start to the next one's, the device's queue emptied."""
    starts = []

    class Clock(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            starts.append(_now())

    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(plm, objective, examples, folder, **settings)
        trainer.add_callback(Clock())
        trainer.train()
    return [later - sooner for sooner, later in itertools.pairwise(starts)]


def in_process(work: Callable[[int], None], n: int) -> tuple[float, float]:
    """(seconds, peak MB) of `work(n)` in a fresh process, whose imports are not timed."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seconds_and_memory = pool.apply(_alone, (work, n))
        pool.close()  # leaving the block would kill the process, and its semaphores would be reported as leaked
        pool.join()
    return seconds_and_memory


def _alone(work: Callable[[int], None], n: int) -> tuple[float, float]:
    be_quiet()
    return seconds(lambda: work(n)), environment.peak_memory_mb()


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()

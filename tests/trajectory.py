"""The first 30 optimiser steps of two methods, as recorded in trajectory.json: a change of the
arithmetic shows there.

Record anew, from a clean checkout and only where a change of the numbers is meant:

    python -m tests.trajectory
"""

import hashlib
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from transformers import PrinterCallback, TrainerCallback, set_seed

from mtlib.data.sources import load
from mtlib.encoding import tokenise
from mtlib.methods import METHODS
from mtlib.objectives import FineTuning, MaskTuning
from mtlib.paths import MINI_MODEL_DIR
from mtlib.plm import SharedPLM
from mtlib.runs import environment
from mtlib.trainer import ObjectiveArguments, ObjectiveTrainer

FILE = Path(__file__).with_name("trajectory.json")
STEPS, BATCH = 30, 8
PARTS = {
    "fine_tuning": ("loss", "ft_loss", "grad_norm"),
    "mask_tuning": ("loss", "mlm_loss", "ft_loss", "grad_norm"),
}


class StopAfter(TrainerCallback):
    """Ends a training early, at the learning rates of the whole one."""

    def __init__(self, steps: int):
        self.steps = steps

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == self.steps


def train(method: str, steps: int = STEPS) -> dict[str, list[float]]:
    """`{part: one number per step}` of seed 0 on the bundled testbed and model.

    In float32 on the CPU; the first `steps` of a training of `STEPS`.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    set_seed(0)
    plm = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2)
    examples = tokenise(load("testbed_sentiment_train").select(range(STEPS * BATCH)), plm.tokenizer)
    rates = METHODS[method].rates
    with tempfile.TemporaryDirectory() as folder:
        arguments = ObjectiveArguments(
            folder,
            max_steps=STEPS,
            per_device_train_batch_size=BATCH,
            learning_rate=rates.trunk,
            classifier_learning_rate=rates.classifier,
            mlm_head_learning_rate=rates.mlm_head,
            seed=0,
            use_cpu=True,
            logging_steps=1,
            save_strategy="no",
            disable_tqdm=True,
        )
        objective = MaskTuning(0.6) if method == "mask_tuning" else FineTuning()
        trainer = ObjectiveTrainer(plm, objective, arguments, examples)
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(StopAfter(steps))
        try:
            trainer.train()
        finally:
            torch.set_num_threads(before)
    history = [entry for entry in trainer.state.log_history if "loss" in entry]
    return {part: [entry[part] for entry in history] for part in PARTS[method]}


def gaps(found: dict[str, list[float]], recorded: dict[str, list[float]]) -> tuple[float, float]:
    """The largest relative gap of any part at any step, and the mean of them all."""
    assert found.keys() == recorded.keys()
    ours, theirs = (np.array([numbers[part] for part in recorded]) for numbers in (found, recorded))
    relative = np.abs(ours - theirs) / np.abs(theirs)  # (parts, steps)
    return float(relative.max()), float(relative.mean())


def surroundings() -> dict:
    return environment.describe() | {"mkl": torch.backends.mkl.is_available()}


def weights_sha256() -> str:
    return hashlib.sha256((MINI_MODEL_DIR / "model.safetensors").read_bytes()).hexdigest()


if __name__ == "__main__":
    where = surroundings()
    assert where["commit"] and "+changes" not in where["commit"], (
        "commit first: the record names what it is of"
    )
    methods = {
        method: {
            part: [float(f"{value:.7g}") for value in values]
            for part, values in train(method).items()
        }
        for method in PARTS
    }
    record = {"environment": where, "weights_sha256": weights_sha256(), "methods": methods}
    FILE.write_text(json.dumps(record, indent=1) + "\n")

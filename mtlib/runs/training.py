"""The training of a run: its stages one after the other, each from its start or its last checkpoint."""

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path

import torch
from accelerate import PartialState
from datasets import Dataset
from transformers import PrinterCallback, ProgressCallback, TrainerCallback, set_seed
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK

from mtlib.checkpoints import last_checkpoint, save_objective
from mtlib.contexts import precision
from mtlib.errors import UserError
from mtlib.method import Stage, is_prepared, prepared_examples
from mtlib.plm import SharedPLM
from mtlib.preparer import Prepared
from mtlib.runs import environment
from mtlib.runs.config import RunConfig
from mtlib.runs.records import write_atomically
from mtlib.trainer import ObjectiveArguments, ObjectiveTrainer

_MODEL = "model"  # in the folder of a finished stage, with _RESULT in it
_RESULT = "stage.json"


@dataclass
class Trained:
    """What training leaves.

    Args:
        trainer: of the last stage, for predictions with its model.
        history: of all stages.
        cost: totals over the stages (preparing the data included in the seconds), and each stage by itself.
        diverged: a loss was not finite, and training was stopped there.
    """

    trainer: ObjectiveTrainer
    history: list[dict] = field(default_factory=list)
    cost: dict = field(default_factory=dict)
    diverged: bool = False


def train_stages(
    config: RunConfig,
    stages: tuple[Stage, ...],
    plm: SharedPLM,
    examples: Dataset,
    work: Path,
    callbacks: Sequence[TrainerCallback] = (),
) -> Trained:
    """Train a run's stages in the folder `work`, going on from what an interrupted call left there."""
    folders = [work / stage.name if len(stages) > 1 else work for stage in stages]
    clock = Clock(work, resumed=any((f / _MODEL).exists() or last_checkpoint(f) or is_prepared(f) for f in folders))
    _prepare_early(config, stages, plm, examples, folders, clock)
    finite, results, trainer = StopAtInfinity(), [], None
    for stage, folder in zip(stages, folders, strict=True):
        last = stage is stages[-1]
        if not (folder / _MODEL).exists():
            clock.enter(stage.name)
            start = _started(config, stage, plm)
            examples_of_stage, counts = _prepare(config, stage, start, plm, examples, folder)
            if stage.prepare:
                clock.stop()  # what was prepared is kept, and so is the time that it took
            trainer, result = _train(
                config, stage, start, examples_of_stage, counts, folder, [clock, finite, *callbacks]
            )
            clock.stop()
            if stage.measure is not None and not finite.diverged:
                result["cost"] |= stage.measure(trainer.plm, trainer.training_objective)
            results.append(result)
            if last or finite.diverged:
                break
            _keep_stage(trainer, result, folder)
        else:
            results.append(json.loads((folder / _MODEL / _RESULT).read_text()))
        plm = SharedPLM.from_pretrained(folder / _MODEL)  # read back by every run, interrupted here or not
    trained = stages[: len(results)]
    history = [
        _finite(entry) | ({"stage": stage.name} if len(stages) > 1 else {})
        for stage, result in zip(trained, results, strict=True)
        for entry in result["history"]
    ]
    cost = _cost(trained, results, clock.seconds) | {"interruptions": clock.interruptions}
    return Trained(trainer, history, cost, finite.diverged)


def _finite(entry: dict) -> dict:
    """A log entry with None for what is not finite: JSON has no such numbers."""
    return {name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in entry.items()}  # fmt: skip


def check_slices(config: RunConfig) -> int:
    """Into how many slices a batch is cut, over accumulation steps and processes."""
    slices = config.accumulation * PartialState(cpu=precision()["use_cpu"]).num_processes
    if config.batch_size % slices:
        raise UserError(
            f"batch_size {config.batch_size} cannot be cut into {slices} equal slices (accumulation x processes); give "
            f"a multiple of {slices}."
        )
    return slices


def _prepare(
    config: RunConfig, stage: Stage, start: SharedPLM, previous: SharedPLM, examples: Dataset, folder: Path
) -> Prepared:
    if not stage.prepare:
        return Prepared(examples, {})
    device = PartialState().device
    # without autocast's cache: a preparer that trains would go on with its weights as they were cast first
    bf16 = torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bf16", cache_enabled=False)
    with PartialState().main_process_first(), bf16:  # the other processes read what the first has kept
        return prepared_examples(stage, start.to(device), previous.to(device), examples, config.seed, folder)


def _prepare_early(
    config: RunConfig, stages: tuple[Stage, ...], plm: SharedPLM, examples: Dataset, folders: list[Path], clock: "Clock"
) -> None:
    """Do to the data of later stages what asks no trained model, so that bad input fails before the first training.

    That is what a stage which starts from the pretrained model does before it asks the one that the last stage left.
    """
    for stage, folder in zip(stages[1:], folders[1:], strict=True):
        early = tuple(takewhile(lambda preparer: not preparer.asks_previous, stage.prepare))
        if stage.start == "pretrained" and early:
            clock.enter(stage.name)
            start = _started(config, stage, plm)
            _prepare(config, replace(stage, prepare=early), start, plm, examples, folder)
            clock.stop()


def _train(
    config: RunConfig, stage: Stage, plm: SharedPLM, examples: Dataset, counts: dict[str, float], folder: Path,
    callbacks: list[TrainerCallback],
) -> tuple[ObjectiveTrainer, dict]:  # fmt: skip
    """One stage from its start `plm` or its last checkpoint: the trainer, and what the record keeps of it."""
    trainer = _make_trainer(config, stage, plm, examples, folder, callbacks)
    checkpoint = last_checkpoint(folder)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    steps, seen = trainer.state.global_step, round(len(examples) * (stage.epochs or config.epochs))
    of_steps = steps * config.batch_size  # an epoch's last batch may be smaller; a diverged training stops early
    cost = {"steps": steps, "examples_seen": of_steps if stage.steps else min(seen, of_steps), **counts}
    return trainer, {"cost": cost, "history": [entry for entry in trainer.state.log_history if "loss" in entry]}


def _started(config: RunConfig, stage: Stage, plm: SharedPLM) -> SharedPLM:
    """The model that a stage starts from; `plm` is the one that the stage before left."""
    if stage.start == "previous":
        return plm
    set_seed(config.seed)  # the same new head in a resumed run, whose generators stand elsewhere
    started = SharedPLM.from_pretrained(config.model_path, num_labels=plm.config.num_labels, shared=plm.shared)
    started.config.id2label, started.config.label2id = plm.config.id2label, plm.config.label2id
    return started


def _make_trainer(
    config: RunConfig, stage: Stage, plm: SharedPLM, examples: Dataset, folder: Path, callbacks: list[TrainerCallback]
) -> ObjectiveTrainer:
    slices = check_slices(config)
    epochs = stage.epochs or config.epochs
    steps = stage.steps or max(1, round(-(-len(examples) // config.batch_size) * epochs))
    log_every = max(1, steps // 100)
    arguments = ObjectiveArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        max_steps=stage.steps or -1,
        per_device_train_batch_size=config.batch_size // slices,
        gradient_accumulation_steps=config.accumulation,
        per_device_eval_batch_size=64,
        learning_rate=stage.rates.trunk,
        classifier_learning_rate=stage.rates.classifier,
        mlm_head_learning_rate=stage.rates.mlm_head,
        warmup_steps=config.warmup,
        weight_decay=config.weight_decay,
        max_grad_norm=1.0,
        update=getattr(config.settings, "update", "joint") if stage.objective.two_losses else "joint",
        seed=config.seed,
        bf16=config.precision == "bf16",
        use_cpu=precision()["use_cpu"],
        logging_steps=log_every,
        save_steps=log_every * max(1, round(max(50, steps / 10) / log_every)),  # or a resumed log would lack steps
        save_total_limit=1,
        disable_tqdm=not (sys.stderr.isatty() or environment.is_interactive()),
    )
    trainer = ObjectiveTrainer(plm, stage.objective, arguments, examples, callbacks=callbacks)
    for stock in (PrinterCallback, DEFAULT_PROGRESS_CALLBACK):
        trainer.remove_callback(stock)
    if not arguments.disable_tqdm:
        trainer.add_callback(_Bar)
    return trainer


def _keep_stage(trainer: ObjectiveTrainer, result: dict, folder: Path) -> None:
    """Leave the model of a stage for the next one; a run that is cut off later does not come back to it."""
    if trainer.args.should_save:
        part = folder / f"{_MODEL}.part"
        shutil.rmtree(part, ignore_errors=True)
        trainer.plm.save_pretrained(part)
        save_objective(trainer.training_objective, part)
        (part / _RESULT).write_text(json.dumps(result))
        os.replace(part, folder / _MODEL)
    trainer.accelerator.wait_for_everyone()


def _cost(stages: tuple[Stage, ...], results: list[dict], seconds: dict[str, float]) -> dict:
    """Totals over the stages, and each stage by itself."""
    total = sum(seconds.values())
    examples_seen = sum(result["cost"]["examples_seen"] for result in results)
    return {
        "train_seconds": round(total, 2),
        "steps": sum(result["cost"]["steps"] for result in results),
        "examples_seen": examples_seen,
        "examples_per_second": round(examples_seen / total, 2),
        "stages": [
            {"name": stage.name, "seconds": round(seconds[stage.name], 2), **result["cost"]}
            for stage, result in zip(stages, results, strict=True)
        ],
    }


class _Bar(ProgressCallback):
    """A bar without the log lines between: the record has them."""

    def on_log(self, *args, **kwargs):
        pass


class StopAtInfinity(TrainerCallback):
    """Stops a training whose loss is no longer finite: it does not come back."""

    def __init__(self):
        self.diverged = False

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not math.isfinite((logs or {}).get("loss", 0.0)):
            self.diverged = control.should_training_stop = True


class Clock(TrainerCallback):
    """Training time by stage, over all sessions of an interrupted run: kept beside the checkpoints."""

    def __init__(self, work: Path, resumed: bool):
        self.file = work / "clock.json"
        self.seconds, self.interruptions, self.stage, self.begun = {}, 0, "", 0.0
        if resumed and self.file.exists():
            kept = json.loads(self.file.read_text())
            self.seconds, self.interruptions = kept["seconds"], kept["interruptions"]
        if resumed:
            self.interruptions += 1
            self._keep()

    def enter(self, stage: str) -> None:
        self.stage, self.begun = stage, time.perf_counter() - self.seconds.get(stage, 0.0)

    def stop(self) -> dict[str, float]:
        """The seconds of every stage so far, kept for a resumed run."""
        self.seconds[self.stage] = time.perf_counter() - self.begun
        self._keep()
        return self.seconds

    def on_save(self, args, state, control, **kwargs):
        seconds = self.stop()[self.stage]
        # no bar in a log file or in CI: a line now and then instead; in a notebook run headless neither
        if args.disable_tqdm and state.is_world_process_zero and not environment.in_notebook():
            loss = next((entry["loss"] for entry in reversed(state.log_history) if "loss" in entry), float("nan"))
            line = f"{self.stage}: step {state.global_step} of {state.max_steps}, loss {loss:.3f}, {seconds:.0f} s"
            print(line, file=sys.stderr, flush=True)

    def _keep(self) -> None:
        if PartialState().is_main_process:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.file, json.dumps({"seconds": self.seconds, "interruptions": self.interruptions}))

"""The training of a run: its stages one after the other, each from its start or its last checkpoint."""

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

import torch
from accelerate import PartialState
from datasets import Dataset
from transformers import EarlyStoppingCallback, PrinterCallback, ProgressCallback, TrainerCallback, set_seed
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK

from mtlib.contexts import precision
from mtlib.encoding import tokenise
from mtlib.errors import UserError
from mtlib.method import Prepared, Stage, is_prepared, prepared_examples
from mtlib.methods import get_method
from mtlib.objectives import Objective
from mtlib.plm import SharedPLM
from mtlib.runs import environment
from mtlib.runs.config import TrainingConfig
from mtlib.runs.inputs import Inputs
from mtlib.runs.records import write_atomically
from mtlib.trainer import ObjectiveArguments, ObjectiveTrainer

_MODEL = "model"  # in the folder of a finished stage, with _RESULT in it
_RESULT = "stage.json"


@dataclass
class Trained:
    """What training leaves.

    Args:
        plm: the model of the last stage.
        objective: of the last stage.
        revision: of the pretrained model, where it came from the hub.
        history: the log of all stages, with None for what is not finite: JSON has no such numbers.
        cost: totals over the stages (preparing the data included in the seconds), and each stage by itself.
        diverged: a loss was not finite, and training was stopped there.
    """

    plm: SharedPLM
    objective: Objective
    revision: str | None
    history: list[dict]
    cost: dict
    diverged: bool


def train(inputs: Inputs, work: Path, callbacks: Sequence[TrainerCallback] = ()) -> Trained:
    """Train a run's stages in the folder `work`, going on from what an interrupted call left there.

    Raises:
        UserError: model, method and data do not fit together; before anything is trained.
    """
    config = inputs.config
    plm = pretrained(config, inputs.task.labels)
    stages = [
        replace(stage, prepare=tuple(preparer.reading_from(config.source) for preparer in stage.prepare))
        for stage in get_method(config.method).stages(config.settings, config.rates, plm.tokenizer)
    ]
    return train_stages(config, stages, plm, inputs.datasets["train"], work, callbacks)


def pretrained(config: TrainingConfig, labels: Iterable[str]) -> SharedPLM:
    """The model that a training starts from, with a new head for these labels: the same one each time."""
    set_seed(config.seed)
    shared = getattr(config.settings, "shared", None)
    return SharedPLM.from_pretrained(config.model_path, id2label=dict(enumerate(labels)), shared=shared)


def train_stages(
    config: TrainingConfig,
    stages: Sequence[Stage],
    plm: SharedPLM,
    rows: Dataset,
    work: Path,
    callbacks: Sequence[TrainerCallback] = (),
    dev: Dataset | None = None,
) -> Trained:
    """`train` for stages, a model and rows that are at hand.

    Of the last stage's checkpoints the one with the best accuracy on `dev` is taken, if that is given; training stops
    after `config.patience` evaluations without a better one.
    """
    _check(config, stages, plm)
    read = {name for stage in stages for preparer in stage.prepare for name in preparer.reads}
    read |= {name for stage in stages for name in stage.objective.columns}
    examples = tokenise(rows, plm.tokenizer, config.max_length, keep=read & {*rows.column_names})
    dev = dev and tokenise(dev, plm.tokenizer, config.max_length)
    revision = getattr(plm.config, "_commit_hash", None)
    training = _Training(config, stages, examples, work, callbacks, dev)
    training.prepare_early(plm)
    for stage in stages:
        plm = training.train(stage, plm)
        if training.finite.diverged:
            break
    objective, diverged = stages[-1].objective, training.finite.diverged
    return Trained(plm, objective, revision, training.history(), training.cost(), diverged)


def _check(config: TrainingConfig, stages: Sequence[Stage], plm: SharedPLM) -> None:
    """Do model and method fit together?"""
    _slices_of_a_batch(config)
    for name in ("max_length", "eval_max_length"):
        length = getattr(config, name, config.max_length)
        if length > plm.longest:
            raise UserError(f"{name} is {length}; {config.model} reads at most {plm.longest} tokens, give no more.")
    for stage in stages:
        stage.objective.check(plm)
        for preparer in stage.prepare:
            preparer.check(plm)


def _slices_of_a_batch(config: TrainingConfig) -> int:
    """Into how many slices a batch is cut, over accumulation steps and processes."""
    slices = config.accumulation * PartialState(cpu=precision()["use_cpu"]).num_processes
    if config.batch_size % slices:
        raise UserError(
            f"batch_size {config.batch_size} cannot be cut into {slices} equal slices (accumulation x processes); give "
            f"a multiple of {slices}."
        )
    return slices


class _Training:
    def __init__(self, config, stages, examples, work, callbacks, dev):
        self.config, self.stages, self.examples, self.dev = config, stages, examples, dev
        self.folders = {stage.name: work / stage.name if len(stages) > 1 else work for stage in stages}
        resumed = any((f / _MODEL).exists() or last_checkpoint(f) or is_prepared(f) for f in self.folders.values())
        self.clock, self.finite = Clock(work, resumed), StopAtInfinity()
        self.callbacks = [self.clock, self.finite, *callbacks]
        self.results: dict[str, dict] = {}  # of each stage, as the record keeps them

    def prepare_early(self, plm: SharedPLM) -> None:
        """Do to the data of later stages what asks no trained model, so that bad input fails before the first training.

        That is what a stage which starts from the pretrained model does before it asks the one that the last stage
        left.
        """
        for stage in self.stages[1:]:
            early = tuple(takewhile(lambda preparer: not preparer.asks_previous, stage.prepare))
            if stage.start == "pretrained" and early:
                self.clock.enter(stage.name)
                self._prepared(replace(stage, prepare=early), self._start(stage, plm), plm)
                self.clock.stop()

    def train(self, stage: Stage, plm: SharedPLM) -> SharedPLM:
        """The model after the stage; `plm` is the one that the stage before left."""
        kept = self.folders[stage.name] / _MODEL
        if not kept.exists():
            self.clock.enter(stage.name)
            start = self._start(stage, plm)
            examples, counts = self._prepared(stage, start, plm)
            if stage.prepare:
                self.clock.stop()  # what was prepared is kept, and so is the time that it took
            trainer = self._trainer(stage, start, examples)
            checkpoint = last_checkpoint(kept.parent)
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
            self.clock.stop()
            self.results[stage.name] = self._result(stage, trainer, len(examples), counts)
            if stage is self.stages[-1] or self.finite.diverged:
                return trainer.plm
            if PartialState().is_main_process:
                self._keep(trainer.plm, self.results[stage.name], kept)
            PartialState().wait_for_everyone()
        self.results[stage.name] = json.loads((kept / _RESULT).read_text())
        return SharedPLM.from_pretrained(kept)  # read back by every run, interrupted here or not

    def _start(self, stage: Stage, plm: SharedPLM) -> SharedPLM:
        if stage.start == "previous":
            return plm
        return pretrained(self.config, plm.config.id2label.values())

    def _prepared(self, stage: Stage, start: SharedPLM, previous: SharedPLM) -> Prepared:
        if not stage.prepare:
            return Prepared(self.examples, {})
        state, in_bf16 = PartialState(), self.config.precision == "bf16"
        # without autocast's cache: a preparer that trains would go on with its weights as they were cast first
        bf16 = torch.autocast(state.device.type, torch.bfloat16, enabled=in_bf16, cache_enabled=False)
        models = start.to(state.device), previous.to(state.device)
        with state.main_process_first(), bf16:  # the other processes read what the first has kept
            return prepared_examples(stage, *models, self.examples, self.config.seed, self.folders[stage.name])

    def _trainer(self, stage: Stage, plm: SharedPLM, examples: Dataset) -> ObjectiveTrainer:
        config, slices = self.config, _slices_of_a_batch(self.config)
        epochs = stage.epochs or config.epochs
        steps = stage.steps or max(1, round(-(-len(examples) // config.batch_size) * epochs))
        log_every = max(1, steps // 100)
        save_every = log_every * max(1, round(max(50, steps / 10) / log_every))  # or a resumed log would lack steps
        dev, more = self.dev if stage is self.stages[-1] else None, {}
        if dev is not None:
            more = {"eval_strategy": "steps", "eval_steps": save_every, "load_best_model_at_end": True,
                    "metric_for_best_model": "accuracy", "per_device_eval_batch_size": 64}  # fmt: skip
        arguments = ObjectiveArguments(
            output_dir=str(self.folders[stage.name]),
            num_train_epochs=epochs,
            max_steps=stage.steps or -1,
            per_device_train_batch_size=config.batch_size // slices,
            gradient_accumulation_steps=config.accumulation,
            learning_rate=stage.rates.trunk,
            classifier_learning_rate=stage.rates.classifier,
            mlm_head_learning_rate=stage.rates.mlm_head,
            warmup_steps=config.warmup,
            weight_decay=config.weight_decay,
            max_grad_norm=1.0,
            update=getattr(config.settings, "update", "joint") if stage.objective.two_losses else "joint",
            seed=config.seed,
            bf16=config.precision == "bf16",
            fp16=config.precision == "fp16",
            use_cpu=precision()["use_cpu"],
            logging_steps=log_every,
            save_steps=save_every,
            save_total_limit=1,
            disable_tqdm=not (sys.stderr.isatty() or environment.is_interactive()),
            **more,
        )
        trainer = ObjectiveTrainer(plm, stage.objective, arguments, examples, callbacks=self.callbacks, **(
            {} if dev is None else {"eval_dataset": dev, "compute_metrics": _accuracy}
        ))  # fmt: skip
        if dev is None:
            trainer.add_callback(SeldomSaves())
        elif config.patience:
            trainer.add_callback(EarlyStoppingCallback(config.patience))
        for stock in (PrinterCallback, DEFAULT_PROGRESS_CALLBACK):
            trainer.remove_callback(stock)
        if not arguments.disable_tqdm:
            trainer.add_callback(_Bar)
        return trainer

    def _result(self, stage: Stage, trainer: ObjectiveTrainer, n_examples: int, counts: dict[str, float]) -> dict:
        steps = trainer.state.global_step
        seen = steps * self.config.batch_size
        if not stage.steps:  # an epoch's last batch may be smaller; a diverged training stops early
            seen = min(seen, round(n_examples * (stage.epochs or self.config.epochs)))
        cost = {"steps": steps, "examples_seen": seen, **counts}
        if stage.measure is not None and not self.finite.diverged:
            cost |= stage.measure(trainer.plm, stage.objective)
        return {"cost": cost, "history": [entry for entry in trainer.state.log_history if "loss" in entry]}

    def _keep(self, plm: SharedPLM, result: dict, folder: Path) -> None:
        """Leave the model of a stage for the next one; a run that is cut off later does not come back to it."""
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        plm.save_pretrained(part)
        (part / _RESULT).write_text(json.dumps(result))
        os.replace(part, folder)

    def history(self) -> list[dict]:
        return [
            {name: None if isinstance(value, float) and not math.isfinite(value) else value
             for name, value in entry.items()} | ({"stage": name_of_stage} if len(self.stages) > 1 else {})
            for name_of_stage, result in self.results.items()
            for entry in result["history"]
        ]  # fmt: skip

    def cost(self) -> dict:
        costs, seconds = {name: result["cost"] for name, result in self.results.items()}, self.clock.seconds
        total, seen = sum(seconds.values()), sum(cost["examples_seen"] for cost in costs.values())
        return {
            "train_seconds": round(total, 2),
            "steps": sum(cost["steps"] for cost in costs.values()),
            "examples_seen": seen,
            "examples_per_second": round(seen / total, 2),
            "stages": [{"name": name, "seconds": round(seconds[name], 2), **cost} for name, cost in costs.items()],
            "interruptions": self.clock.interruptions,
        }


def _accuracy(answers) -> dict[str, float]:
    return {"accuracy": float((answers.predictions.argmax(-1) == answers.label_ids).mean())}


def last_checkpoint(folder: Path) -> Path | None:
    """The last complete checkpoint in a folder; torn ones (the trainer's state is written last) are removed."""
    steps = {}
    for checkpoint in folder.glob("checkpoint-*"):
        step = checkpoint.name.partition("-")[2]
        if not step.isdecimal():
            continue  # not the trainer's
        try:
            json.loads((checkpoint / "trainer_state.json").read_text())
            steps[int(step)] = checkpoint
        except (OSError, json.JSONDecodeError):
            shutil.rmtree(checkpoint, ignore_errors=True)
    return steps[max(steps)] if steps else None


class _Bar(ProgressCallback):
    """A bar without the log lines between: the record has them."""

    def on_log(self, *args, **kwargs):
        pass


class SeldomSaves(TrainerCallback):
    """Leaves out checkpoints as long as the last one's writing is more than a tenth of the time since it was begun.

    On a GPU a base-sized model trains for ten minutes and writes 1.3 GB in seconds.
    """

    begun = done = 0.0  # by the clock

    def on_step_end(self, args, state, control, **kwargs):
        now = time.monotonic()
        control.should_save &= now - self.begun >= 10 * (self.done - self.begun)
        if control.should_save:
            self.begun = now

    def on_save(self, args, state, control, **kwargs):
        self.done = time.monotonic()


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

    def stop(self) -> float:
        """The seconds of this stage so far, kept for a resumed run."""
        self.seconds[self.stage] = time.perf_counter() - self.begun
        self._keep()
        return self.seconds[self.stage]

    def on_save(self, args, state, control, **kwargs):
        seconds = self.stop()
        # no bar in a log file or in CI: a line now and then instead; in a notebook run headless neither
        if args.disable_tqdm and state.is_world_process_zero and not environment.in_notebook():
            loss = next((entry["loss"] for entry in reversed(state.log_history) if "loss" in entry), float("nan"))
            line = f"{self.stage}: step {state.global_step} of {state.max_steps}, loss {loss:.3f}, {seconds:.0f} s"
            print(line, file=sys.stderr, flush=True)

    def _keep(self) -> None:
        if PartialState().is_main_process:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.file, json.dumps({"seconds": self.seconds, "interruptions": self.interruptions}))

"""The training of a run: its stages one after the other, each from its start or its last checkpoint."""

import json
import math
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import PartialState
from datasets import Dataset
from transformers import EarlyStoppingCallback, PrinterCallback, ProgressCallback, TrainerCallback, set_seed
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK

from mtlib.contexts import precision
from mtlib.encoding import tokenise
from mtlib.errors import UserError
from mtlib.method import Stage, prepared_examples
from mtlib.objectives import Objective
from mtlib.plm import SharedPLM
from mtlib.preparing import Prepared
from mtlib.runs.config import TrainingConfig
from mtlib.runs.environment import audience
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
        history: the log of all stages, with None for what is not finite: JSON has no such numbers.
        cost: totals over the stages (preparing the data included in the seconds), and each stage by itself.
        diverged: a loss was not finite, and training was stopped there.
    """

    plm: SharedPLM
    objective: Objective
    history: list[dict]
    cost: dict
    diverged: bool


def pretrained(config: TrainingConfig, labels: Iterable[str]) -> SharedPLM:
    """The model that a training starts from, with a new head for these labels: the same one each time."""
    set_seed(config.seed)
    shared = getattr(config.settings, "shared", True)
    return SharedPLM.from_pretrained(config.model_path, id2label=dict(enumerate(labels)), shared=shared)


def train(
    config: TrainingConfig,
    stages: Sequence[Stage],
    plm: SharedPLM,
    rows: Dataset,
    work: Path,
    callbacks: Sequence[TrainerCallback] = (),
    dev: Dataset | None = None,
) -> Trained:
    """Train the stages in the folder `work`, going on from what an interrupted call left there.

    Args:
        plm: the `pretrained` one.
        rows: to train on, with texts and labels.
        callbacks: for the Trainer of every stage.
        dev: of the last stage's checkpoints the one with the best accuracy on these is taken; training stops after
            `config.patience` evaluations without a better one. None: the last checkpoint.

    Raises:
        UserError: model, method and data do not fit together; before anything is trained.
    """
    _check(config, stages, plm)
    read = {name for stage in stages for preparer in stage.prepare for name in preparer.reads}
    read |= {name for stage in stages for name in stage.objective.columns}
    examples = tokenise(rows, plm.tokenizer, config.max_length, keep=read & {*rows.column_names})
    dev = dev and tokenise(dev, plm.tokenizer, config.max_length)
    training, results = _Training(config, examples, work, callbacks), {}
    for stage in stages:
        is_last = stage is stages[-1]
        folder = work / stage.name if len(stages) > 1 else work
        plm, results[stage.name] = training.train(stage, plm, folder, is_last, dev if is_last else None)
        if training.finite.diverged:
            break
    history = [
        {name: None if isinstance(value, float) and not math.isfinite(value) else value
         for name, value in entry.items()} | ({"stage": name_of_stage} if len(stages) > 1 else {})
        for name_of_stage, result in results.items()
        for entry in result["history"]
    ]  # fmt: skip
    cost = training.clock.cost({name: result["cost"] for name, result in results.items()})
    return Trained(plm, stages[-1].objective, history, cost, training.finite.diverged)


def _check(config: TrainingConfig, stages: Sequence[Stage], plm: SharedPLM) -> None:
    """Do model and method fit together?"""
    _slices_of_a_batch(config)
    for name in ("max_length", "eval_max_length"):
        length = getattr(config, name, config.max_length)
        if length is not None and length > plm.longest:
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
    """What the stages of a training have in common."""

    def __init__(self, config, examples, work, callbacks):
        self.config, self.examples = config, examples
        self.clock, self.finite = _Clock(work / "clock.json"), _StopAtInfinity()
        self.callbacks = [self.clock, self.finite, *callbacks]

    def train(
        self, stage: Stage, plm: SharedPLM, folder: Path, is_last: bool, dev: Dataset | None
    ) -> tuple[SharedPLM, dict]:
        """The model after the stage, and the record's part; `plm` is the model that the stage before left."""
        kept = folder / _MODEL
        if not kept.exists():
            self.clock.enter(stage.name)
            start = plm if stage.start == "previous" else pretrained(self.config, plm.config.id2label.values())
            examples, counts = self._prepared(stage, start, plm, folder)
            trainer = self._trainer(stage, start, examples, folder, dev)
            checkpoint = last_checkpoint(folder)
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
            self.clock.stop()
            result = self._result(stage, trainer, len(examples), counts)
            if is_last or self.finite.diverged:
                return trainer.plm, result
            if PartialState().is_main_process:  # a run that is cut off later does not come back to this stage
                part = kept.with_suffix(".part")
                shutil.rmtree(part, ignore_errors=True)
                trainer.plm.save_pretrained(part)
                (part / _RESULT).write_text(json.dumps(result))
                part.replace(kept)
            PartialState().wait_for_everyone()
        # read back by every run, interrupted here or not
        return SharedPLM.from_pretrained(kept), json.loads((kept / _RESULT).read_text())

    def _prepared(self, stage: Stage, start: SharedPLM, previous: SharedPLM, folder: Path) -> Prepared:
        if not stage.prepare:
            return Prepared(self.examples, {})
        state, in_bf16 = PartialState(), self.config.precision == "bf16"
        # without autocast's cache: a preparer that trains would go on with its weights as they were cast first
        bf16 = torch.autocast(state.device.type, torch.bfloat16, enabled=in_bf16, cache_enabled=False)
        models = start.to(state.device), previous.to(state.device)
        with state.main_process_first(), bf16:  # the other processes read what the first has kept
            prepared = prepared_examples(stage, *models, self.examples, self.config.seed, folder)
        self.clock.stop()  # what was prepared is kept, and so is the time that it took
        return prepared

    def _trainer(
        self, stage: Stage, plm: SharedPLM, examples: Dataset, folder: Path, dev: Dataset | None
    ) -> ObjectiveTrainer:
        config, slices, watched = self.config, _slices_of_a_batch(self.config), audience() == "person"
        epochs = stage.epochs or config.epochs
        steps = stage.steps or max(1, round(-(-len(examples) // config.batch_size) * epochs))
        log_every = max(1, steps // 100)
        save_every = log_every * max(1, round(max(50, steps / 10) / log_every))  # or a resumed log would lack steps
        arguments = ObjectiveArguments(
            output_dir=str(folder),
            num_train_epochs=epochs,
            max_steps=stage.steps or -1,
            per_device_train_batch_size=config.batch_size // slices,
            gradient_accumulation_steps=config.accumulation,
            learning_rate=stage.rates.trunk,
            classifier_learning_rate=stage.rates.classifier,
            mlm_head_learning_rate=stage.rates.mlm_head,
            update=getattr(config.settings, "update", "joint") if stage.objective.two_losses else "joint",
            seed=config.seed,
            bf16=config.precision == "bf16",
            fp16=config.precision == "fp16",
            use_cpu=precision()["use_cpu"],
            logging_steps=log_every,
            save_steps=save_every,
            save_total_limit=1,
            disable_tqdm=not watched,
            **({} if dev is None else {
                "eval_strategy": "steps", "eval_steps": save_every, "per_device_eval_batch_size": 64,
                "load_best_model_at_end": True, "metric_for_best_model": "accuracy",
            }),
        )  # fmt: skip
        scoring = {} if dev is None else {"eval_dataset": dev, "compute_metrics": _accuracy}
        trainer = ObjectiveTrainer(plm, stage.objective, arguments, examples, callbacks=self.callbacks, **scoring)
        if dev is None:
            trainer.add_callback(_SeldomSaves())
        elif config.patience:
            trainer.add_callback(EarlyStoppingCallback(config.patience))
        for stock in (PrinterCallback, DEFAULT_PROGRESS_CALLBACK):
            trainer.remove_callback(stock)
        if watched:
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


class _SeldomSaves(TrainerCallback):
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


class _StopAtInfinity(TrainerCallback):
    """Stops a training whose loss is no longer finite: it does not come back."""

    diverged = False

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not math.isfinite((logs or {}).get("loss", 0.0)):
            self.diverged = control.should_training_stop = True


class _Clock(TrainerCallback):
    """Training time by stage, over all sessions of an interrupted run: kept beside the checkpoints."""

    def __init__(self, file: Path):
        self.file, self.kept = file, {"seconds": {}, "interruptions": 0}
        if file.exists():
            self.kept = json.loads(file.read_text())
            self.kept["interruptions"] += 1
            self._keep()

    def enter(self, stage: str) -> None:
        self.stage, self.begun = stage, time.perf_counter() - self.kept["seconds"].get(stage, 0.0)

    def stop(self) -> None:
        """Keep the seconds of this stage so far for a resumed run."""
        self.kept["seconds"][self.stage] = time.perf_counter() - self.begun
        self._keep()

    def on_save(self, args, state, control, **kwargs):
        self.stop()
        if audience() == "log" and state.is_world_process_zero:  # a line now and then in place of the bar
            loss = next((entry["loss"] for entry in reversed(state.log_history) if "loss" in entry), float("nan"))
            line = f"{self.stage}: step {state.global_step} of {state.max_steps}, loss {loss:.3f}"
            print(f"{line}, {self.kept['seconds'][self.stage]:.0f} s", file=sys.stderr, flush=True)

    def cost(self, of_stages: Mapping[str, dict]) -> dict:
        """As the record has it."""
        seconds = self.kept["seconds"]
        total, seen = sum(seconds.values()), sum(cost["examples_seen"] for cost in of_stages.values())
        return {
            "train_seconds": round(total, 2),
            "steps": sum(cost["steps"] for cost in of_stages.values()),
            "examples_seen": seen,
            "examples_per_second": round(seen / total, 2),
            "stages": [{"name": name, "seconds": round(seconds[name], 2), **cost} for name, cost in of_stages.items()],
            "interruptions": self.kept["interruptions"],
        }

    def _keep(self) -> None:
        if PartialState().is_main_process:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.file, json.dumps(self.kept))

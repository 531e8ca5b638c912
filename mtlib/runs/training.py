"""The training of a run: one stage after the other, each resumed from its last checkpoint."""

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
from transformers import (
    EarlyStoppingCallback,
    EvalPrediction,
    PrinterCallback,
    ProgressCallback,
    TrainerCallback,
    TrainerState,
    set_seed,
)
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK

from mtlib.contexts import precision
from mtlib.encoding import tokenise
from mtlib.errors import UserError
from mtlib.method import Stage
from mtlib.objectives import MaskTuning
from mtlib.paths import write_atomically, written_whole
from mtlib.plm import SharedPLM
from mtlib.preparing import Prepared, prepared_examples
from mtlib.runs.config import TrainingConfig
from mtlib.runs.environment import audience
from mtlib.trainer import ObjectiveArguments, ObjectiveTrainer

FEWEST_STEPS_BETWEEN_SAVES = 50
_MODEL = "model"  # in the folder of a finished stage, with _RESULT in it
_RESULT = "stage.json"


@dataclass
class Trained:
    """What training leaves.

    Args:
        plm: the model of the last stage.
        history: the log of all stages, with None for non-finite numbers, which JSON lacks.
        cost: totals over the stages (the seconds include preparing the data), and each stage by
            itself.
        diverged: a loss was not finite, and training was stopped there.
    """

    plm: SharedPLM
    history: list[dict]
    cost: dict
    diverged: bool


def pretrained(config: TrainingConfig, labels: Iterable[str]) -> SharedPLM:
    """The model that a training starts from, with the same new head for these labels each time."""
    set_seed(config.seed)
    return SharedPLM.from_pretrained(
        config.model_path,
        id2label=dict(enumerate(labels)),
        shared=getattr(config.settings, "shared", None),
    )


def train(
    config: TrainingConfig,
    stages: Sequence[Stage],
    plm: SharedPLM,
    rows: Dataset,
    work: Path,
    callbacks: Sequence[TrainerCallback] = (),
    dev: Dataset | None = None,
) -> Trained:
    """Train the stages in the folder `work`, resuming from what an interrupted call left there.

    Args:
        config: of the run.
        stages: of the method.
        plm: the `pretrained` one.
        rows: to train on, with texts and labels.
        work: holds checkpoints, finished stages and the clock.
        callbacks: for the Trainer of every stage.
        dev: the last stage takes its checkpoint with the best accuracy on this set; it stops after
            `config.patience` evaluations without a better one. None: the last checkpoint.

    Raises:
        UserError: model, method and data do not fit together; before anything is trained.
    """
    _check(config, stages, plm)
    columns = _columns_read(stages) & {*rows.column_names}
    examples = tokenise(rows, plm.tokenizer, config.max_length, keep=columns)
    if dev:
        dev = tokenise(dev, plm.tokenizer, config.max_length)
    training = _Training(config, examples, work, callbacks)
    results: dict[str, dict] = {}
    several = len(stages) > 1
    for stage in stages:
        folder = work / stage.name if several else work
        if stage is stages[-1]:
            plm, result = training.run(stage, plm, folder, dev)
        else:
            plm, result = training.run_and_keep(stage, plm, folder)
        results[stage.name] = result
        if training.divergence.happened:
            break
    costs = {name: result["cost"] for name, result in results.items()}
    return Trained(
        plm=plm,
        history=_history(results, name_stages=several),
        cost=training.clock.cost(costs),
        diverged=training.divergence.happened,
    )


def _columns_read(stages: Sequence[Stage]) -> set[str]:
    """The columns that objectives and transforms read beside the tokens."""
    columns = set()
    for stage in stages:
        columns |= stage.objective.columns.keys()
        for transform in stage.transforms:
            columns |= {*transform.reads}
    return columns


def _history(results: Mapping[str, dict], name_stages: bool) -> list[dict]:
    """The log of all stages, one entry after the other."""
    history = []
    for stage, result in results.items():
        for entry in result["history"]:
            entry = {name: _finite_or_none(value) for name, value in entry.items()}
            if name_stages:
                entry["stage"] = stage
            history.append(entry)
    return history


def _finite_or_none(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _check(config: TrainingConfig, stages: Sequence[Stage], plm: SharedPLM) -> None:
    """Raise `UserError` if model and method do not fit together."""
    _check_batch_size(config)
    for name in ("max_length", "eval_max_length"):
        length = getattr(config, name, config.max_length)
        if length is not None and length > plm.longest:
            limit = f"{config.model} reads at most {plm.longest} tokens"
            raise UserError(f"{name} is {length}; {limit}, give no more.")
    names = [stage.name for stage in stages]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise UserError(
            f"two stages are called {repeated.pop()!r}, and the second would go on with the first "
            "one's checkpoints; give each a name of its own, Stage(..., name=...)."
        )
    for stage in stages:
        stage.objective.check(plm)
        for transform in stage.transforms:
            transform.check(plm)


def _check_batch_size(config: TrainingConfig) -> None:
    micro_batches = _n_micro_batches(config)
    if config.batch_size % micro_batches:
        raise UserError(
            f"batch_size {config.batch_size} cannot be cut into {micro_batches} equal parts "
            f"(accumulation x processes); give a multiple of {micro_batches}."
        )


def _n_micro_batches(config: TrainingConfig) -> int:
    """The number of micro-batches a batch is cut into, over accumulation steps and processes."""
    n_processes = PartialState(cpu=precision()["use_cpu"]).num_processes
    return config.accumulation * n_processes


class _Training:
    """What the stages of a training have in common."""

    def __init__(
        self,
        config: TrainingConfig,
        examples: Dataset,
        work: Path,
        callbacks: Sequence[TrainerCallback],
    ):
        self.config = config
        self.examples = examples
        self.clock = _Clock(work / "clock.json")
        self.divergence = _StopAtDivergence()
        self.callbacks = [self.clock, self.divergence, *callbacks]

    def run_and_keep(self, stage: Stage, plm: SharedPLM, folder: Path) -> tuple[SharedPLM, dict]:
        """`run`, with the model and its part of the record saved.

        A training that is cut off in a later stage need not return to this one.
        """
        if not (folder / _MODEL).exists():
            trained, result = self.run(stage, plm, folder, dev=None)
            if self.divergence.happened:
                return trained, result
            if PartialState().is_main_process:
                _save_stage(trained, result, folder)
            PartialState().wait_for_everyone()
        # read back by every run, interrupted here or not
        return _load_stage(folder)

    def run(
        self,
        stage: Stage,
        plm: SharedPLM,
        folder: Path,
        dev: Dataset | None,
    ) -> tuple[SharedPLM, dict]:
        """The trained model of a stage, and its part of the record.

        The data is prepared with the model of the previous stage, `plm`; training is resumed from
        the last checkpoint.
        """
        self.clock.enter(stage.name)
        start = plm
        if stage.start == "pretrained":
            start = pretrained(self.config, plm.config.id2label.values())
        examples, counts = self._prepared(stage, start, plm, folder)
        trainer = self._trainer(stage, start, examples, folder, dev)
        checkpoint = last_checkpoint(folder)
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        self.clock.stop()
        return trainer.plm, self._result(stage, trainer, len(examples), counts)

    def _prepared(
        self,
        stage: Stage,
        start: SharedPLM,
        previous: SharedPLM,
        folder: Path,
    ) -> Prepared:
        """The training set after the stage's transforms."""
        if not stage.transforms:
            return Prepared(self.examples, {})
        state = PartialState()
        # Without autocast's cache: a transform that trains would go on with the casts that were
        # made of its first weights.
        bf16 = torch.autocast(
            state.device.type,
            torch.bfloat16,
            enabled=self.config.precision == "bf16",
            cache_enabled=False,
        )
        start.to(state.device)
        previous.to(state.device)
        with state.main_process_first(), bf16:  # the other processes read what the first has kept
            prepared = prepared_examples(
                stage.transforms,
                start,
                previous,
                self.examples,
                seed=self.config.seed,
                folder=folder,
            )
        self.clock.stop()  # what was prepared is kept, and so is the time that it took
        return prepared

    def _trainer(
        self,
        stage: Stage,
        plm: SharedPLM,
        examples: Dataset,
        folder: Path,
        dev: Dataset | None,
    ) -> ObjectiveTrainer:
        """transformers' Trainer with our callbacks in place of its own."""
        arguments = self._arguments(stage, len(examples), folder, evaluated=dev is not None)
        trainer = ObjectiveTrainer(
            plm,
            stage.objective,
            arguments,
            examples,
            eval_dataset=dev,
            compute_metrics=None if dev is None else _accuracy,
            callbacks=self.callbacks,
        )
        if dev is None:
            trainer.add_callback(_SeldomSaves())
        elif self.config.patience:
            trainer.add_callback(EarlyStoppingCallback(self.config.patience))
        trainer.remove_callback(PrinterCallback)
        trainer.remove_callback(DEFAULT_PROGRESS_CALLBACK)
        if audience() == "person":
            trainer.add_callback(_Bar)
        return trainer

    def _arguments(
        self,
        stage: Stage,
        n_examples: int,
        folder: Path,
        evaluated: bool,
    ) -> ObjectiveArguments:
        config = self.config
        micro_batches = _n_micro_batches(config)
        epochs = stage.epochs or config.epochs
        steps_per_epoch = math.ceil(n_examples / config.batch_size)
        steps = stage.steps or max(1, round(steps_per_epoch * epochs))
        log_every = max(1, steps // 100)
        save_every = _steps_between_saves(steps, log_every)
        update = "joint"
        if isinstance(stage.objective, MaskTuning):
            update = getattr(config.settings, "update", "joint")
        evaluation = {}
        if evaluated:
            evaluation = {
                "eval_strategy": "steps",
                "eval_steps": save_every,
                "per_device_eval_batch_size": 64,
                "load_best_model_at_end": True,
                "metric_for_best_model": "accuracy",
                # a resumed training has as much patience left as it had
                "restore_callback_states_from_checkpoint": True,
            }
        return ObjectiveArguments(
            output_dir=str(folder),
            num_train_epochs=epochs,
            max_steps=stage.steps or -1,
            per_device_train_batch_size=config.batch_size // micro_batches,
            gradient_accumulation_steps=config.accumulation,
            learning_rate=stage.rates.trunk,
            classifier_learning_rate=stage.rates.classifier,
            mlm_head_learning_rate=stage.rates.mlm_head,
            update=update,
            seed=config.seed,
            bf16=config.precision == "bf16",
            fp16=config.precision == "fp16",
            use_cpu=precision()["use_cpu"],
            logging_steps=log_every,
            save_steps=save_every,
            save_total_limit=1,
            disable_tqdm=audience() != "person",
            **evaluation,
        )

    def _result(
        self,
        stage: Stage,
        trainer: ObjectiveTrainer,
        n_examples: int,
        counts: dict[str, float],
    ) -> dict:
        """The stage's part of the record."""
        steps = trainer.state.global_step
        examples_seen = steps * self.config.batch_size
        if not stage.steps:  # an epoch's last batch may be smaller; a diverged training stops early
            epochs = stage.epochs or self.config.epochs
            examples_seen = min(examples_seen, round(n_examples * epochs))
        cost = {"steps": steps, "examples_seen": examples_seen, **counts}
        if stage.measure is not None and not self.divergence.happened:
            cost |= stage.measure(trainer.plm, stage.objective)
        history = [entry for entry in trainer.state.log_history if "loss" in entry]
        return {"cost": cost, "history": history}


def _steps_between_saves(steps: int, log_every: int) -> int:
    """A tenth of the training, but not too few steps, for checkpoints and evaluations.

    It is a multiple of `log_every`, or a resumed log would lack steps.
    """
    wanted = max(FEWEST_STEPS_BETWEEN_SAVES, steps / 10)
    return log_every * max(1, round(wanted / log_every))


def _save_stage(plm: SharedPLM, result: dict, folder: Path) -> None:
    """Save the model of a finished stage and its part of the record, or nothing."""
    with written_whole(folder / _MODEL) as part:
        plm.save_pretrained(part)
        (part / _RESULT).write_text(json.dumps(result))


def _load_stage(folder: Path) -> tuple[SharedPLM, dict]:
    """What `_save_stage` has saved."""
    kept = folder / _MODEL
    return SharedPLM.from_pretrained(kept), json.loads((kept / _RESULT).read_text())


def _accuracy(evaluation: EvalPrediction) -> dict[str, float]:
    """The metric of the Trainer, by which a checkpoint is chosen."""
    predictions = evaluation.predictions.argmax(-1)
    return {"accuracy": float((predictions == evaluation.label_ids).mean())}


def last_checkpoint(folder: Path) -> Path | None:
    """The last complete checkpoint in a folder.

    Torn ones are removed: the trainer's state, which is written last, is missing or cut off there.
    """
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
    """A progress bar without log lines in between, which the record has."""

    def on_log(self, *args, **kwargs):
        pass


class _SeldomSaves(TrainerCallback):
    """Leaves out checkpoints so that writing them takes at most a tenth of the time.

    A checkpoint is written once ten times as long has passed since the last one was begun as that
    one took. On a GPU, a base-sized model trains for ten minutes and writes 1.3 GB in seconds.
    """

    # when the last checkpoint was begun and done, in seconds of the monotonic clock
    begun = 0.0
    done = 0.0

    def on_step_end(self, args, state, control, **kwargs):
        now = time.monotonic()
        control.should_save &= now - self.begun >= 10 * (self.done - self.begun)
        if control.should_save:
            self.begun = now

    def on_save(self, args, state, control, **kwargs):
        self.done = time.monotonic()


class _StopAtDivergence(TrainerCallback):
    """Stops a training whose loss is no longer finite, since it would not recover."""

    happened = False

    def on_log(self, args, state, control, logs=None, **kwargs):
        if not math.isfinite((logs or {}).get("loss", 0.0)):
            self.happened = True
            control.should_training_stop = True


class _Clock(TrainerCallback):
    """Training time by stage, over all sessions of an interrupted run.

    It is kept in a file beside the checkpoints.
    """

    def __init__(self, file: Path):
        self.file = file
        self.seconds = {}  # by stage
        self.interruptions = 0
        if file.exists():
            saved = json.loads(file.read_text())
            self.seconds = saved["seconds"]
            self.interruptions = saved["interruptions"] + 1
            self._save()

    def enter(self, stage: str) -> None:
        """Count for this stage from here on."""
        self.stage = stage
        self.begun = time.perf_counter() - self.seconds.get(stage, 0.0)

    def stop(self) -> None:
        """Save the seconds of this stage so far for a resumed run."""
        self.seconds[self.stage] = time.perf_counter() - self.begun
        self._save()

    def on_save(self, args, state, control, **kwargs):
        self.stop()
        if audience() == "log" and state.is_world_process_zero:
            self._print_line(state)

    def _print_line(self, state: TrainerState) -> None:
        """An occasional line in place of the progress bar."""
        losses = [entry["loss"] for entry in state.log_history if "loss" in entry]
        loss = losses[-1] if losses else float("nan")
        progress = f"step {state.global_step} of {state.max_steps}"
        line = f"{self.stage}: {progress}, loss {loss:.3f}, {self.seconds[self.stage]:.0f} s"
        print(line, file=sys.stderr, flush=True)

    def cost(self, costs: Mapping[str, dict]) -> dict:
        """The cost in the record: the totals, and the cost of each stage by its name."""
        total = sum(self.seconds.values())
        examples_seen = sum(cost["examples_seen"] for cost in costs.values())
        stages = []
        for name, cost in costs.items():
            stages.append({"name": name, "seconds": round(self.seconds[name], 2), **cost})
        return {
            "train_seconds": round(total, 2),
            "steps": sum(cost["steps"] for cost in costs.values()),
            "examples_seen": examples_seen,
            "examples_per_second": round(examples_seen / total, 2),
            "stages": stages,
            "interruptions": self.interruptions,
        }

    def _save(self) -> None:
        if PartialState().is_main_process:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            saved = {"seconds": self.seconds, "interruptions": self.interruptions}
            write_atomically(self.file, json.dumps(saved))

"""One run: a configuration in, a record out.

What the same code has finished is skipped, what it began resumes. A model that it has kept is
scored on further sets without training.
"""

import contextlib
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
from accelerate import PartialState
from transformers import TrainerCallback

from mtlib.contexts import precision
from mtlib.errors import UserError
from mtlib.method import Stage
from mtlib.methods import METHODS
from mtlib.paths import make_writable, write_atomically, written_whole
from mtlib.runs import environment
from mtlib.runs.code import code_sha256, is_of_this_code, origin
from mtlib.runs.config import RunConfig
from mtlib.runs.inputs import Inputs, read_inputs
from mtlib.runs.locks import claim, lock_path
from mtlib.runs.records import (
    SCHEMA_VERSION,
    check_keeping,
    model_folder,
    read_records,
    write_record,
)
from mtlib.runs.scores import EarlierTraining, earlier_trainings, evaluate
from mtlib.runs.training import pretrained, train

code_sha256()  # of the code that has just been imported, whatever becomes of its files


def run(
    config: RunConfig,
    out: Path,
    keep_model: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
    reuse: bool = False,
) -> tuple[Path, bool]:
    """Train, evaluate and write the record.

    Everything that can be checked is checked before training starts. A run that this code has
    finished in `out` is not trained again. Where `out` has a record of the same training, scored
    on other sets, and the model was kept, that model is scored on the sets that are missing, and
    nothing is trained.

    Args:
        config: what to run.
        out: folder for records. Checkpoints lie in `out/.work` until the record is written, from
            which an interrupted run of the same configuration goes on, with the same code.
        keep_model: write the trained model too, in a folder beside the record that is called like
            it. A record that was made without training names the one whose model it shares, as
            `trained_by`.
        callbacks: for the Trainer of every stage.
        reuse: take a record that other code made, in `out` or among the shipped ones, or a model
            that it kept in `out`, in place of training. `out` gets a copy of a shipped one.

    Returns:
        The record's path, and whether a finished record answered: one that was in `out`, or a
        shipped one, of which `out` now has a copy. False where anything was trained or scored.

    Raises:
        Busy: another process is at this run, in this folder.
        UserError: bad input, a folder that cannot be written, or without `reuse` a record in `out`
            by other code.
    """
    check_keeping(reuse, keep_model)
    make_writable(out)
    environment.quiet_libraries()
    inputs = read_inputs(config)
    path = inputs.record_path(out)
    state = PartialState(cpu=precision()["use_cpu"])
    # of several processes that train together the first holds the run's lock
    lock = claim(lock_path(path)) if state.is_main_process else contextlib.nullcontext()
    with lock:
        # or one of several processes might look before another's record is there
        state.wait_for_everyone()
        was_there = _is_finished(inputs, path, keep_model, reuse)
        shipped = inputs.shipped_record() if reuse and not was_there else None
        answered = was_there or shipped is not None
        earlier = None if answered else _earlier_training(inputs, path, keep_model, reuse)
        state.wait_for_everyone()  # all have looked before one writes
        if shipped is not None:
            if state.is_main_process:
                write_record(path, shipped)
        elif earlier is not None:
            _score(inputs, path, earlier)
        elif not was_there:
            _complete(inputs, path, keep_model, callbacks)
        state.wait_for_everyone()
    return path, answered


def _is_finished(inputs: Inputs, path: Path, keep_model: bool, reuse: bool) -> bool:
    """Whether the record that is wanted is there, and its model too.

    One by other code counts with `reuse` alone.
    """
    if not path.exists():
        return False
    (record,) = read_records([path])
    made_in = record.get("environment", {})
    if not reuse and not is_of_this_code(made_in):
        raise UserError(
            f"{path} has a result of this run already, made at {origin(made_in)}. Give --reuse to "
            "take it, or another --out to train; nothing was trained or changed."
        )
    if record["identity"] not in inputs.identities:
        return False  # a shipped one in another precision, which was left to the device then
    return not keep_model or model_folder(path, record).exists()


def _earlier_training(
    inputs: Inputs, path: Path, keep_model: bool, reuse: bool
) -> EarlierTraining | None:
    """One that makes training unnecessary. If there are some that do not, it is said why."""
    trainings = earlier_trainings(inputs, path)
    for training in trainings:
        if training.is_allowed(reuse) and training.is_enough(keep_model):
            return training
    if trainings:
        first = trainings[0]
        _print(f"{first.path} has this training, but {first.obstacle()}. It is trained again.")
    return None


def _print(message: str) -> None:
    """By the first of several processes."""
    if PartialState().is_main_process:
        print(message, file=sys.stderr)


def _work_folder(path: Path) -> Path:
    """Where a run's checkpoints lie, by its record's path: those of other code are left alone."""
    work = path.parent / ".work" / f"{path.stem}.{code_sha256()[:10]}"
    others = [
        folder
        for folder in work.parent.glob("*/")
        if folder.name.startswith(path.stem) and folder != work
    ]
    if others:
        _print(f"{others[0]} has checkpoints of other code: training begins anew, and they stay.")
    return work


def _complete(
    inputs: Inputs, path: Path, keep_model: bool, callbacks: Sequence[TrainerCallback]
) -> None:
    """Train, evaluate and write the record of a run that nobody else is at."""
    config = inputs.config
    started = _now()
    surroundings = environment.describe()
    environment.reset_peak_memory()
    work = _work_folder(path)
    plm = pretrained(config, inputs.task.labels)
    revision = getattr(plm.config, "_commit_hash", None)  # where it came from the hub
    stages = _stages(config, plm.tokenizer)
    trained = train(config, stages, plm, inputs.datasets["train"], work, callbacks)
    begun = time.perf_counter()
    scored = () if trained.diverged else inputs.scored
    metrics, probabilities = evaluate(trained.plm, inputs, scored)
    cost = {
        **trained.cost,
        "evaluation_seconds": round(time.perf_counter() - begun, 2),
        "peak_memory_mb": round(environment.peak_memory_mb()),
    }
    record = {
        "schema_version": SCHEMA_VERSION,
        "identity": inputs.identity,
        "config": inputs.public,
        "model": {"files_sha256": inputs.model_sha256, "revision": revision},
        "metrics": metrics,
        "history": trained.history,
        "cost": cost,
        "data": inputs.descriptions,
        "environment": surroundings,
        "started": started,
        "finished": _now(),
    }
    if PartialState().is_main_process:
        # the model before the record, which says that all is done
        if keep_model:
            with written_whole(path.with_suffix("")) as part:
                trained.plm.save_pretrained(part)
        _write(path, record, probabilities)
        shutil.rmtree(work, ignore_errors=True)


def _score(inputs: Inputs, path: Path, earlier: EarlierTraining) -> None:
    """Write the record of a run whose training is there."""
    missing = earlier.missing
    what = f"its model is scored on {', '.join(missing)}" if missing else "it has all scores"
    _print(f"nothing is trained: {earlier.path} has this training, and {what}.")
    metrics, probabilities = earlier.scores()
    made = {"environment": environment.describe(), "finished": _now()}
    scored_later = earlier.record.get("scored_later", {}) | dict.fromkeys(missing, made)
    record = earlier.record | {
        "identity": inputs.identity,
        "config": inputs.public,
        "metrics": metrics,
        "data": inputs.descriptions,
        "trained_by": earlier.model.name,
        "scored_later": {name: scored_later[name] for name in metrics if name in scored_later},
    }
    if PartialState().is_main_process:
        _write(path, record, probabilities)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _write(path: Path, record: dict, probabilities: Mapping[str, np.ndarray]) -> None:
    """The record after the probabilities: it says that all is done."""
    if not record["metrics"]:
        record["diverged"] = True
    if probabilities:
        save = partial(np.savez_compressed, **probabilities)
        write_atomically(path.with_suffix(".npz"), save)
    write_record(path, record)


def _stages(config: RunConfig, tokenizer) -> list[Stage]:
    """The stages of the method, whose transforms read their data where the run reads its own."""
    stages = []
    for stage in METHODS[config.method].stages(config.settings, config.rates, tokenizer):
        transforms = [transform.reading_from(config.source) for transform in stage.transforms]
        stages.append(replace(stage, transforms=tuple(transforms)))
    return stages

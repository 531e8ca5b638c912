"""One run: a configuration in, a record out. Finished runs are skipped, interrupted ones resume."""

import contextlib
import errno
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from accelerate import PartialState
from datasets import disable_progress_bars
from scipy.special import softmax
from transformers import TrainerCallback, set_seed
from transformers.utils import logging

from mtlib.contexts import precision
from mtlib.data.scoring import score_rows
from mtlib.data.tasks import get_task
from mtlib.encoding import check_max_length, predict, tokenise
from mtlib.errors import UserError
from mtlib.method import Stage
from mtlib.methods import get_method
from mtlib.objectives import Objective
from mtlib.paths import make_writable
from mtlib.plm import SharedPLM
from mtlib.runs import environment
from mtlib.runs.config import RunConfig
from mtlib.runs.inputs import HELD_OUT, Inputs, read_inputs
from mtlib.runs.locks import claim
from mtlib.runs.records import SCHEMA_VERSION, read_records, write_atomically
from mtlib.runs.training import Trained, slices_of_a_batch, train_stages
from mtlib.trainer import save_objective

# it remarks on file systems whose times it does not trust; checkpoints are told apart by number
logging.get_logger("transformers.trainer_utils").setLevel(logging.ERROR)
KEPT = "run.json"  # in the folder of a kept model


def run(
    config: RunConfig,
    out: Path,
    resume: bool = True,
    keep_model: Path | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    fresh: bool = False,
    cache: dict | None = None,
) -> tuple[Path, bool]:
    """Train, evaluate and write the record; everything that can be checked is checked before training starts.

    Args:
        config: what to run.
        out: folder for records. Checkpoints lie in `out/.work` until the record is written.
        resume: go on from the last stage and checkpoint of an interrupted run of the same configuration.
        keep_model: write the trained model here too; a new or empty folder, or one that holds this very run's model.
        callbacks: for the Trainer of every stage.
        fresh: train also where the project comes with the record of this run, and where `out` has a copy of that one,
            which the new record replaces. (So does `keep_model` where `out` has none: records come without models.)
        cache: given to many calls, has each set and model read once.

    Returns:
        The record's path, and whether it was there before (then nothing was trained): in `out`, or among the records
        that come with the project, of which `out` then gets a copy.

    Raises:
        Busy: another process is at this run, in this folder.
        UserError: bad input, or a folder that cannot be written (any more).
    """
    for folder in filter(None, (out, keep_model)):
        make_writable(folder)
    disable_progress_bars()
    logging.disable_progress_bar()
    inputs = read_inputs(config, cache)
    path, state = inputs.record_path(out), PartialState(cpu=precision()["use_cpu"])
    with _disk_errors(out), claim(lock_path(path)) if state.is_main_process else contextlib.nullcontext():
        state.wait_for_everyone()  # or one of several processes might look before another's record is there
        shipped = inputs.shipped_record()
        to_do = not path.exists() or (fresh and read_records([path]) == [shipped])
        state.wait_for_everyone()  # all have looked before one writes
        if to_do and keep_model is None and not fresh and shipped is not None:
            if state.is_main_process:
                _write(path, shipped)
            state.wait_for_everyone()
        elif to_do:
            _check_kept(keep_model, inputs.identity)
            _complete(inputs, path, resume, keep_model, callbacks)
            return path, False
    if keep_model is not None and _kept(keep_model) != inputs.identity:
        raise UserError(
            f"{path} is finished, but {keep_model} does not hold its model ({_kept(keep_model) or 'it is empty'}); "
            "to train it again give another --out, and an empty folder to keep the model in."
        )
    return path, True


def lock_path(record: Path) -> Path:
    """The lock file of a run, by its record's path: whoever runs it holds it (`locks`)."""
    return record.parent / ".work" / f"{record.stem}.lock"


def _complete(
    inputs: Inputs, path: Path, resume: bool, keep_model: Path | None, callbacks: Sequence[TrainerCallback]
) -> None:
    """Train, evaluate and write the record of a run that nobody else is at."""
    config, state = inputs.config, PartialState()
    started, surroundings = datetime.now(UTC), environment.describe()
    environment.reset_peak_memory()
    plm, stages = _start(config)
    revision = getattr(plm.config, "_commit_hash", None)
    train = inputs.datasets["train"]
    for preparer in (preparer for stage in stages for preparer in stage.prepare):
        preparer.check_number(len(train))
    examples = tokenise(train, plm.tokenizer, config.max_length, keep=_read_by(stages) & {*train.column_names})
    work = path.parent / ".work" / path.stem
    if not resume and state.is_main_process:
        shutil.rmtree(work, ignore_errors=True)
    state.wait_for_everyone()  # or a slower process might delete what a faster one has written
    trained = train_stages(config, stages, plm, examples, work, callbacks)
    evaluation_seconds = time.perf_counter()
    metrics, probabilities = _evaluate(trained, inputs)
    cost = {
        **trained.cost,
        "evaluation_seconds": round(time.perf_counter() - evaluation_seconds, 2),
        "peak_memory_mb": round(environment.peak_memory_mb()),
    }
    record = {
        "schema_version": SCHEMA_VERSION,
        "identity": inputs.identity,
        "config": config.public(),
        "model": {"files_sha256": inputs.model_sha256, "revision": revision},
        **({} if metrics else {"diverged": True}),
        "metrics": metrics,
        "history": trained.history,
        "cost": cost,
        "data": inputs.sets,
        "environment": surroundings,
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if state.is_main_process:
        if keep_model is not None:  # this and the probabilities before the record, which says that all is done
            _keep(trained.plm, stages[-1].objective, keep_model, inputs.identity)
        if probabilities:
            np.savez_compressed(path.with_suffix(".npz"), **probabilities)
        _write(path, record)
        shutil.rmtree(work, ignore_errors=True)
    state.wait_for_everyone()


def _start(config: RunConfig) -> tuple[SharedPLM, tuple[Stage, ...]]:
    """The pretrained model with its new head, and the method's stages, checked against one another."""
    set_seed(config.seed)
    task = get_task(config.task)
    shared = getattr(config.settings, "shared", None)
    plm = SharedPLM.from_pretrained(config.model_path, id2label=dict(enumerate(task.labels)), shared=shared)
    for name in ("max_length", "eval_max_length"):
        length = getattr(config, name)
        check_max_length(length, plm.tokenizer, task.pair, name)
        if length > plm.longest:
            raise UserError(f"{name} is {length}; {config.model} reads at most {plm.longest} tokens, give no more.")
    slices_of_a_batch(config)
    stages = get_method(config.method).stages(config.settings, config.rates, plm.tokenizer)
    stages = tuple(
        replace(stage, prepare=tuple(p.reading_from(config.source) for p in stage.prepare)) for stage in stages
    )
    for stage in stages:
        stage.objective.check(plm)
        for preparer in stage.prepare:
            preparer.check(plm)
    return plm, stages


def _read_by(stages: Sequence[Stage]) -> set[str]:
    """The columns of the training set that objectives and preparers read beside the tokens."""
    of_preparers = {name for stage in stages for preparer in stage.prepare for name in preparer.reads}
    return of_preparers | {name for stage in stages for name in stage.objective.columns}


def _evaluate(trained: Trained, inputs: Inputs) -> tuple[dict[str, dict], dict[str, np.ndarray]]:
    """The scores on every evaluation set and, as float16, each label's probability for every example `(n, num_labels)`.

    Both are empty where the model has diverged.
    """
    config, metrics, probabilities = inputs.config, {}, {}
    for name in () if trained.diverged else (*config.sets, *({HELD_OUT} & inputs.datasets.keys())):
        dataset = inputs.datasets[name]
        logits = predict(trained.plm, dataset, config.eval_max_length, bf16=config.precision == "bf16")
        if not np.isfinite(logits).all():
            return {}, {}
        known_as = get_task(config.task).train_set(config.source) if name == HELD_OUT else name
        metrics[name] = score_rows(known_as, logits, dataset, config.hans_rule)
        probabilities[name] = softmax(logits, axis=1).astype(np.float16)
    return metrics, probabilities


def _write(path: Path, record: dict) -> None:
    write_atomically(path, json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _check_kept(folder: Path | None, identity: str) -> None:
    if folder is not None and (kept := _kept(folder)) not in (None, identity):
        raise UserError(f"{folder} holds {kept}; give an empty folder to keep the model in, or delete it.")


def _keep(plm: SharedPLM, objective: Objective, folder: Path, identity: str) -> None:
    """The trained model and whose it is, whole or not at all."""
    folder = Path(folder).resolve()
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    plm.save_pretrained(part)
    save_objective(objective, part)
    (part / KEPT).write_text(json.dumps({"identity": identity}) + "\n")
    shutil.rmtree(folder)
    part.replace(folder)


def _kept(folder: Path) -> str | None:
    """The identity of the run whose model lies in `folder`, some words where that is not known, None if it is empty."""
    try:
        return json.loads((folder / KEPT).read_bytes())["identity"]
    except (OSError, ValueError, KeyError, TypeError):
        return "files that are no kept model of a run" if any(folder.iterdir()) else None


@contextlib.contextmanager
def _disk_errors(out: Path) -> Iterator[None]:
    """What a full disk and a folder gone read-only look like to the user."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = None
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            reason = error.strerror
        elif out.is_dir() and shutil.disk_usage(out).free < 2**20:  # libraries turn the error into one of their own
            reason = os.strerror(errno.ENOSPC)
        if reason is None:
            raise
        raise UserError(
            f"cannot write to {out}: {reason}; make room or give another folder, then start the run again (in the same "
            "folder it goes on from its last checkpoint)."
        ) from error

"""One run: a configuration in, a record out.

What the same code has finished is skipped, what it began resumes.
"""

import contextlib
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from accelerate import PartialState
from scipy.special import softmax
from transformers import TrainerCallback

from mtlib.contexts import precision
from mtlib.data.scoring import score_rows
from mtlib.encoding import predict
from mtlib.errors import UserError
from mtlib.method import Stage
from mtlib.methods import METHODS
from mtlib.paths import make_writable
from mtlib.runs import environment
from mtlib.runs.code import code_sha256, is_of_this_code, origin
from mtlib.runs.config import RunConfig
from mtlib.runs.inputs import HELD_OUT, Inputs, read_inputs
from mtlib.runs.records import SCHEMA_VERSION, claim, lock_path, read_records, write_record
from mtlib.runs.training import Trained, pretrained, train
from mtlib.trainer import save_objective

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
    finished in `out` is not trained again.

    Args:
        config: what to run.
        out: folder for records. Checkpoints lie in `out/.work` until the record is written, from
            which an interrupted run of the same configuration goes on, with the same code.
        keep_model: write the trained model too, in a folder beside the record that is called like
            it.
        callbacks: for the Trainer of every stage.
        reuse: take a record that other code made, in `out` or among the shipped ones, in place of
            training. `out` gets a copy of a shipped one.

    Returns:
        The record's path, and whether it was there before (then nothing was trained).

    Raises:
        Busy: another process is at this run, in this folder.
        UserError: bad input, a folder that cannot be written, or without `reuse` a record in `out`
            by other code.
    """
    if reuse and keep_model:
        raise UserError(
            "a record that is reused comes without its model; give either --reuse or --keep-model."
        )
    make_writable(out)
    environment.quiet_libraries()
    inputs = read_inputs(config)
    path = inputs.record_path(out)
    state = PartialState(cpu=precision()["use_cpu"])
    model = path.with_suffix("") if keep_model else None
    with _full_disk_explained(out), _claimed(path, state):
        # or one of several processes might look before another's record is there
        state.wait_for_everyone()
        was_there = _is_finished(path, model, reuse)
        shipped = inputs.shipped_record() if reuse and not was_there else None
        state.wait_for_everyone()  # all have looked before one writes
        if shipped is None and not was_there:
            _complete(inputs, path, model, callbacks)
        elif shipped is not None:
            _copy_shipped(shipped, path)
        state.wait_for_everyone()
    return path, was_there or shipped is not None


def _copy_shipped(record: dict, path: Path) -> None:
    """By the first of several processes."""
    if PartialState().is_main_process:
        write_record(path, record)


def _claimed(path: Path, state: PartialState) -> contextlib.AbstractContextManager:
    """Of several processes that train together the first holds the run's lock."""
    return claim(lock_path(path)) if state.is_main_process else contextlib.nullcontext()


def _is_finished(path: Path, model: Path | None, reuse: bool) -> bool:
    """Whether the record that is wanted is there, and its model too.

    One by other code counts with `reuse` alone.
    """
    if not path.exists():
        return False
    made_by = read_records([path])[0].get("environment", {})
    if not reuse and not is_of_this_code(made_by):
        raise UserError(
            f"{path} has a result of this run already, made at {origin(made_by)}. Give --reuse to "
            "take it, or another --out to train; nothing was trained or changed."
        )
    return model is None or model.exists()


def _work_folder(path: Path) -> Path:
    """Where a run's checkpoints lie, by its record's path: those of other code are left alone."""
    work = path.parent / ".work" / f"{path.stem}.{code_sha256()[:10]}"
    others = [
        folder
        for folder in work.parent.glob("*/")
        if folder.name.startswith(path.stem) and folder != work
    ]
    if others and PartialState().is_main_process:
        print(
            f"{others[0]} has checkpoints of other code: training begins anew, and they stay.",
            file=sys.stderr,
        )
    return work


def _complete(
    inputs: Inputs, path: Path, model: Path | None, callbacks: Sequence[TrainerCallback]
) -> None:
    """Train, evaluate and write the record of a run that nobody else is at."""
    config = inputs.config
    started = datetime.now(UTC)
    surroundings = environment.describe()
    environment.reset_peak_memory()
    work = _work_folder(path)
    plm = pretrained(config, inputs.task.labels)
    revision = getattr(plm.config, "_commit_hash", None)  # where it came from the hub
    stages = _stages(config, plm.tokenizer)
    trained = train(config, stages, plm, inputs.datasets["train"], work, callbacks)
    begun = time.perf_counter()
    metrics, probabilities = _evaluate(trained, inputs)
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
        **({} if metrics else {"diverged": True}),
        "metrics": metrics,
        "history": trained.history,
        "cost": cost,
        "data": inputs.sets,
        "environment": surroundings,
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if PartialState().is_main_process:
        # the model and the probabilities before the record, which says that all is done
        if model is not None:
            _keep(trained, model)
        if probabilities:
            np.savez_compressed(path.with_suffix(".npz"), **probabilities)
        write_record(path, record)
        shutil.rmtree(work, ignore_errors=True)


def _stages(config: RunConfig, tokenizer) -> list[Stage]:
    """The stages of the method, whose transforms read their data where the run reads its own."""
    stages = []
    for stage in METHODS[config.method].stages(config.settings, config.rates, tokenizer):
        transforms = [transform.reading_from(config.source) for transform in stage.transforms]
        stages.append(replace(stage, transforms=tuple(transforms)))
    return stages


def _evaluate(trained: Trained, inputs: Inputs) -> tuple[dict[str, dict], dict[str, np.ndarray]]:
    """The scores on every evaluation set, and each label's probability for each example.

    Probabilities are float32 of the shape `(n, num_labels)`. (float16 has ties, which AUROC counts
    as halves.) Both are empty where the model has diverged.
    """
    if trained.diverged:
        return {}, {}
    config = inputs.config
    metrics, probabilities = {}, {}
    for name in (*config.sets, *({HELD_OUT} & inputs.datasets.keys())):
        dataset = inputs.datasets[name]
        in_bf16 = config.precision == "bf16"
        logits = predict(trained.plm, dataset, config.eval_max_length, bf16=in_bf16)
        if not np.isfinite(logits).all():
            return {}, {}
        metrics[name] = score_rows(inputs.sets[name]["set"], logits, dataset)
        probabilities[name] = softmax(logits.astype(np.float64), axis=1).astype(np.float32)
    return metrics, probabilities


def _keep(trained: Trained, folder: Path) -> None:
    """The trained model, whole or not at all."""
    part = folder.with_name(f".{folder.name}.part")
    for left in (part, folder):
        shutil.rmtree(left, ignore_errors=True)
    trained.plm.save_pretrained(part)
    save_objective(trained.objective, part)
    part.replace(folder)


@contextlib.contextmanager
def _full_disk_explained(out: Path) -> Iterator[None]:
    """Libraries say it in words that nobody understands ("enforce fail at inline_container.cc")."""
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError) or not out.is_dir() or shutil.disk_usage(out).free > 2**20:
            raise
        raise UserError(
            f"cannot write to {out}: no space left; make room or give another folder, then start "
            "the run again (in the same folder it goes on from its last checkpoint)."
        ) from error

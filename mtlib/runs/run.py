"""One run: a configuration in, a record out. Finished runs are skipped, interrupted ones resume."""

import contextlib
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from accelerate import PartialState
from datasets import disable_progress_bars
from scipy.special import softmax
from transformers import TrainerCallback
from transformers.utils import logging

from mtlib.contexts import precision
from mtlib.data.scoring import score_rows
from mtlib.encoding import predict
from mtlib.errors import UserError
from mtlib.paths import make_writable
from mtlib.runs import environment
from mtlib.runs.config import RunConfig
from mtlib.runs.inputs import HELD_OUT, Inputs, read_inputs
from mtlib.runs.locks import claim, lock_path
from mtlib.runs.records import SCHEMA_VERSION, read_records, write_record
from mtlib.runs.training import Trained, train
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

    Returns:
        The record's path, and whether it was there before (then nothing was trained): in `out`, or among the records
        that come with the project, of which `out` then gets a copy.

    Raises:
        Busy: another process is at this run, in this folder.
        UserError: bad input, or a folder that cannot be written.
    """
    for folder in filter(None, (out, keep_model)):
        make_writable(folder)
    disable_progress_bars()
    logging.disable_progress_bar()
    inputs = read_inputs(config)
    shipped = inputs.shipped_record()
    path, state = inputs.record_path(out), PartialState(cpu=precision()["use_cpu"])
    with _full_disk_told(out), claim(lock_path(path)) if state.is_main_process else contextlib.nullcontext():
        state.wait_for_everyone()  # or one of several processes might look before another's record is there
        to_do = not path.exists() or (fresh and read_records([path]) == [shipped])
        state.wait_for_everyone()  # all have looked before one writes
        if to_do and keep_model is None and not fresh and shipped is not None:
            if state.is_main_process:
                write_record(path, shipped)
            state.wait_for_everyone()
            return path, True
        _check_kept(keep_model, inputs.identity, path, to_do)
        if to_do:
            _complete(inputs, path, resume, keep_model, callbacks)
    return path, not to_do


def _complete(
    inputs: Inputs, path: Path, resume: bool, keep_model: Path | None, callbacks: Sequence[TrainerCallback]
) -> None:
    """Train, evaluate and write the record of a run that nobody else is at."""
    started, surroundings, state = datetime.now(UTC), environment.describe(), PartialState()
    environment.reset_peak_memory()
    work = path.parent / ".work" / path.stem
    if not resume and state.is_main_process:
        shutil.rmtree(work, ignore_errors=True)
    state.wait_for_everyone()  # or a slower process might delete what a faster one has written
    trained = train(inputs, work, callbacks)
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
        "config": inputs.public,
        "model": {"files_sha256": inputs.model_sha256, "revision": trained.revision},
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
            _keep(trained, keep_model, inputs.identity)
        if probabilities:
            np.savez_compressed(path.with_suffix(".npz"), **probabilities)
        write_record(path, record)
        shutil.rmtree(work, ignore_errors=True)
    state.wait_for_everyone()


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
        known_as = inputs.sets[name]["set"]
        metrics[name] = score_rows(known_as, logits, dataset, config.hans_rule)
        probabilities[name] = softmax(logits, axis=1).astype(np.float16)
    return metrics, probabilities


def _check_kept(folder: Path | None, identity: str, path: Path, to_do: bool) -> None:
    """A folder for the model is empty or holds that of this very run; that of a finished run it must hold."""
    kept = identity if folder is None else _kept(folder)
    if kept != identity and not (to_do and kept is None):
        finished = "" if to_do else f"; {path} is finished, so give another --out too"
        raise UserError(f"{folder} holds {kept or 'nothing'}; give an empty folder to keep the model in{finished}.")


def _keep(trained: Trained, folder: Path, identity: str) -> None:
    """The trained model and whose it is, whole or not at all."""
    folder = Path(folder).resolve()
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    trained.plm.save_pretrained(part)
    save_objective(trained.objective, part)
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
def _full_disk_told(out: Path) -> Iterator[None]:
    """Libraries say it in words that nobody understands ("enforce fail at inline_container.cc")."""
    try:
        yield
    except Exception as error:
        if isinstance(error, UserError) or not out.is_dir() or shutil.disk_usage(out).free > 2**20:
            raise
        raise UserError(
            f"cannot write to {out}: no space left; make room or give another folder, then start the run again (in the "
            "same folder it goes on from its last checkpoint)."
        ) from error

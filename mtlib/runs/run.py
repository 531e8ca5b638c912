"""One run: a configuration in, a record out. Finished runs are skipped, interrupted ones resume."""

import contextlib
import errno
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from accelerate import PartialState
from datasets import Dataset, disable_progress_bars
from transformers import PrinterCallback, ProgressCallback, TrainerCallback, set_seed
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK
from transformers.utils import logging

from mtlib.data.encoding import predict_with, tokenise
from mtlib.data.sources import load_described
from mtlib.data.tasks import get_task, score
from mtlib.errors import UserError
from mtlib.plm import SharedPLM
from mtlib.runs import environment
from mtlib.runs.config import RunConfig
from mtlib.runs.locks import claim
from mtlib.runs.recipe import Stage, recipe
from mtlib.trainer import ObjectiveArguments, ObjectiveTrainer, last_checkpoint, precision

SCHEMA_VERSION = 1
# it remarks on file systems whose times it does not trust; checkpoints are told apart by number
logging.get_logger("transformers.trainer_utils").setLevel(logging.ERROR)
_MODEL = "model"  # in the folder of a finished stage, with _RESULT in it
_RESULT = "stage.json"
KEPT = "run.json"  # in the folder of a kept model


def run(
    config: RunConfig,
    out: Path,
    resume: bool = True,
    keep_model: Path | None = None,
    callbacks: Sequence[TrainerCallback] = (),
) -> tuple[Path, bool]:
    """Train, evaluate and write the record; everything that can be checked is checked before training starts.

    Args:
        config: what to run.
        out: folder for records. Checkpoints lie in `out/.work` until the record is written.
        resume: go on from the last stage and checkpoint of an interrupted run of the same configuration.
        keep_model: write the trained model here too; a new or empty folder, or one that holds this very run's model.
        callbacks: for the Trainer of every stage.

    Returns:
        The record's path, and whether it was already there (then nothing was run).

    Raises:
        Busy: another process is at this run, in this folder.
        UserError: bad input, or a folder that cannot be written (any more).
    """
    config = config.resolved()
    for folder in filter(None, (out, keep_model)):
        make_writable(folder)
    disable_progress_bars()
    logging.disable_progress_bar()
    data = _read_sets(config)
    inputs = Inputs(_model_sha256(config), {name: part.description for name, part in data.items()})
    path = record_path(config, out, inputs)
    state = PartialState(cpu=precision()["use_cpu"])
    with _disk_errors(out), claim(lock_path(path)) if state.is_main_process else contextlib.nullcontext():
        state.wait_for_everyone()  # or one of several processes might look before another's record is there
        if not path.exists():
            if keep_model is not None and (kept := _kept(keep_model)) not in (None, _identity(config, inputs)):
                raise UserError(f"{keep_model} holds {kept}; give an empty folder to keep the model in, or delete it.")
            _complete(config, data, inputs, path, resume, keep_model, callbacks)
            return path, False
    if keep_model is not None and _kept(keep_model) != _identity(config, inputs):
        raise UserError(
            f"{path} is finished, but {keep_model} does not hold its model ({_kept(keep_model) or 'it is empty'}); "
            "to train it again give another --out, and an empty folder to keep the model in."
        )
    return path, True


@dataclass(frozen=True)
class Inputs:
    """What decides a run's numbers besides its configuration.

    Args:
        model_sha256: of the files of a local model; None for one from the hub.
        sets: descriptions of the training set (as "train") and of the evaluation sets; see `sources.describe`.
    """

    model_sha256: str | None
    sets: dict[str, dict]


def read_inputs(config: RunConfig, cache: dict | None = None) -> Inputs:
    """The inputs of a run, without running it; `cache`, given to many calls, has each set and model read once."""
    config, cache = config.resolved(), {} if cache is None else cache
    if config.model_path not in cache:
        cache[config.model_path] = _model_sha256(config)
    sets = {}
    for name, key in _set_keys(config).items():
        if key not in cache:
            cache[key] = load_described(*key)[1]
        sets[name] = dict(cache[key])
    _note_train_size(config, sets["train"])
    return Inputs(cache[config.model_path], sets)


def record_path(config: RunConfig, out: Path, inputs: Inputs | None = None) -> Path:
    """Where `run` writes, or has written, the record; the data and the model are read to tell."""
    config = config.resolved()
    identity = _identity(config, read_inputs(config) if inputs is None else inputs)
    model = Path(config.public()["model"]).name.lower().replace("_", "-")
    return out / f"{config.task}-{config.method}-{model}-seed{config.seed}-{identity[:10]}.json"


def lock_path(record: Path) -> Path:
    """The lock file of a run, by its record's path: whoever runs it holds it (`claims`)."""
    return record.parent / ".work" / f"{record.stem}.lock"


def _complete(
    config: RunConfig,
    data: dict[str, "_Part"],
    inputs: Inputs,
    path: Path,
    resume: bool,
    keep_model: Path | None,
    callbacks: Sequence[TrainerCallback],
) -> None:
    """Train, evaluate and write the record of a run that nobody else is at."""
    started, surroundings = datetime.now(UTC), environment.describe()
    set_seed(config.seed)
    labels = get_task(config.task).labels
    plm = SharedPLM.from_pretrained(config.model_path, num_labels=len(labels), shared=config.shared)
    plm.config.id2label, plm.config.label2id = dict(enumerate(labels)), {name: i for i, name in enumerate(labels)}
    revision = getattr(plm.config, "_commit_hash", None)
    _check_lengths(config, plm)
    _slices(config)
    stages = recipe(config, plm.tokenizer)
    examples = tokenise(data["train"].dataset, plm.tokenizer, config.max_length)
    work = path.parent / ".work" / path.stem
    if not resume:
        shutil.rmtree(work, ignore_errors=True)
    folders = [work / stage.name if len(stages) > 1 else work for stage in stages]
    clock = _Clock(work, resumed=any((f / _MODEL).exists() or last_checkpoint(f) for f in folders))
    callbacks, results = [clock, *callbacks], []
    for stage, folder in zip(stages[:-1], folders[:-1], strict=True):
        if not (folder / _MODEL).exists():
            clock.enter(stage.name)
            _finish(*_train(config, stage, plm, examples, folder, callbacks), folder, clock)
        results.append(json.loads((folder / _MODEL / _RESULT).read_text()))
        plm = SharedPLM.from_pretrained(folder / _MODEL)  # read back by every run, interrupted here or not
    clock.enter(stages[-1].name)
    trainer, result = _train(config, stages[-1], plm, examples, folders[-1], callbacks)
    results.append(result)
    seconds = clock.stop()

    metrics, evaluation_seconds = {}, time.perf_counter()
    for name in config.sets:
        metrics[name] = _evaluate(trainer, name, data[name].dataset, config)
    record = {
        "schema_version": SCHEMA_VERSION,
        "identity": _identity(config, inputs),
        "config": config.public(),
        "model": {"files_sha256": inputs.model_sha256, "revision": revision},
        "metrics": metrics,
        "history": [
            entry | ({"stage": stage.name} if len(stages) > 1 else {})
            for stage, result in zip(stages, results, strict=True)
            for entry in result["history"]
        ],
        "cost": _cost(stages, results, seconds)
        | {
            "evaluation_seconds": round(time.perf_counter() - evaluation_seconds, 2),
            "peak_memory_mb": round(environment.peak_memory_mb()),
            "interruptions": clock.interruptions,
        },
        "data": inputs.sets,
        "environment": surroundings,
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if trainer.args.should_save:  # of several processes, one
        if keep_model is not None:  # before the record, which says that all is done
            _keep(plm, Path(keep_model), record["identity"])
        write_atomically(path, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        shutil.rmtree(work, ignore_errors=True)
    trainer.accelerator.wait_for_everyone()


def _keep(plm: SharedPLM, folder: Path, identity: str) -> None:
    """The trained model, and before it whose it is: if saving is cut off, the same run may do it again."""
    (folder / KEPT).write_text(json.dumps({"identity": identity}) + "\n")
    plm.save_pretrained(folder)


def _kept(folder: Path) -> str | None:
    """The identity of the run whose model lies in `folder`, some words where that is not known, None if it is empty."""
    if (folder / KEPT).is_file():
        return json.loads((folder / KEPT).read_text())["identity"]
    return "files that are no kept model of a run" if any(folder.iterdir()) else None


def read_records(folders: Sequence[Path | str]) -> list[dict]:
    """Every record in the folders (one JSON per run, or `.jsonl` with one per line), in order of file name."""
    records = {}
    for folder in map(Path, folders):
        if not folder.exists():
            raise UserError(f"{folder} does not exist; expected a folder with run records (`--out` of `mtlib run`).")
        paths = sorted([*folder.glob("*.json"), *folder.glob("*.jsonl")]) if folder.is_dir() else [folder]
        for path in paths:
            whole = path.read_text(encoding="utf-8")
            lines = whole.split("\n") if path.suffix == ".jsonl" else [whole]  # splitlines would cut at more than these
            if path.suffix == ".jsonl" and not lines[-1]:
                lines.pop()  # after the last line's end
            for line in lines:
                try:
                    record = json.loads(line)
                except json.JSONDecodeError as error:
                    raise UserError(f"{path} is not JSON ({error}); move it away or run it again.") from error
                if "metrics" in record and "config" in record:
                    if record["schema_version"] != SCHEMA_VERSION:
                        raise UserError(
                            f"{path} has schema version {record['schema_version']}; this mtlib reads {SCHEMA_VERSION}."
                        )
                    records[record["identity"]] = record
    return list(records.values())


def json_line(record: dict, most: int | None = None) -> str:
    """A record on one line, with the numbers of its history rounded to five digits, and at most `most` entries of it.

    Those that stay are spread evenly, the last one among them; each is as it was logged (a mean over its own interval).
    """
    entries = record["history"]
    if most is not None and len(entries) > most:
        entries = [entries[round((i + 1) * len(entries) / most) - 1] for i in range(most)]
    history = [
        {name: float(f"{value:.5g}") if isinstance(value, float) else value for name, value in entry.items()}
        for entry in entries
    ]
    return json.dumps(record | {"history": history}, ensure_ascii=False, separators=(",", ":")) + "\n"


def write_atomically(path: Path, text: str) -> None:
    """Either the whole file is there or none of it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(part, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


@dataclass(frozen=True)
class _Part:
    dataset: Dataset
    description: dict


def _read_sets(config: RunConfig) -> dict[str, _Part]:
    """The training set (as "train") and the evaluation sets."""
    parts = {name: _Part(*load_described(*key)) for name, key in _set_keys(config).items()}
    train, description = parts["train"].dataset, parts["train"].description
    _note_train_size(config, description)
    if config.train_size is not None:
        chosen = np.random.default_rng(0).permutation(len(train))[: config.train_size]
        parts["train"] = _Part(train.select(sorted(chosen.tolist())), description)
    return parts


def _set_keys(config: RunConfig) -> dict[str, tuple[str, str, str | None]]:
    """Set, source and split of everything that a run reads."""
    return {"train": (get_task(config.task).train_set(config.source), config.source, None)} | {
        name: (name, config.source, config.splits.get(name)) for name in config.sets
    }


def _note_train_size(config: RunConfig, description: dict) -> None:
    if config.train_size is None:
        return
    if config.train_size > description["rows"]:
        raise UserError(
            f"train_size is {config.train_size}, but {description['set']} has {description['rows']} examples; give at "
            "most so many."
        )
    description["used_rows"] = config.train_size


def _identity(config: RunConfig, inputs: Inputs) -> str:
    """A hash of all that decides the numbers: configuration, weights of a local model, content of the data."""
    what = {
        "schema_version": SCHEMA_VERSION,
        "config": config.public(),
        "model": inputs.model_sha256,
        "data": {name: description["content_sha256"] for name, description in inputs.sets.items()},
    }
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def _model_sha256(config: RunConfig) -> str | None:
    """Of the weights, configuration and tokenizer in a local folder; None for a hub model."""
    folder = Path(config.model_path)
    if not folder.is_dir():
        return None
    digest = hashlib.sha256()
    decisive = ("*.safetensors", "config.json", "tokenizer*.json", "vocab.*", "merges.txt", "*.model",
                "special_tokens_map.json", "masked_lm/*.safetensors")  # fmt: skip
    for path in sorted({path for pattern in decisive for path in folder.glob(pattern)}):
        if path.is_file():
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _check_lengths(config: RunConfig, plm: SharedPLM) -> None:
    longest = min(plm.tokenizer.model_max_length, getattr(plm.config, "max_position_embeddings", 10**9))
    structural = plm.tokenizer.num_special_tokens_to_add(get_task(config.task).pair)
    for name in ("max_length", "eval_max_length"):
        if getattr(config, name) <= structural:  # tokenizers then cut nothing at all
            raise UserError(
                f"{name} is {getattr(config, name)}; {config.model} adds {structural} tokens to every text."
            )
        if getattr(config, name) > longest:
            raise UserError(f"{name} is {getattr(config, name)}; {config.model} reads at most {longest} tokens.")


def _slices(config: RunConfig) -> int:
    slices = config.accumulation * PartialState(cpu=precision()["use_cpu"]).num_processes
    if config.batch_size % slices:
        raise UserError(
            f"batch_size {config.batch_size} cannot be cut into {slices} equal slices (accumulation x processes)."
        )
    return slices


def _train(
    config: RunConfig, stage: Stage, plm: SharedPLM, examples: Dataset, folder: Path, callbacks: list[TrainerCallback]
) -> tuple[ObjectiveTrainer, dict]:
    """One stage from its start or its last checkpoint: the trainer, and what the record keeps of it."""
    counts = {}
    if stage.refill is not None:
        device = PartialState().device
        with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bf16"):
            examples, masked, changed = stage.refill(plm.to(device), examples, config.seed)
        counts = {"masked": masked, "changed": changed}
    trainer = _make_trainer(config, stage, plm, examples, folder, callbacks)
    checkpoint = last_checkpoint(folder)
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    cost = {"steps": trainer.state.global_step, "examples_seen": round(len(examples) * config.epochs), **counts}
    return trainer, {"cost": cost, "history": [entry for entry in trainer.state.log_history if "loss" in entry]}


def _finish(trainer: ObjectiveTrainer, result: dict, folder: Path, clock: "_Clock") -> None:
    """Leave the model of a stage for the next one; a run that is cut off later does not come back to it."""
    clock.stop()
    if trainer.args.should_save:
        part = folder / f"{_MODEL}.part"
        shutil.rmtree(part, ignore_errors=True)
        trainer.plm.save_pretrained(part)
        (part / _RESULT).write_text(json.dumps(result))
        os.replace(part, folder / _MODEL)
    trainer.accelerator.wait_for_everyone()


def _cost(stages: tuple[Stage, ...], results: list[dict], seconds: dict[str, float]) -> dict:
    """Totals over the stages (refilling included in the seconds), and each stage by itself."""
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


def _make_trainer(
    config: RunConfig, stage: Stage, plm: SharedPLM, examples: Dataset, folder: Path, callbacks: list[TrainerCallback]
) -> ObjectiveTrainer:
    slices = _slices(config)
    steps = max(1, round(-(-len(examples) // config.batch_size) * config.epochs))
    log_every = max(1, steps // 100)
    arguments = ObjectiveArguments(
        output_dir=str(folder),
        num_train_epochs=config.epochs,
        per_device_train_batch_size=config.batch_size // slices,
        gradient_accumulation_steps=config.accumulation,
        per_device_eval_batch_size=64,
        learning_rate=stage.rates.trunk,
        classifier_learning_rate=stage.rates.classifier,
        mlm_head_learning_rate=stage.rates.mlm_head,
        warmup_steps=config.warmup,
        weight_decay=config.weight_decay,
        max_grad_norm=1.0,
        update=config.update or "joint",
        gradient_diagnostics_steps=config.gradient_diagnostics_steps,
        seed=config.seed,
        bf16=config.precision == "bf16",
        use_cpu=precision()["use_cpu"],
        logging_steps=log_every,
        save_steps=log_every * max(1, round(max(50, steps / 10) / log_every)),  # or a resumed log would lack steps
        save_total_limit=1,
        disable_tqdm=not (sys.stderr.isatty() or environment.is_interactive()),
        logging_nan_inf_filter=False,
    )
    trainer = ObjectiveTrainer(plm, stage.objective, arguments, examples, callbacks=callbacks)
    for stock in (PrinterCallback, DEFAULT_PROGRESS_CALLBACK):
        trainer.remove_callback(stock)
    if not arguments.disable_tqdm:
        trainer.add_callback(_Bar)
    return trainer


def _evaluate(trainer: ObjectiveTrainer, name: str, dataset: Dataset, config: RunConfig) -> dict:
    logits = predict_with(trainer, dataset, config.eval_max_length)
    groups = dataset["group"] if "group" in dataset.column_names else [""] * len(dataset)
    return score(name, logits, np.asarray(dataset["label"]), list(groups), config.hans_rule)


class _Bar(ProgressCallback):
    """A bar without the log lines between: the record has them."""

    def on_log(self, *args, **kwargs):
        pass


class _Clock(TrainerCallback):
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
            write_atomically(self.file, json.dumps({"seconds": self.seconds, "interruptions": self.interruptions}))


def make_writable(out: Path) -> None:
    """See to it that there is a folder that files can be written to, or raise `UserError`."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error.strerror}; give another folder.") from error


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

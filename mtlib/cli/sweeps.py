"""`sweep`: many runs, of which those without a record are done."""

import math
import signal
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mtlib.cli.terminal import print_line, print_table
from mtlib.errors import UserError

if TYPE_CHECKING:
    from mtlib.runs.config import RunConfig
    from mtlib.sweeps.executors import LocalExecutor, Outcome, RayExecutor
    from mtlib.sweeps.store import Store
    from mtlib.sweeps.sweep_file import GridRun

_ALWAYS_SHOWN = ("task", "method", "model", "seed")
_NEVER_SHOWN = ("sets", "splits")
_OPTIONS_OF_ENGINE = {
    "local": ("processes", "minutes"),
    "ray": ("address", "cpus_per_run", "gpus_per_run"),
}


def sweep(
    context: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            help="YAML: lists of tasks, models, methods, seeds and any setting of `run`"
        ),
    ],
    out: Annotated[
        str, typer.Option(help="for records: a folder, or an address such as s3://bucket/folder")
    ] = "runs",
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="processes of this machine, or a Ray cluster")
    ] = "local",
    processes: Annotated[int, typer.Option(help="runs at once, for the local engine", min=1)] = 1,
    minutes: Annotated[
        float,
        typer.Option(
            help="after which no run is begun, for the local engine", show_default="no end"
        ),
    ] = math.inf,
    address: Annotated[
        str, typer.Option(help="of the Ray cluster; local: a new one on this machine")
    ] = "auto",
    cpus_per_run: Annotated[float, typer.Option(help="for Ray", min=0)] = 1,
    gpus_per_run: Annotated[
        float | None,
        typer.Option(help="for Ray", min=0, max=1, show_default="1 where the cluster has GPUs"),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            help="in place of the file's, but for grids with their own", show_default="the file's"
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="in place of the file's, but for grids with their own", show_default="the file's"
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="only list the runs, and how many minutes those to do may take"
        ),
    ] = False,
    reuse: Annotated[
        bool,
        typer.Option(
            "--reuse", help="take records that are there or shipped, whatever code made them"
        ),
    ] = False,
    keep_model: Annotated[
        bool,
        typer.Option(
            "--keep-model",
            help="keep every trained model beside its record; sets that are added to a task are "
            "then scored without training",
        ),
    ] = False,
) -> None:
    """Do every run of a grid that has no record yet.

    Exit code 1 if one fails; the others go on. 75 if --minutes left some undone.

    Examples:
        python -m mtlib sweep data/sweeps/testbed.yaml --dry-run
        python -m mtlib sweep data/sweeps/testbed.yaml --processes 2
    """
    from mtlib.runs.records import check_keeping
    from mtlib.sweeps import executors, sweep_file
    from mtlib.sweeps.store import Store

    _check_options(context, engine)
    overrides = {}
    if source is not None:
        overrides["source"] = source
    if model is not None:
        overrides["models"] = model
    check_keeping(reuse, keep_model)
    store = Store(out, reuse, keep_model)
    runs = sweep_file.identify(sweep_file.expand(file, **overrides))
    if dry_run:
        _print_plan(runs, store)
        return
    _check_code(runs, store)
    store.check_writable()  # before an engine starts anything
    if engine == "local":
        executor = executors.LocalExecutor(store, processes, minutes)
    else:
        _check_precision(runs, file)
        executor = executors.RayExecutor(store, address, cpus_per_run, gpus_per_run)
    # a job scheduler's stop ends the runs, as Ctrl-C does
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    outcomes = _execute(runs, executor, store)
    _print_summary(outcomes, store)
    raise typer.Exit(_exit_code(outcomes))


def _print_plan(runs: Sequence["GridRun"], store: "Store") -> None:
    states = [_state(run, store) for run in runs]
    minutes = _minutes(runs, states)
    columns = _columns([run.config for run in runs])
    alike = {name for name, values in columns.items() if len({*map(repr, values)}) == 1}
    if alike:
        named = [f"{name} {values[0]}" for name, values in columns.items() if name in alike]
        print_line(f"all with {', '.join(named)}")
    shown = {name: values for name, values in columns.items() if name not in alike}
    shown |= {"record": states, "minutes": map(_minutes_shown, minutes)}
    print_table(f"{len(runs)} runs", shown, zip(*shown.values(), strict=True))
    _print_sums(runs, states, minutes)


def _print_sums(
    runs: Sequence["GridRun"], states: Sequence[str], minutes: Sequence[float | None]
) -> None:
    """How long the runs to do take, and how many of them have a shipped record."""
    total = sum(number or 0 for number in minutes)
    if not math.isnan(total):
        print_line(f"{_minutes_shown(total)} minutes one after the other")
    to_do = [run for run, state in zip(runs, states, strict=True) if state == "to do"]
    if n_shipped := sum(run.shipped for run in to_do):
        print_line(f"{n_shipped} of those to do have a shipped record, which --reuse takes")


def _check_options(context: typer.Context, engine: str) -> None:
    """Raise `UserError` for an option of the other engine, which would count nowhere."""
    (other,) = _OPTIONS_OF_ENGINE.keys() - {engine}
    for name in _OPTIONS_OF_ENGINE[other]:
        if context.get_parameter_source(name).name == "COMMANDLINE":
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{option} is for --engine {other}, not {engine}; leave it out.")


def _check_precision(runs: Sequence["GridRun"], file: Path) -> None:
    """Raise `UserError` where machines of a cluster could choose differently."""
    if any(run.config.precision == "auto" for run in runs):
        raise UserError(
            f"{file}: precision is 'auto', which each machine of a cluster may take for something "
            "else; give `precision: bf16` or `precision: float32`."
        )


def _execute(
    runs: Sequence["GridRun"], executor: "LocalExecutor | RayExecutor", store: "Store"
) -> list["Outcome"]:
    """Do the runs, with a line for each that has ended."""
    from mtlib.sweeps import executors

    outcomes = []
    # closing ends what is running, also where printing is stopped
    with closing(executors.execute(runs, executor, store)) as ended:
        for outcome in ended:
            outcomes.append(outcome)
            if outcome.status not in ("there", "reused", "left"):
                name = Path(outcome.run.file).stem
                line = f"[{len(outcomes)} of {len(runs)}] {outcome.status:8} {name}"
                print_line(f"{line}  {outcome.detail}".rstrip())
    return outcomes


def _print_summary(outcomes: Sequence["Outcome"], store: "Store") -> None:
    """What became of the runs, and what to do about those that did not end well."""
    from mtlib.sweeps.store import OTHER_CODE

    counts = Counter(outcome.status for outcome in outcomes)
    shown = dict.fromkeys(["there", "written", "diverged", "failed", *counts])
    shown.pop("left", None)
    numbers = ", ".join(f"{counts[status]} {status}" for status in shown)
    print_line(f"{len(outcomes)} runs: {numbers}; records in {store.address}")
    if store.reuse:
        reused = [outcome for outcome in outcomes if outcome.status in ("there", "reused")]
        _print_origins([outcome.run.file for outcome in reused], store)
    if counts[OTHER_CODE]:
        print_line(f"{OTHER_CODE}: it has made records here meanwhile, which --reuse takes")
    if counts["diverged"]:
        print_line("diverged: the loss was not finite; try a lower learning rate")
    if counts["left"]:
        print_line(
            f"{counts['left']} left: time was up before they began; the same command does them"
        )
    _print_failures(outcomes, store)


def _print_failures(outcomes: Sequence["Outcome"], store: "Store") -> None:
    for outcome in outcomes:
        if outcome.status == "failed":
            print_line(f"failed: {Path(outcome.run.file).stem}\n  {outcome.detail}")
            print_line(f"  log: {store.log(outcome.run.file)}")


def _exit_code(outcomes: Sequence["Outcome"]) -> int:
    from mtlib.runs.locks import Busy
    from mtlib.sweeps.store import OTHER_CODE

    statuses = {outcome.status for outcome in outcomes}
    if statuses & {"failed", OTHER_CODE}:
        return 1
    return Busy.EXIT_CODE if "left" in statuses else 0


def _check_code(runs: Sequence["GridRun"], store: "Store") -> None:
    """Raise `UserError` where other code has made records that are not to be reused."""
    from mtlib.sweeps.store import OTHER_CODE

    files = [run.file for run in runs if _state(run, store) == OTHER_CODE]
    if files:
        raise UserError(
            f"of {len(runs)} runs {len(files)} have a record in {store.address} that other code "
            f"made, such as {files[0]}, made at {store.origin(files[0])}. Give --reuse to take "
            "them, or another --out to train; nothing was begun."
        )


def _print_origins(files: Sequence[str], store: "Store") -> None:
    """Where records that were taken in place of training were made."""
    for origin, n in Counter(store.origin(file) for file in files).items():
        print_line(f"nothing was trained for {n}: made at {origin}")


def _columns(configs: Sequence["RunConfig"]) -> dict[str, list]:
    """The settings that tell the runs of a sweep apart, with the value of every run.

    It is None where a run does not read the setting.
    """
    from mtlib.runs.config import all_settings, effective_settings

    rows = [effective_settings(config.values()) for config in configs]
    columns = {}
    for name in all_settings():
        different = {repr(row[name]) for row in rows if name in row}
        if name in _ALWAYS_SHOWN or (len(different) > 1 and name not in _NEVER_SHOWN):
            columns[name] = [row.get(name) for row in rows]
    columns["model"] = [Path(config.model).name for config in configs]
    return columns


def _minutes_shown(minutes: float | None) -> str:
    if minutes is None:
        return ""
    if math.isnan(minutes):
        return "?"
    return f"{minutes:.0f}" if minutes >= 10 else f"{minutes:.1f}"


def _minutes(runs: Sequence["GridRun"], states: Sequence[str]) -> list[float | None]:
    """How long the training of runs to do takes if it goes as in the project's records.

    Those of the same task, method and model count, made on a GPU as here, or on none as here. NaN
    where there is none, and None for a run that is not to do.
    """
    import torch

    from mtlib.runs.records import shipped_records
    from mtlib.sweeps.sweep_file import n_examples

    on_gpu = torch.cuda.is_available()
    seconds = defaultdict(list)  # of all stages, for each example of one
    for record in shipped_records().values():
        if record["environment"]["device"].startswith("NVIDIA") != on_gpu:
            continue
        config = record["config"]
        kind = tuple(config[name] for name in ("task", "method", "model"))
        examples = n_examples(config["epochs"], record["data"]["train"])
        seconds[kind].append(record["cost"]["train_seconds"] / examples)
    minutes = []
    for run, state in zip(runs, states, strict=True):
        kind = (run.config.task, run.config.method, Path(run.config.model).name)
        if state != "to do":
            minutes.append(None)
        elif kind in seconds:
            minutes.append(run.examples * median(seconds[kind]) / 60)
        else:
            minutes.append(math.nan)
    return minutes


def _state(run: "GridRun", store: "Store") -> str:
    state = store.state(run.file, run.config.precision)
    if state is not None:
        return "there" if state == "written" else state
    if store.holder(run.file):
        return "running"
    return "shipped" if run.shipped and store.reuse else "to do"

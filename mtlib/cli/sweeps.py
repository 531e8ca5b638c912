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
    from mtlib.sweeps.engines import Outcome
    from mtlib.sweeps.store import Store
    from mtlib.sweeps.sweep_file import GridRun

_ALWAYS_SHOWN, _NEVER_SHOWN = ("task", "method", "model", "seed"), ("sets", "splits")


def sweep(
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
        str | None, typer.Option(help="in place of the file's", show_default="the file's")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="in place of the file's", show_default="the file's")
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
) -> None:
    """Do every run of a grid that has no record yet.

    Exit code 1 if one fails; the others go on. 75 if --minutes left some undone.
    """
    from mtlib.sweeps import engines, sweep_file
    from mtlib.sweeps.store import Store

    instead = {
        key: value for key, value in (("source", source), ("models", model)) if value is not None
    }
    store, runs = Store(out, reuse), sweep_file.identify(sweep_file.expand(file, **instead))
    if dry_run:
        states = [_state(run, store) for run in runs]
        columns = _columns([run.config for run in runs]) | {
            "record": states,
            "minutes": _minutes(runs, states),
        }
        print_table(f"{len(runs)} runs", columns, zip(*columns.values(), strict=True))
        shipped = sum(
            run.shipped and state == "to do" for run, state in zip(runs, states, strict=True)
        )
        if shipped:
            print_line(f"{shipped} of those to do have a shipped record, which --reuse takes")
        return
    _check_code(runs, store)
    store.check_writable()  # before an engine starts anything
    if engine == "local":
        does = engines.LocalEngine(store, processes, minutes)
    else:
        if any(run.config.precision == "auto" for run in runs):
            raise UserError(
                f"{file}: precision is 'auto', which each machine of a cluster may take for something else; give "
                "`precision: bf16` or `precision: float32`."
            )
        does = engines.RayEngine(store, address, cpus_per_run, gpus_per_run)
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # a job scheduler's stop ends the runs, as Ctrl-C does
    outcomes = []
    with closing(
        engines.execute(runs, does, store)
    ) as ended:  # ends what is running, also where printing is stopped
        for outcome in ended:
            outcomes.append(outcome)
            if outcome.status not in ("there", "reused", "left"):
                done = f"[{len(outcomes)} of {len(runs)}] {outcome.status:8} {Path(outcome.run.file).stem}"
                print_line(f"{done}  {outcome.detail}".rstrip())
    raise typer.Exit(_summary(outcomes, store))


def _summary(outcomes: Sequence["Outcome"], store: "Store") -> int:
    """Print what became of the runs; the exit code."""
    from mtlib.runs.records import Busy
    from mtlib.sweeps.store import OTHER_CODE

    counts = Counter(outcome.status for outcome in outcomes)
    shown = dict.fromkeys(["there", "written", "diverged", "failed", *counts])
    told = ", ".join(f"{counts[status]} {status}" for status in shown if status != "left")
    print_line(f"{len(outcomes)} runs: {told}; records in {store.address}")
    if store.reuse:
        _tell_origins(
            [outcome.run.file for outcome in outcomes if outcome.status in ("there", "reused")],
            store,
        )
    if counts[OTHER_CODE]:
        print_line(f"{OTHER_CODE}: it has made records here meanwhile, which --reuse takes")
    if counts["diverged"]:
        print_line("diverged: the loss was not finite; try a lower learning rate")
    if counts["left"]:
        print_line(
            f"{counts['left']} left: time was up before they began; the same command does them"
        )
    for outcome in outcomes:
        if outcome.status == "failed":
            print_line(f"failed: {Path(outcome.run.file).stem}\n  {outcome.detail}")
            print_line(f"  log: {store.log(outcome.run.file)}")
    if counts["failed"] or counts[OTHER_CODE]:
        return 1
    return Busy.EXIT_CODE if counts["left"] else 0


def _check_code(runs: Sequence["GridRun"], store: "Store") -> None:
    """Raise `UserError` where records are there that other code has made, and that are not to be reused."""
    from mtlib.sweeps.store import OTHER_CODE

    files = [run.file for run in runs if store.state(run.file) == OTHER_CODE]
    if files:
        raise UserError(
            f"of {len(runs)} runs {len(files)} have a record in {store.address} that other code made, such as "
            f"{files[0]}, made at {store.origin(files[0])}. Give --reuse to take them, or another --out to train; "
            "nothing was begun."
        )


def _tell_origins(files: Sequence[str], store: "Store") -> None:
    """Print where records that were taken in place of training were made."""
    for origin, n in Counter(store.origin(file) for file in files).items():
        print_line(f"nothing was trained for {n}: made at {origin}")


def _columns(configs: Sequence["RunConfig"]) -> dict[str, list]:
    """The settings that tell the runs of a sweep apart, with every run's value; None where a run does not read it."""
    from mtlib.runs.config import all_settings

    values = [config.values() for config in configs]
    names = [
        name
        for name in all_settings()
        if name in _ALWAYS_SHOWN or len({repr(of[name]) for of in values if name in of}) > 1
        if name not in _NEVER_SHOWN
    ]
    models = [Path(config.model).name for config in configs]
    return {name: [of.get(name) for of in values] for name in names} | {"model": models}


def _minutes(runs: Sequence["GridRun"], states: Sequence[str]) -> list[str]:
    """What the training of runs to do takes if it goes as in the project's records of its task, method and model."""
    from mtlib.runs.records import shipped_records

    seconds = defaultdict(list)  # of training, for each example that is seen
    for record in shipped_records().values():
        kind = tuple(record["config"][name] for name in ("task", "method", "model"))
        seconds[kind].append(record["cost"]["train_seconds"] / record["cost"]["examples_seen"])
    per_run = [
        seconds.get((run.config.task, run.config.method, Path(run.config.model).name))
        for run in runs
    ]
    return [
        "" if state != "to do" else f"{run.examples * median(of_kind) / 60:.0f}" if of_kind else "?"
        for run, state, of_kind in zip(runs, states, per_run, strict=True)
    ]


def _state(run: "GridRun", store: "Store") -> str:
    if (state := store.state(run.file)) is not None:
        return "there" if state == "written" else state
    if store.holder(run.file):
        return "running"
    return "shipped" if run.shipped and store.reuse else "to do"

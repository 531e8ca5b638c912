"""`sweep` and `study`: many runs, of which those without a record are done."""

import signal
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from mtlib.cli.terminal import console
from mtlib.errors import UserError


class EngineName(StrEnum):
    local = "local"
    ray = "ray"


def sweep(
    file: Annotated[Path, typer.Argument(help="YAML: lists of tasks, models, methods, seeds and any setting of `run`")],
    out: Annotated[str, typer.Option(help="for records: a folder, or an address such as s3://bucket/folder")] = "runs",
    engine: Annotated[EngineName, typer.Option(help="processes of this machine, or a Ray cluster")] = EngineName.local,
    processes: Annotated[int | None, typer.Option(help="runs at once, for the local engine", show_default="1")] = None,
    address: Annotated[
        str | None, typer.Option(help="of the Ray cluster; local: a new one on this machine", show_default="auto")
    ] = None,
    cpus_per_run: Annotated[float | None, typer.Option(help="for Ray", show_default="1")] = None,
    gpus_per_run: Annotated[
        float | None, typer.Option(help="for Ray, 0 to 1", show_default="1 where the cluster has GPUs")
    ] = None,
    retries: Annotated[int, typer.Option(help="how often a run is taken up again whose process was killed")] = 2,
    source: Annotated[str | None, typer.Option(help="in place of the file's", show_default="the file's")] = None,
    model: Annotated[str | None, typer.Option(help="in place of the file's", show_default="the file's")] = None,
    only: Annotated[
        str | None, typer.Option(help="runs by the numbers of the dry run: 3,10-12", show_default="all")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only list the runs, with estimated costs")] = False,
) -> None:
    """Run every configuration of a grid that has no record yet. Exit code 1 if one fails; the others go on."""
    from mtlib.sweeps import engines, grid, progress, sweep_file
    from mtlib.sweeps.store import Store

    _check_engine_options(engine, processes, address, cpus_per_run, gpus_per_run, retries)
    instead = {key: value for key, value in (("source", source), ("models", model)) if value is not None}
    configs, store = sweep_file.expand(file, **instead), Store(out)
    numbers = range(1, len(configs) + 1) if only is None else grid.numbers_of_runs(only, len(configs))
    configs = [configs[number - 1] for number in numbers]
    grid_runs, trouble = grid.identify(configs)
    if dry_run:
        progress.dry_run(console, grid_runs, trouble, store, numbers)
        return
    if trouble is not None:
        raise UserError(f"{file}: {trouble}")
    if engine is EngineName.local:
        make_engine = partial(engines.LocalEngine, store, processes or 1, retries)
    else:
        from mtlib.sweeps.ray_engine import RayEngine

        if any(config.precision == "auto" for config in configs):
            raise UserError(
                f"{file}: precision is 'auto', which each machine of a cluster may take for something else; give "
                "`precision: bf16` or `precision: float32`."
            )
        make_engine = partial(RayEngine, store, address or "auto", cpus_per_run or 1, gpus_per_run, retries)
    _stop_runs_on_sigterm()
    _end(progress.carry_out(console, grid_runs, store, make_engine))


def _check_engine_options(
    engine: EngineName,
    processes: int | None,
    address: str | None,
    cpus_per_run: float | None,
    gpus_per_run: float | None,
    retries: int,
) -> None:
    for_ray = {"--address": address, "--cpus-per-run": cpus_per_run, "--gpus-per-run": gpus_per_run}
    for option, value in ({"--processes": processes} if engine is EngineName.ray else for_ray).items():
        if value is not None:
            raise UserError(f"{option} is {value!r}, but --engine {engine} does not read it; leave it out.")
    for option, value in (("--processes", processes), ("--cpus-per-run", cpus_per_run)):
        if value is not None and not value > 0:
            raise UserError(f"{option} is {value!r}; expected a number above 0.")
    if retries < 0:
        raise UserError(f"--retries is {retries}; expected 0 or more.")
    if gpus_per_run is not None and not 0 <= gpus_per_run <= 1:
        raise UserError(
            f"--gpus-per-run is {gpus_per_run:g}; expected 0 to 1, for a run drives one GPU. Several GPUs in one run: "
            "`accelerate launch -m mtlib run ...`."
        )


def study(
    source: Annotated[str, typer.Argument(help="folder of original releases, or hub")],
    model: Annotated[str, typer.Option(help="mini (bundled), a hub id or a folder")] = "mini",
    size: Annotated[str, typer.Option(help="training examples: smoke (16), cpu, full (all)")] = "cpu",
    task: Annotated[list[str] | None, typer.Option(help="repeatable", show_default="all three")] = None,
    block: Annotated[list[str] | None, typer.Option(help="what after the grid, repeatable", show_default="all")] = None,
    out: Annotated[Path, typer.Option(help="folder for records")] = Path("runs/study"),
    processes: Annotated[int, typer.Option(help="runs at once")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only list the runs, with estimated costs")] = False,
) -> None:
    """The study of data/results/PLAN.md: a grid of learning rates, then every arm at its best one. Resumable."""
    from mtlib.study import execution
    from mtlib.study import plan as plan_of
    from mtlib.sweeps.store import Store

    if processes < 1:
        raise UserError(f"--processes is {processes}; expected 1 or more.")
    chosen, store = plan_of.Study(source, model, size, tuple(task or plan_of.TASKS)), Store(str(out))
    blocks = list(chosen.runs({}))
    for name in block or []:
        if name not in blocks:
            raise UserError(f"--block is {name!r}; expected one of {', '.join(blocks)}.")
    if dry_run:
        execution.dry_run(console, chosen, block or blocks, store)
        return
    _stop_runs_on_sigterm()
    _end(execution.carry_out(console, chosen, block or blocks, store, processes))


def _end(succeeded: bool) -> None:
    """Exit code 1 if a run has failed."""
    if not succeeded:
        raise typer.Exit(1)


def _stop_runs_on_sigterm() -> None:
    """So that a job scheduler's stop ends the runs too, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)

"""`sweep`: many runs, of which those without a record are done."""

import math
import signal
from pathlib import Path
from typing import Annotated, Literal

import typer

from mtlib.cli.terminal import console
from mtlib.errors import UserError


def sweep(
    file: Annotated[Path, typer.Argument(help="YAML: lists of tasks, models, methods, seeds and any setting of `run`")],
    out: Annotated[str, typer.Option(help="for records: a folder, or an address such as s3://bucket/folder")] = "runs",
    engine: Annotated[
        Literal["local", "ray"], typer.Option(help="processes of this machine, or a Ray cluster")
    ] = "local",
    processes: Annotated[int, typer.Option(help="runs at once, for the local engine", min=1)] = 1,
    minutes: Annotated[
        float | None, typer.Option(help="after which no run is begun, for the local engine", show_default="no end")
    ] = None,
    address: Annotated[str, typer.Option(help="of the Ray cluster; local: a new one on this machine")] = "auto",
    cpus_per_run: Annotated[float, typer.Option(help="for Ray", min=0)] = 1,
    gpus_per_run: Annotated[
        float | None, typer.Option(help="for Ray", min=0, max=1, show_default="1 where the cluster has GPUs")
    ] = None,
    retries: Annotated[int, typer.Option(help="how often a run is taken up again whose process was killed", min=0)] = 2,
    source: Annotated[str | None, typer.Option(help="in place of the file's", show_default="the file's")] = None,
    model: Annotated[str | None, typer.Option(help="in place of the file's", show_default="the file's")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only list the runs, with estimated costs")] = False,
) -> None:
    """Do every run of a grid that has no record yet.

    Exit code 1 if one fails; the others go on. 75 if --minutes left some undone.
    """
    from mtlib.sweeps import engines, grid, progress, sweep_file
    from mtlib.sweeps.store import Store

    instead = {key: value for key, value in (("source", source), ("models", model)) if value is not None}
    configs, store = sweep_file.expand(file, **instead), Store(out)
    grid_runs, trouble = grid.identify(configs)
    if dry_run:
        progress.dry_run(console, grid_runs, trouble, store)
        return
    if trouble is not None:
        raise trouble
    store.check_writable()  # before an engine starts anything
    if engine == "local":
        does = engines.LocalEngine(store, processes, retries, math.inf if minutes is None else minutes)
    else:
        from mtlib.sweeps.ray_engine import RayEngine

        if any(run.config.precision == "auto" for run in grid_runs):
            raise UserError(
                f"{file}: precision is 'auto', which each machine of a cluster may take for something else; give "
                "`precision: bf16` or `precision: float32`."
            )
        does = RayEngine(store, address, cpus_per_run, gpus_per_run, retries)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a job scheduler's stop ends the runs, as Ctrl-C does
    raise typer.Exit(progress.carry_out(console, grid_runs, store, does))

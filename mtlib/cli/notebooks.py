"""`notebooks`: run them, and grade those of students."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from mtlib.cli.terminal import console, named_values, print_line, print_table
from mtlib.errors import UserError

if TYPE_CHECKING:
    from mtlib.tutorial import runner

Profile = Literal["smoke", "cpu", "gpu", "paper"]  # a notebook's own parameter: how much it trains
_ON_A_CARD = ("gpu", "paper")  # which notebooks do not share
_AT_ONCE = 2  # a kernel takes 1 to 2 GB


def notebooks(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="such as 03 or 03_mask_tuning", show_default="all"),
    ] = None,
    profile: Annotated[Profile, typer.Option(help="how much is run")] = "cpu",
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "-p",
            "--parameter",
            help="NAME=VALUE, of the parameters cells; repeatable",
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(help="folder for executed copies, HTML and a summary"),
    ] = Path("build/notebooks"),
    list_parameters: Annotated[
        bool,
        typer.Option("--list", help="only list the parameters"),
    ] = False,
    student: Annotated[
        Path | None,
        typer.Option(
            help="only grade the notebooks in this folder, a subfolder for each student",
        ),
    ] = None,
) -> None:
    """Run the notebooks with papermill, two at a time; with a card (gpu, paper) one by one.

    An unknown parameter stops it before anything runs.

    Examples:
        python -m mtlib notebooks 03 06
        python -m mtlib notebooks 03 -p seed=1 --out build/seed_1
        python -m mtlib notebooks --list
    """
    from mtlib.tutorial import grading, runner

    if student is not None:
        if names or parameter:
            raise UserError("--student grades whatever is in a folder; leave out names and -p.")
        grading.grade_folder(student, profile, out / "students", print_line)
        return
    paths = runner.find(names or [])
    parameters = named_values(parameter or [], "-p", "alpha=0.7")
    if list_parameters:
        _list_parameters(paths)
        return
    if profile != "cpu":
        parameters["profile"] = profile
    at_once = 1 if profile in _ON_A_CARD else min(_AT_ONCE, len(paths), os.cpu_count() or 1)
    _run(paths, parameters, out, at_once)


def _list_parameters(paths: list[Path]) -> None:
    from papermill import inspect_notebook

    rows = []
    for path in paths:
        for name, declared in inspect_notebook(path).items():
            wanted = declared["inferred_type_name"]
            rows.append([path.stem, name, wanted, declared["default"], declared["help"]])
    print_table("parameters", ["notebook", "name", "type", "default", "meaning"], rows)


def _run(paths: list[Path], parameters: dict[str, str], out: Path, at_once: int) -> None:
    from mtlib.tutorial import runner

    if at_once > 1:  # they share the cores
        threads = max(1, (os.cpu_count() or 1) // at_once)
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))

    def report(result: runner.Result) -> None:
        seconds, cell = max(result.cells, default=(0, "none"))
        total = f"{result.name:16} {result.status:6} {result.seconds:4.0f} s"
        print_line(f"{total}; slowest cell {seconds:3.0f} s, {cell}")
        if result.expected:
            print_line(f"{'':16} {result.expected}")
        if result.error:
            print(result.error, file=sys.stderr)

    values = runner.check_parameters(paths, parameters)
    started = time.monotonic()
    with _progress(len(paths)) as progress:
        results = runner.run_notebooks(values, out, report, progress, at_once)
    minutes = (time.monotonic() - started) / 60
    print_line(f"{minutes:.1f} minutes; every cell in {out / 'summary.md'}")
    if any(result.status == "failed" for result in results):
        raise typer.Exit(1)


@contextmanager
def _progress(n_notebooks: int) -> Iterator["runner.Progress"]:
    """Prints a line when a notebook begins; on a terminal bars show how far they are."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("cells"),
        TimeElapsedColumn(),
    )
    bar_of: dict[str, TaskID] = {}
    # rich would send stderr to stdout
    with Progress(*columns, console=console, transient=True, redirect_stderr=False) as bars:

        def progress(name: str, done: int, total: int) -> None:
            if name not in bar_of:
                bar_of[name] = bars.add_task(name, total=total)
                print_line(f"{name:16} begins ({len(bar_of)} of {n_notebooks})")
            bars.update(bar_of[name], completed=done, visible=done < total)

        yield progress

"""`notebooks`: run them, and grade those of students."""

import os
import sys
import time
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.control import Control
from rich.segment import ControlType

from mtlib.cli.terminal import console, named_values, print_line, print_table
from mtlib.errors import UserError

Profile = Literal["smoke", "cpu", "gpu", "paper"]  # a notebook's own parameter: how much it trains
_ON_A_CARD = ("gpu", "paper")  # which notebooks do not share
_AT_ONCE = 2  # a kernel takes 1 to 2 GB
# a line is written in place of the progress bar of another notebook
_OVER_A_BAR = Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2))


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
        typer.Option(help="folder for executed copies and HTML"),
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
    parameters = named_values(parameter or [], "-p", "seed=1")
    if list_parameters:
        _list_parameters(paths)
        return
    if profile != "cpu":
        parameters["profile"] = profile
    at_once = min(_AT_ONCE, len(paths), os.cpu_count() or 1)
    if parameters.get("profile") in _ON_A_CARD:
        at_once = 1
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
        console.control(_OVER_A_BAR)
        print_line(f"{result.name:16} {result.status:6} {result.seconds:4.0f} s")
        if result.expected:
            print_line(f"{'':16} {result.expected}")
        if result.error:
            print(result.error, file=sys.stderr)

    values = runner.check_parameters(paths, parameters)
    started = time.monotonic()
    results = runner.run_notebooks(values, out, report, at_once)
    minutes = (time.monotonic() - started) / 60
    print_line(f"{minutes:.1f} minutes; executed copies and pages in {out}")
    if any(result.status == "failed" for result in results):
        raise typer.Exit(1)

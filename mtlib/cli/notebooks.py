"""`notebooks`: runs them, publishes them, grades those of students."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from mtlib.cli.terminal import console, named_values, print_line, rich_table
from mtlib.errors import UserError


def notebooks(
    names: Annotated[list[str] | None, typer.Argument(help="such as 03 or 03_mask_tuning", show_default="all")] = None,
    profile: Annotated[str, typer.Option(help="smoke, cpu, gpu or paper: how much is run")] = "cpu",
    parameter: Annotated[
        list[str] | None, typer.Option("-p", "--parameter", help="NAME=VALUE, of the parameters cells; repeatable")
    ] = None,
    out: Annotated[Path, typer.Option(help="folder for executed copies, HTML, summary and run records")] = Path(
        "build/notebooks"
    ),
    resume: Annotated[bool, typer.Option("--resume", help="keep what an earlier call in --out finished")] = False,
    list_parameters: Annotated[bool, typer.Option("--list", help="only list the parameters")] = False,
    publish: Annotated[
        bool, typer.Option("--publish", help="for maintainers: store the outputs in notebooks/ (cpu profile only)")
    ] = False,
    student: Annotated[
        Path | None, typer.Option(help="instead: grade the notebooks in this folder, a subfolder for each student")
    ] = None,
) -> None:
    """Run the notebooks in order with papermill. An unknown parameter stops it before anything runs."""
    from mtlib.runs import profiles
    from mtlib.tutorial import grading, publishing, runner

    cell_minutes = profiles.cell_minutes(profile)  # an unknown profile is told before the first notebook runs
    if student is not None:
        if names or parameter or resume or list_parameters or publish:
            raise UserError("--student grades the notebooks of a folder; give only --profile and --out beside it.")
        grading.grade_folder(student, profile, out / "students", print_line)
        return
    paths = runner.find(names or [])
    if list_parameters:
        rows = [
            [path.stem, name, about["inferred_type_name"], about["default"], about["help"]]
            for path in paths for name, about in runner.parameters_of(path).items()
        ]  # fmt: skip
        console.print(rich_table("parameters", ["notebook", "name", "type", "default", "meaning"], rows))
        return
    texts = named_values(parameter or [], "-p", "alpha=0.7")
    if "profile" in texts:
        raise UserError("give the profile with --profile, not with -p.")
    if publish and (profile != "cpu" or texts or resume or (out / "runs").exists()):
        raise UserError(
            "--publish stores a fresh run of the cpu profile: leave out --resume, -p and other profiles, and give an "
            f"--out without earlier runs ({out / 'runs'})."
        )
    values = runner.check_parameters(paths, texts if profile == "cpu" else {**texts, "profile": profile})
    sources = {path.stem: path for path in paths}

    def report(result: runner.Result) -> None:
        console.print(f"{result.name:24} {result.status:8} {result.seconds / 60:6.1f} min", highlight=False)
        if result.error:
            print(result.error, file=sys.stderr)
        elif publish:
            publishing.publish(out / f"{result.name}.ipynb", sources[result.name], result.seconds)

    results = runner.run_notebooks(values, out, cell_minutes, resume, report)
    total = sum(result.seconds for result in results if result.status != "kept")
    rows = [
        [result.name, result.status, f"{result.seconds / 60:.1f}",
         "\n".join(f"{seconds:5.0f} s  {where}" for seconds, where in result.slowest())] for result in results
    ]  # fmt: skip
    columns = ["notebook", "status", "minutes", "slowest cells"]
    console.print(rich_table(f"{total / 60:.1f} minutes; every cell in {out / 'summary.md'}", columns, rows))
    if any(result.status == "failed" for result in results):
        raise typer.Exit(1)

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
    from mtlib.tutorial import runner

    if student is not None:
        if names or parameter or resume or list_parameters or publish:
            raise UserError("--student grades the notebooks of a folder; give only --profile and --out beside it.")
        _grade(student, profile, out)
        return
    paths = runner.find(names or [])
    if list_parameters:
        _print_parameters(paths)
        return
    texts = named_values(parameter or [], "-p", "alpha=0.7")
    if "profile" in texts:
        raise UserError("give the profile with --profile, not with -p.")
    results = _run_notebooks(paths, profile, texts, out, resume, publish)
    _print_results(results, out)
    if any(result.status == "failed" for result in results):
        raise typer.Exit(1)


def _grade(students: Path, profile: str, out: Path) -> None:
    from mtlib.runs import profiles
    from mtlib.tutorial import grading

    profiles.load(profile)  # an unknown one is told before the first notebook runs
    grading.grade_folder(students, profile, out / "students", print_line)


def _print_parameters(notebook_paths: list[Path]) -> None:
    from mtlib.tutorial import runner

    console.print(rich_table("parameters", ["notebook", "name", "type", "default", "meaning"], [
        [path.stem, name, about["inferred_type_name"], about["default"], about["help"]]
        for path in notebook_paths for name, about in runner.parameters_of(path).items()]))  # fmt: skip


def _run_notebooks(
    paths: list[Path], profile: str, texts: dict[str, str], out: Path, resume: bool, publish: bool
) -> list:
    """Everything that can be checked is checked before the first notebook runs."""
    from mtlib.runs import profiles
    from mtlib.tutorial import publishing, runner

    silent_minutes = profiles.silent_minutes(profile)
    values = runner.check_parameters(paths, texts if profile == "cpu" else {**texts, "profile": profile})
    if publish and (profile != "cpu" or texts or resume):
        raise UserError("--publish stores a fresh run of the cpu profile; leave out --resume, -p and other profiles.")
    if publish and (out / "runs").exists():
        raise UserError(f"--publish stores a fresh run, but {out / 'runs'} has earlier ones; delete it, or give --out.")
    sources = {path.stem: path for path in paths}

    def report(result: runner.Result) -> None:
        console.print(f"{result.name:24} {result.status:8} {result.seconds / 60:6.1f} min", highlight=False)
        if result.error:
            print(result.error, file=sys.stderr)
        elif publish:
            publishing.publish(out / f"{result.name}.ipynb", sources[result.name], result.seconds)

    results = runner.run_notebooks(values, out, silent_minutes, resume, report)
    if publish:
        publishing.update_readme()
    return results


def _print_results(results: list, out: Path) -> None:
    total = sum(result.seconds for result in results if result.status != "kept")
    console.print(rich_table(f"{total / 60:.1f} minutes, {out}", ["notebook", "status", "minutes", "slowest cells"], [
        [result.name, result.status, f"{result.seconds / 60:.1f}",
         "\n".join(f"{seconds:5.0f} s  {where}" for seconds, where in result.slowest)]
        for result in results]))  # fmt: skip

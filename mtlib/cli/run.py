"""`run`, whose options are the settings of a run and of all methods."""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, get_args

import typer
from pydantic.fields import FieldInfo

from mtlib.cli.terminal import console, named_values, print_line
from mtlib.methods import METHODS, readers
from mtlib.runs import run as runs
from mtlib.runs.config import all_settings, configure
from mtlib.runs.records import read_records

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _option(name: str, field: FieldInfo) -> inspect.Parameter:
    """The option of a setting: text, which the setting's model reads, but for flags and lists."""
    kind, flag, text = str | None, f"--{name.replace('_', '-')}", field.description
    if name == "shared":
        kind, flag, text = bool, "--separate", "two trunks instead of a shared one"
    elif field.annotation is bool:
        kind = bool
    elif name in ("sets", "splits"):
        kind, flag = list[str] | None, "--sets" if name == "sets" else "--split"
    elif name == "method":
        text = f"{text}: {', '.join(METHODS)}"
    elif all(isinstance(choice, str) for choice in get_args(field.annotation)):
        text = ": ".join([text, ", ".join(get_args(field.annotation))]).removesuffix(": ")
    reading = readers(name)
    if reading:
        others = [method for method in METHODS if method not in reading]
        text += f" (not {', '.join(others)})" if len(others) < len(reading) else f" ({', '.join(reading)})"
    needed = field.is_required() and not reading
    option = typer.Option(
        flag, help=text, show_default=_defaults(name, field), metavar="VALUE" if kind == str | None else None,
        rich_help_panel="Settings of methods" if reading else None,
    )  # fmt: skip
    default = inspect.Parameter.empty if needed else False if kind is bool else None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[str if needed else kind, option]
    )


def _defaults(name: str, field: FieldInfo) -> str | bool:
    """What is taken where nothing is given; False where that depends on the task or is nothing."""
    models = [METHODS[method].settings.model_fields for method in readers(name)] or [{name: field}]
    values = {str(model[name].default) for model in models if not model[name].is_required()}
    return " or ".join(sorted(values - {"None", "False", "True", "()", "PydanticUndefined"})) or False


def _with_run_options(command: Callable) -> Callable:
    """The command with the options of a run before its own."""
    parameters = [p for p in inspect.signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = [_option(name, field) for name, field in all_settings().items()]
    options += [p.replace(kind=p.KEYWORD_ONLY) for p in parameters]
    command.__signature__ = inspect.Signature(options)
    command.__annotations__ = {option.name: option.annotation for option in options}
    return command


@app.command()
@_with_run_options
def run(
    out: Annotated[Path, typer.Option(help="folder for records")] = Path("runs"),
    restart: Annotated[bool, typer.Option("--restart", help="do not resume an interrupted run")] = False,
    keep_model: Annotated[Path | None, typer.Option(help="write the trained model here")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="train also what the project has the record of")] = False,
    **chosen,
) -> None:
    """Train, evaluate and write one record. A finished run is skipped, an interrupted one resumes."""
    separate = chosen.pop("shared")
    splits = named_values(chosen.pop("splits") or [], "--split", "imdb_contrast=test")
    given = {name: value for name, value in chosen.items() if value not in (None, False)}
    config = configure(**given, splits=splits, **({"shared": False} if separate else {}))
    path, was_there = runs.run(config, out, resume=not restart, keep_model=keep_model, fresh=fresh)
    if os.environ.get("RANK", "0") != "0":  # of several processes, one reports
        return
    record = read_records([path])[0]
    made = record["environment"]
    if was_there and fresh:
        print_line("this run was trained, not copied: --fresh leaves it as it is; give another --out to train it again")
    print_line(
        f"already there, made on {made['device']} at {made['commit']}: {path}" if was_there else f"written: {path}"
    )
    if record.get("diverged"):
        console.print("  the loss was no longer finite: the run has diverged, try a lower learning rate")
    for name, metrics in record["metrics"].items():
        console.print(f"  {name:24} {100 * metrics['accuracy']:6.2f} %  ({metrics['correct']} of {metrics['n']})")

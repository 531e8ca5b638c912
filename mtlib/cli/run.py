"""`run`, whose options are the settings of a run and of all methods."""

import dataclasses
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, get_args, get_origin

import typer

from mtlib import settings
from mtlib.cli.terminal import console, named_values, print_line
from mtlib.methods import METHODS, readers, settings_of_any_method
from mtlib.runs.config import all_settings

# settings that not every method reads, with the methods that do
_READ_BY = {name: readers(name) for name in settings_of_any_method()}
# the headings of `run --help`; an option stands below that of the first of these that declares it
_HEADINGS = {
    settings.MaskingSettings: "Masking and filling",
    settings.PerturbationSettings: "Masking and filling",
    settings.SharedTrunkSettings: "Masking and filling",
    settings.EquationSettings: "Mask-tuning",
    settings.BiasSettings: "Methods with a bias model",
    settings.ProductOfExpertsSettings: "Methods with a bias model",
    settings.LearnedMixinSettings: "Methods with a bias model",
    settings.ConfidenceRegularizationSettings: "Methods with a bias model",
    settings.TwoViewsSettings: "Span Cutoff and HiddenCut",
    settings.ParsingSettings: "IPT",
    settings.IntermediateSettings: "Intermediate pre-training",
}


def _run_options() -> list[inspect.Parameter]:
    """An option for every setting of a run and of the methods, with the help that stands beside it."""
    options = []
    for name, (hint, text, default, _) in all_settings().items():
        kind, option, value, shown = hint, f"--{name.replace('_', '-')}", default, True
        if get_origin(hint) is Literal:
            kind, text = str, f"{text}: {', '.join(get_args(hint))}"
        elif name == "method":
            text = f"{text}: {', '.join(METHODS)}"
        elif name == "shared":
            kind, option, value, text = bool, "--separate", False, "two trunks instead of a shared one"
        elif name in ("sets", "splits"):
            kind, value, option = list[str] | None, None, "--sets" if name == "sets" else "--split"
        if name in _READ_BY:
            others = [method for method in METHODS if method not in _READ_BY[name]]
            rule = f"not {', '.join(others)}" if len(others) < len(_READ_BY[name]) else ", ".join(_READ_BY[name])
            text = f"{text} ({rule})"
            value = None if name != "shared" else False  # what is not given is the method's own default
            kind = kind if name == "shared" else kind | None
            shown = (_defaults(name) if name != "shared" else "") or True
        if value is dataclasses.MISSING:
            value = inspect.Parameter.empty
        heading = next((words for cls, words in _HEADINGS.items() if name in cls.__annotations__), None)
        help_beside = typer.Option(option, help=text, show_default=shown, rich_help_panel=heading)
        annotation = Annotated[kind, help_beside]
        options.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=annotation))
    return options


def _defaults(name: str) -> str:
    """What methods take for a setting that is not given, "" where that depends on the task or is nothing."""
    values = {getattr(METHODS[method].settings, name, None) for method in _READ_BY[name]} - {None, False}
    return " or ".join(str(value) for value in sorted(values))


def _with_run_options(command: Callable) -> Callable:
    """The command with the options of a run before its own."""
    parameters = [p for p in inspect.signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = [*_run_options(), *(p.replace(kind=p.KEYWORD_ONLY) for p in parameters)]
    command.__signature__ = inspect.Signature(options)
    command.__annotations__ = {option.name: option.annotation for option in options}
    return command


@_with_run_options
def run(
    out: Annotated[Path, typer.Option(help="folder for records")] = Path("runs"),
    restart: Annotated[bool, typer.Option("--restart", help="do not resume an interrupted run")] = False,
    keep_model: Annotated[Path | None, typer.Option(help="write the trained model here")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="train also what the project has the record of")] = False,
    **chosen,
) -> None:
    """Train, evaluate and write one record. A finished run is skipped, an interrupted one resumes."""
    from mtlib.runs.config import configure
    from mtlib.runs.records import read_records
    from mtlib.runs.run import run

    chosen["shared"] = False if chosen["shared"] else None  # the option says --separate
    chosen = {name: value for name, value in chosen.items() if value is not None or name not in _READ_BY}
    chosen["sets"] = tuple(chosen["sets"] or ())
    chosen["splits"] = named_values(chosen["splits"] or [], "--split", "imdb_contrast=test")
    path, was_there = run(configure(**chosen), out, resume=not restart, keep_model=keep_model, fresh=fresh)
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

"""`run`, whose options are the settings of a run and of all methods."""

import os
from pathlib import Path
from typing import Annotated

import typer

from mtlib.cli.options import default_shown, described, with_options
from mtlib.cli.terminal import console, named_values, print_line
from mtlib.methods import METHODS, readers
from mtlib.runs import run as runs
from mtlib.runs.config import RunConfig, all_settings, configure
from mtlib.runs.records import read_records

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _of_methods(name: str) -> dict[str, str]:
    """What the option of a method's setting says beside its description."""
    reading = readers(name)
    others = [method for method in METHODS if method not in reading]
    who = f"not {', '.join(others)}" if len(others) < len(reading) else ", ".join(reading)
    defaults = {default_shown(METHODS[method].settings.model_fields[name]) for method in reading} - {""}
    return {
        "help": f"{described(all_settings()[name])} ({who})",
        "show_default": " or ".join(sorted(defaults)) or False,
        "rich_help_panel": "Settings of methods",
    }


_CHANGES = {name: _of_methods(name) for name in all_settings() if name not in RunConfig.model_fields} | {
    "task": {"kind": str},
    "method": {"kind": str, "help": f"a row of the paper's tables, or of ours: {', '.join(METHODS)}"},
    "sets": {"kind": list[str] | None},
    "splits": {"kind": list[str] | None, "flag": "--split"},
}
_CHANGES["shared"] |= {"kind": bool, "flag": "--separate", "help": "two trunks instead of a shared one"}


@app.command()
@with_options(all_settings(), **_CHANGES)
def run(
    out: Annotated[Path, typer.Option(help="folder for records")] = Path("runs"),
    keep_model: Annotated[bool, typer.Option("--keep-model", help="keep the trained model beside the record")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="train also what the project has the record of")] = False,
    **chosen,
) -> None:
    """Train, evaluate and write one record. A finished run is skipped, an interrupted one resumes."""
    separate = chosen.pop("shared")
    splits = named_values(chosen.pop("splits") or [], "--split", "imdb_contrast=test")
    given = {name: value for name, value in chosen.items() if value not in (None, False)}
    config = configure(**given, splits=splits, **({"shared": False} if separate else {}))
    path, was_there = runs.run(config, out, keep_model, fresh=fresh)
    if os.environ.get("RANK", "0") != "0":  # of several processes, one reports
        return
    record = read_records([path])[0]
    made = record["environment"]
    print_line(
        f"already there, made on {made['device']} at {made['commit']}: {path}" if was_there else f"written: {path}"
    )
    if record.get("diverged"):
        console.print("  the loss was no longer finite: the run has diverged, try a lower learning rate")
    for name, metrics in record["metrics"].items():
        console.print(f"  {name:24} {100 * metrics['accuracy']:6.2f} %  ({metrics['correct']} of {metrics['n']})")

"""`python -m mtlib ...`.

Heavy modules are imported inside the commands, so that `--help` answers at once.
"""

import sys
import warnings
from typing import Annotated

import typer

from mtlib import __version__
from mtlib.cli import (
    checkout,
    doctor,
    leans,
    measuring,
    notebooks,
    own_data,
    predicting,
    records,
    sweeps,
)
from mtlib.cli.described import PROGRAM, DescribedCommand, DescribedGroup
from mtlib.cli.terminal import visible
from mtlib.errors import UserError

INTERRUPTED = 130  # typer's exit code for Ctrl-C
EXIT_CODES = (
    "Exit codes: 0 done; 1 something failed or does not fit; 2 bad input, or a package is missing; "
    "75 try again later (another process does it, or time was up); 130 interrupted."
)


def run(context: typer.Context) -> None:
    """Train, evaluate and write one record; `run --help` has the settings of all methods."""
    _hand_on("run", context)


def train(context: typer.Context) -> None:
    """Train on your own data with words masked, beside fine-tuning."""
    _hand_on("train", context)


def _hand_on(name: str, context: typer.Context) -> None:
    """Run a command of the other app, whose options are made of all methods' settings."""
    from mtlib.cli.training import app

    code = app([name, *context.args], prog_name=PROGRAM, standalone_mode=False)
    raise typer.Exit(code or 0)


# as `--help` groups them
COMMANDS = {
    "Use it": (
        own_data.suspects,
        leans.leans,
        train,
        predicting.predict,
        run,
        records.tables,
        checkout.testbed,
        notebooks.notebooks,
        doctor.doctor,
    ),
    "Reproduce": (
        sweeps.sweep,
        measuring.policies,
        measuring.prompt,
        measuring.bench,
    ),
    "Maintain": (records.bundle,),
}

app = typer.Typer(
    cls=DescribedGroup,
    help=f"""Mask-tuning (arXiv 2307.10457): runs, tables, notebooks, data.

Examples:
    {PROGRAM} run --task sentiment --method mask_tuning
    {PROGRAM} run --help
""",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"mtlib {__version__}")
        raise typer.Exit


@app.callback()
def _options_of_all_commands(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


for group, commands in COMMANDS.items():
    for command in commands:
        lazy = command in (run, train)  # what follows them is read where their options are made
        app.command(
            cls=DescribedCommand,
            rich_help_panel=group,
            add_help_option=not lazy,
            context_settings={"ignore_unknown_options": lazy, "allow_extra_args": lazy},
        )(command)

data_app = typer.Typer(
    cls=DescribedGroup,
    help=f"""Check and download data.

Examples:
    {PROGRAM} data list
""",
    no_args_is_help=True,
)
data_app.command("list", cls=DescribedCommand)(checkout.list_sets)
for command in (checkout.verify, checkout.fetch):
    data_app.command(cls=DescribedCommand)(command)
app.add_typer(data_app, name="data", rich_help_panel="Reproduce")


def main() -> None:
    # Windows writes into pipes and files in an encoding that lacks many letters
    sys.stdout.reconfigure(errors="backslashreplace")
    # a line, without where it was raised
    warnings.formatwarning = lambda message, *_: f"warning: {visible(str(message))}\n"
    try:
        app(prog_name=PROGRAM)
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            print(
                "interrupted. What is finished is kept: the same command goes on from there.",
                file=sys.stderr,
            )
        raise
    except UserError as error:
        print(f"error: {visible(str(error))}", file=sys.stderr)
        sys.exit(getattr(error, "EXIT_CODE", 2))
    except ImportError as error:
        message = _what_to_install(error)
        if message is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        sys.exit(2)


def _what_to_install(error: ImportError) -> str | None:
    """What to install, in a sentence; None where the fault is ours, and the traceback is wanted."""
    from mtlib.requirements import misfits

    if sentences := misfits():
        return sentences[0]
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    top = error.name.partition(".")[0]
    if top == "mtlib":
        return None
    if top in sys.stdlib_module_names:
        return (
            f"this command needs Python's module {top}, which is not there on this system; "
            "on Windows, run it in WSL or on Colab."
        )
    return (
        f"this command needs the package {top}, which is not installed; pip install {top} "
        "(all optional ones, in the folder of mtlib: pip install '.[notebooks,cluster,policies]')."
    )

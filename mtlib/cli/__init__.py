"""`python -m mtlib ...`. Heavy modules are imported inside the commands, so that `--help` answers at once."""

import os
import sys

import typer

from mtlib.cli import checkout, measuring, notebooks, own_data, records, sweeps
from mtlib.errors import UserError
from mtlib.threads import quiet_openmp

INTERRUPTED = 130  # typer's exit code for Ctrl-C


def run(context: typer.Context) -> None:
    """Train, evaluate and write one record; `mtlib run --help` has the settings of all methods."""
    _with_options_of_its_own("run", context)


def train(context: typer.Context) -> None:
    """Train on your own data with words masked, beside fine-tuning; `mtlib train --help` has the settings."""
    _with_options_of_its_own("train", context)


def _with_options_of_its_own(name: str, context: typer.Context) -> None:
    from mtlib.cli.training import app

    raise typer.Exit(app([name, *context.args], prog_name="mtlib", standalone_mode=False) or 0)


# as `--help` groups them
COMMANDS = {
    "Use it": (
        own_data.suspects,
        train,
        run,
        records.tables,
        checkout.testbed,
        notebooks.notebooks,
        checkout.doctor,
    ),
    "Reproduce": (sweeps.sweep, measuring.policies, measuring.diversity, measuring.prompt, measuring.bench),
    "Maintain": (records.bundle, checkout.playground),
}

app = typer.Typer(
    help="Mask-tuning (arXiv 2307.10457): runs, tables, notebooks, data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for group, commands in COMMANDS.items():
    for command in commands:
        lazy = command in (run, train)  # what follows them is read where their options are made
        options = {"ignore_unknown_options": lazy, "allow_extra_args": lazy}
        app.command(rich_help_panel=group, add_help_option=not lazy, context_settings=options)(command)

data_app = typer.Typer(help="Check and download data.", no_args_is_help=True)
for command in (checkout.verify, checkout.fetch):
    data_app.command()(command)
app.add_typer(data_app, name="data", rich_help_panel="Reproduce")


def main() -> None:
    quiet_openmp(os.environ)  # before a command loads torch
    try:
        app()
    except SystemExit as stop:
        if stop.code == INTERRUPTED:
            print("interrupted. What is finished is kept: the same command goes on from there.", file=sys.stderr)
        raise
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(getattr(error, "EXIT_CODE", 2))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "mtlib":  # a fault of ours: the traceback is wanted
            raise
        print(
            f"error: this command needs the package {error.name}, which is not installed; `pip install "
            "'mtlib[notebooks,cluster,policies]'` brings all of them.",
            file=sys.stderr,
        )
        sys.exit(2)

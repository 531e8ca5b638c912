"""Commands whose docstrings end with examples, and the name that they are called by."""

import os
import textwrap
from collections.abc import Sequence

from typer import Context
from typer.core import TyperCommand, TyperGroup

from mtlib.cli.terminal import console

PROGRAM = "python -m mtlib"  # as the pages have it: it works wherever mtlib can be imported
_SCRIPT = "mtlib"
_LAST_PANEL = "Help"
_EXAMPLES = "\n\nExamples:\n"


def program_name(arguments: Sequence[str]) -> str:
    """What help and messages call the program.

    A shell completes the script that pip installs, not a module that Python runs.
    """
    completion = ("--install-completion", "--show-completion")
    if "_MTLIB_COMPLETE" in os.environ or any(word.startswith(completion) for word in arguments):
        return _SCRIPT
    return PROGRAM


class _WithExamples:
    """Shows the examples at the end of a help text below the options."""

    def __init__(self, *arguments, help: str | None = None, **options):
        about, _, examples = (help or "").partition(_EXAMPLES)
        super().__init__(*arguments, help=about, **options)
        self.examples = textwrap.dedent(examples).splitlines()

    def format_help(self, context: Context, formatter) -> None:
        super().format_help(context, formatter)
        if not self.examples:
            return
        console.print(" Examples:\n")
        for line in self.examples:  # as they are, so that they can be copied
            console.print(f"   {line}", markup=False, highlight=False, soft_wrap=True)
        console.print()


class DescribedCommand(_WithExamples, TyperCommand):
    """A command whose docstring ends with examples."""


class DescribedGroup(_WithExamples, TyperGroup):
    """A group of commands whose help ends with examples."""


class CommandWithPanels(DescribedCommand):
    """A command all of whose options have a panel; `--help` has the last one."""

    def get_help_option(self, context: Context):
        option = super().get_help_option(context)
        if option is not None:
            option.rich_help_panel = _LAST_PANEL
        return option

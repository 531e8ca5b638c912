"""Commands whose docstrings end with examples, and the name that they are called by."""

import re
import textwrap

from typer import Context
from typer.core import TyperCommand, TyperGroup

from mtlib.cli.terminal import console

PROGRAM = "python -m mtlib"  # as the pages have it: it works wherever mtlib can be imported
_EXAMPLES = "\n\nExamples:\n"
_LINE_BREAK = re.compile(r"(?<!\n)\n(?!\n)")  # within a paragraph


class _WithExamples:
    """Shows the examples at the end of a help text below the options."""

    def __init__(self, *arguments, help: str | None = None, **options):
        about, _, examples = (help or "").partition(_EXAMPLES)
        about = _LINE_BREAK.sub(" ", about)  # a terminal has lines of another length
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

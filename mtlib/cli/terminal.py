"""What the commands share: how they print, and how they read NAME=VALUE."""

import json
import sys
from pathlib import Path

from rich.console import Console

from mtlib.errors import UserError

# a table in a file or a pipe is as wide as it needs to be
console = Console() if sys.stdout.isatty() else Console(width=10_000)


def print_line(line: str) -> None:
    """A line that may hold a path: its brackets are no markup."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def named_values(texts: list[str], option: str, example: str) -> dict[str, str]:
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"{option} is {text!r}; expected NAME=VALUE, for example {example}.")
        if name in values:
            raise UserError(f"{option} gives {name} twice; leave one out.")
        values[name] = value
    return values


def check_json(file: Path | None) -> None:
    """Raise `UserError` where `write_json` must not write, before anything is measured: nothing is replaced."""
    from mtlib.paths import make_writable

    if file is not None:
        if file.exists():
            raise UserError(f"--json is {file}, which is there already; give a new name, or delete it.")
        make_writable(file.parent)


def write_json(file: Path, content: object) -> None:
    from mtlib.runs.records import write_atomically

    write_atomically(file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    print_line(f"written: {file}")


def rich_table(title: str, columns: list[str], rows: list[list[str]]):
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, title=Text(title), title_justify="left")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))  # not markup: `Optional[int]` is what it says
    return table

"""What the commands share: options, how they print, and how they read NAME=VALUE."""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from mtlib.errors import UserError

if TYPE_CHECKING:
    import pandas
    from rich.table import Table

# a table in a file or a pipe is as wide as it needs to be
console = Console() if sys.stdout.isatty() else Console(width=10_000)
_BORDER = 3  # characters that a column needs beside its cells
_LEAST_OF_A_TEXT = 20  # characters


_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def check_new(file: Path, option: str = "--out") -> None:
    """Raise `UserError` unless an option's file is new and can be written."""
    from mtlib.paths import make_writable

    if file.exists():
        raise UserError(
            f"{option} is {file}, which is there already; give a new name, or delete it if nothing "
            "in it is needed."
        )
    make_writable(file.parent)


def check_outputs(**files: Path | None) -> None:
    """Raise `UserError` unless the files of all options are new, and none is given for two."""
    given = {option: file.absolute() for option, file in files.items() if file is not None}
    for option, file in given.items():
        if [*given.values()].count(file) > 1:
            raise UserError(f"{file} is given for two options; give each a file of its own.")
        check_new(files[option], f"--{option}")


def _new_json(file: Path | None) -> Path | None:
    if file is not None:
        check_new(file, "--json")
    return file


Task = Annotated[str, typer.Option(help="sentiment, nli or paraphrase")]
Source = Annotated[
    str,
    typer.Option(
        help="testbed, hub, or a folder of original releases or of `python -m mtlib testbed`"
    ),
]
Model = Annotated[str, typer.Option(help="mini (bundled), a hub id or a folder with a masked LM")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="write all of it to this new file", callback=_new_json)
]


def visible(text: str, line_breaks: bool = True) -> str:
    """A text whose control characters are written out, so that none reaches the terminal.

    Those of terminals, and those that turn the direction of the letters around. Line breaks stay,
    unless `line_breaks` is False.
    """
    return _CONTROL.sub(lambda sign: _written_out(sign[0], line_breaks), text)


def _written_out(sign: str, line_breaks: bool) -> str:
    return sign if sign == "\n" and line_breaks else ascii(sign)[1:-1]


def print_line(line: str) -> None:
    """A line that may hold a path: its brackets are no markup."""
    console.print(visible(line), markup=False, highlight=False, soft_wrap=True)


def named_values(texts: list[str], option: str, example: str) -> dict[str, str]:
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name in values:
            raise UserError(
                f"{option} is {text!r}; expected NAME=VALUE, for example {example}, each name once."
            )
        values[name] = value
    return values


def write_json(file: Path | None, content: object) -> None:
    """Nothing where `file` is None; else it is the value of a `JsonFile`."""
    from mtlib.paths import write_atomically

    if file is not None:
        write_atomically(file, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        print_line(f"written: {file}")


def that_fits(
    table: "pandas.DataFrame", texts: Sequence[str], optional: Sequence[str]
) -> "pandas.DataFrame":
    """The table as the terminal has room for it, each row one line high.

    Args:
        table: what is to be printed.
        texts: columns that are cut.
        optional: columns that are left out, the first of them first, while the texts would get
            fewer than 20 characters each.
    """
    shown = table.astype(str)
    to_drop = [name for name in optional if name in shown]
    while to_drop and _room_for_each(shown, texts) < _LEAST_OF_A_TEXT:
        shown = shown.drop(columns=to_drop.pop(0))
    most = max(_room_for_each(shown, texts), 1)
    for name in texts:
        if name in shown:
            shown[name] = [cut(text, most) for text in shown[name]]
    return shown


def _room_for_each(table: "pandas.DataFrame", texts: Sequence[str]) -> int:
    """How many characters the terminal has for each text, beside the other columns."""
    from rich.cells import cell_len

    cells = [[name, *table[name]] for name in table if name not in texts]
    widths = [max(map(cell_len, column)) for column in cells]
    n_texts = sum(name in table for name in texts)
    borders = _BORDER * len(table.columns) + 1
    return (console.width - borders - sum(widths)) // n_texts


def cut(text: str, most: int) -> str:
    """A text of at most so many characters' width, with an ellipsis where it was longer."""
    from rich.text import Text

    shown = Text(text)
    shown.truncate(most, overflow="ellipsis")
    return shown.plain


def print_frame(
    title: str, table: "pandas.DataFrame", texts: Sequence[str], optional: Sequence[str]
) -> None:
    """A table with a line for each row; see `that_fits`."""
    shown = that_fits(table, texts, optional)
    print_table(title, list(shown), shown.values.tolist())


def print_table(title: str, columns: Iterable[str], rows: Iterable[Iterable]) -> None:
    """None and what is not a number are left empty.

    Where the terminal is too narrow for a table without cut words, its rows become columns; where
    that is too wide too, blocks of lines.
    """
    lines = [list(columns), *([_shown(cell) for cell in row] for row in rows)]
    for cells in (lines, [*zip(*lines, strict=True)]):
        table = _table(title, cells)
        if table is not None:
            console.print(table)
            return
    _print_blocks(title, lines)


def _table(title: str, lines: Sequence[Sequence[str]]) -> "Table | None":
    """A table with a heading and rows, or None where the terminal is too narrow for it."""
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    heading, *rows = lines
    table = Table(title=Text(visible(title)), title_justify="left")
    for name in heading:  # text, not markup: `Optional[int]` is what it says
        table.add_column(Text(name))
    for row in rows:
        table.add_row(*map(Text, row))
    any_width = console.options.update(width=10_000)
    fits = Measurement.get(console, any_width, table).minimum <= console.width
    return table if fits else None


def _print_blocks(title: str, lines: Sequence[Sequence[str]]) -> None:
    """A block for each row, with a line for each cell."""
    names, *rows = lines
    print_line(title)
    width = max(map(len, names))
    for row in rows:
        print_line("")
        for name, cell in zip(names, row, strict=True):
            if cell:
                print_line(f"  {name:{width}}  {cell}")


def _shown(cell: object) -> str:
    return "" if cell is None or cell != cell else visible(str(cell), line_breaks=False)

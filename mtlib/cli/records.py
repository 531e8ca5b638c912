"""`tables` and `bundle`: what is made of finished runs' records."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mtlib.cli.terminal import console, print_line, rich_table
from mtlib.errors import UserError


class Form(StrEnum):
    terminal = "terminal"
    markdown = "markdown"
    csv = "csv"


def tables(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="folders with records, or .jsonl files", show_default="runs")
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="how to print them")] = Form.terminal,
    per_seed: Annotated[bool, typer.Option("--per-seed", help="every seed's value below its row")] = False,
) -> None:
    """Method x evaluation set: mean ± sd in per cent, and the paired difference to fine-tuning (95 % interval)."""
    from mtlib.analysis import tables as made
    from mtlib.runs.records import read_records

    if per_seed and form is Form.csv:
        raise UserError("--per-seed is for the other formats; csv has a line for every seed as it is.")
    every = made.make_tables(read_records(folders or [Path("runs")]))
    if form is Form.csv:
        print(made.csv_text(every), end="")
        return
    for table in every:
        if form is Form.markdown:
            print(made.markdown(table, per_seed), end="\n\n")
        else:
            console.print(rich_table(table.heading, ["method", "n", *table.columns], [
                [name, n, *cells] for name, n, cells in made.texts(table, per_seed)]))  # fmt: skip
            if table.note:
                print_line(table.note)


def bundle(
    folders: Annotated[list[Path], typer.Argument(help="folders with records, or .jsonl files")],
    to: Annotated[Path, typer.Option(help="a .jsonl file; the records it already has stay in it")],
    history: Annotated[int | None, typer.Option(help="log entries kept of each run", show_default="all")] = None,
) -> None:
    """Put the records of many runs into one file, a line each, and their probabilities into one beside it."""
    from mtlib.paths import make_writable
    from mtlib.runs import probabilities
    from mtlib.runs.records import pack, read_records, write_atomically

    if to.suffix != ".jsonl":
        raise UserError(f"--to is {to}; expected a file name that ends in .jsonl.")
    if history is not None and history < 1:
        raise UserError(f"--history is {history}; expected 1 or more.")
    if to.is_dir():
        raise UserError(f"--to is {to}, a folder; expected a file.")
    make_writable(to.parent)
    places = [*([to] if to.exists() else []), *folders]
    records = read_records(places)
    if not records:
        raise UserError(
            f"there are no records in {', '.join(map(str, folders))}; give folders that `mtlib run` filled."
        )
    probabilities.bundle(to.with_suffix(".npz"), [record["identity"] for record in records], places)
    write_atomically(to, pack(records, history))
    print_line(f"{len(records)} records: {to}")

"""`leans`: which words of a person's own file a trained classifier follows."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtlib.cli.own_data import File, Label, Text, read_marks
from mtlib.cli.terminal import check_outputs, print_frame, print_line
from mtlib.errors import UserError

if TYPE_CHECKING:
    import pandas

_NOT_SHOWN = ["before", "answer_before", "after", "answer_after", "low", "high", "marked"]
_SHOWN_TEXTS = 3
_FIGURES = (".png", ".svg", ".pdf")


def leans(
    model: Annotated[
        str, typer.Argument(help="a folder or hub id with a classifier that transformers reads")
    ],
    file: File,
    text: Text,
    label: Label,
    words: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="CSV of `suspects --out`, or a text file, a word or phrase a line "
            "(default: the suspects of the file)",
        ),
    ] = None,
    rows: Annotated[int, typer.Option(help="rows of each word", min=2)] = 40,
    labels: Annotated[
        str | None,
        typer.Option(help="names of the model's classes where it has none, as negative,positive"),
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="tokens of a text that are read (default: 128)", min=3)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="write the table to this new CSV file")] = None,
    figure: Annotated[Path | None, typer.Option(help="draw it into this new PNG file")] = None,
) -> None:
    """Which words a trained classifier follows, in your own data.

    Each word is exchanged for words that predict another label: does the answer change with it? It
    says whether the model follows a word, never whether it should.

    Examples:
        python -m mtlib leans build/model data/example/reviews.csv \\
            --text review --label opinion --words build/words.csv
    """
    from mtlib.data.tables import TableFile
    from mtlib.own_data.leans import leans as ask  # loads torch

    check_outputs(out=out, figure=figure)
    if figure is not None:
        _check_figure(figure)
    table_file = TableFile(file, text, label)
    names = [name.strip() for name in labels.split(",")] if labels else None
    try:
        table = ask(
            model,
            table_file,
            _listed(words),
            n_rows=rows,
            labels=names,
            max_length=max_length,
            report=print_line,
        )
    finally:
        if left_out := table_file.left_out():
            print_line(left_out)
    _print_leans(table)
    if out is not None:
        table.round(2).to_csv(out, index=False)
        print_line(f"written: {out}")
    if figure is not None:
        _draw(table, figure)


def _check_figure(figure: Path) -> None:
    if figure.suffix.lower() not in _FIGURES:
        raise UserError(f"--figure is {figure}; expected a file in {', '.join(_FIGURES)}.")


def _listed(file: Path | None) -> "pandas.DataFrame | None":
    """The words of a list, and which of them are marked."""
    import pandas

    return None if file is None else pandas.DataFrame(read_marks(file), columns=["word", "mask"])


def _print_leans(table: "pandas.DataFrame") -> None:
    from mtlib.own_data.leans import leans_shown

    followed = (table["low"] > 0).sum()
    title = f"{followed} of {len(table)} words are followed (95 % interval above 0); in per cent"
    shown = table.drop(columns=_NOT_SHOWN)
    for column in ("follows", "control", "change"):
        shown[column] = table[column].map(round)
    shown["leans"] = [leans_shown(line) for line in table.itertuples()]
    if table["marked"].any():
        shown.insert(1, "mask", ["x" if marked else "" for marked in table["marked"]])
    print_frame(title, shown, texts=["partners"], optional=["kind", "control", "follows"])
    for line in table[table["follows"] > 0].head(_SHOWN_TEXTS).itertuples():
        print_line(f"{line.suspect}: {line.before} [{line.answer_before}]")
        print_line(f"{' ' * len(line.suspect)}> {line.after} [{line.answer_after}]")
    print_line("A model may rightly follow a word: that is for you to say.")


def _draw(table: "pandas.DataFrame", path: Path) -> None:
    from mtlib.analysis.figures import leans as figures  # loads matplotlib

    figure, alt = figures.draw({"": table})
    figure.savefig(path, metadata={"Description": alt} if path.suffix == ".png" else None)
    print_line(f"written: {path}")

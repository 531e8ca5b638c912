"""`suspects`: which words of a person's own file predict its labels.

And the list in which the person marks them.
"""

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtlib.cli.terminal import check_new, cut, print_frame, print_line
from mtlib.errors import UserError
from mtlib.rows.forms import KINDS, NOT_HIDDEN

if TYPE_CHECKING:
    import pandas

    from mtlib.data.tables import TableFile

File = Annotated[
    Path, typer.Argument(help="CSV, TSV, JSON lines or Parquet by its ending, or a saved data set")
]
Text = Annotated[list[str], typer.Option(help="the column with the texts; for pairs give it twice")]
Label = Annotated[str, typer.Option(help="the column with the labels, words or numbers")]
MaskWords = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        help="words to mask: CSV of `suspects --out`, or a text file, a word or phrase a line",
    ),
]
_EXAMPLES = ("example", "counterexample")
_SHOWN = ("word", "kind", "where", "part_of_speech", "rows", "share", "z")
_KNOWN_COLUMNS = {"", *_SHOWN, "label", "base_rate", *_EXAMPLES}
_MOST_SHOWN = 60  # characters of an example
_OPTIONAL = ("counterexample", "kind", "part_of_speech")


def suspects(
    file: File,
    text: Text,
    label: Label,
    top: Annotated[int, typer.Option(help="at most so many of each label", min=1)] = 20,
    min_count: Annotated[int, typer.Option(help="words in fewer rows are not tested", min=1)] = 20,
    kinds: Annotated[
        str, typer.Option(help=f"what to look for, separated by commas: {', '.join(KINDS)}")
    ] = "all",
    nouns: Annotated[
        bool, typer.Option("--nouns-first", help="names and nouns first; for English")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="write them to this CSV file, to mark words in")
    ] = None,
) -> None:
    """Which words predict a label beyond chance in your own data, and what beside words does.

    Words that should decide stand there too. Write an x into the column `mask` of those that
    should not.

    Examples:
        python -m mtlib suspects data/example/reviews.csv \\
            --text review --label opinion --out build/words.csv
    """
    from mtlib.data.tables import TableFile

    if out is not None:
        check_new(out)
    rows = TableFile(file, text, label)
    chosen = KINDS if kinds == "all" else [kind.strip() for kind in kinds.split(",")]
    table = _found(rows, top, min_count, chosen, nouns)
    _print_suspects(table, top, min_count, pairs=len(rows.texts) > 1)
    if copies := table.attrs["copies"]:
        print_line(f"{copies:,} of the rows are copies of others; z takes rows for independent.")
    if table.empty:
        print_line(f"none: is {', '.join(text)} the column of the texts? --min-count may be lower")
    if table["kind"].isin(NOT_HIDDEN).any():
        print_line("capitals and length cannot be hidden: do not mark them.")
    if out is not None:
        _write_list(table, out)


def _found(
    rows: "TableFile", top: int, min_count: int, kinds: Iterable[str], nouns: bool
) -> "pandas.DataFrame":
    """The table of suspects by label, each named once; with `nouns`, with parts of speech."""
    from mtlib.own_data.suspects import first_of_labels
    from mtlib.own_data.suspects import suspects as find

    try:
        table = find(rows, None if nouns else top, min_count, kinds=kinds)
    finally:
        if left_out := rows.left_out():
            print_line(left_out)
    attrs = table.attrs
    table = _each_once(table)
    if nouns:
        from mtlib.own_data.parts_of_speech import nouns_first

        table = first_of_labels(nouns_first(table), top)
    table = table.sort_values("label", kind="stable").reset_index(drop=True)
    table.attrs = attrs
    return table


def _each_once(table: "pandas.DataFrame") -> "pandas.DataFrame":
    """The surest line of each word and label; `where` has all places in which it is a suspect."""
    by_word = table.groupby(["label", "word"], sort=False)
    where = by_word["where"].agg(", ".join)
    once = by_word.head(1).reset_index(drop=True)
    return once.assign(where=[where[label, word] for label, word in once[["label", "word"]].values])


def _print_suspects(table: "pandas.DataFrame", top: int, min_count: int, pairs: bool) -> None:
    about = "{rows:,} rows; {above} of {tested:,} tested predict a label (z above {threshold:.2f})"
    print_line(f"{about.format(**table.attrs)}; tested is what stands in {min_count} rows or more")
    columns = [name for name in _SHOWN if name in table]
    if not pairs:
        columns.remove("where")
    for label, lines in table.groupby("label", sort=False):
        base_rate = lines["base_rate"].iloc[0]
        shown = lines[columns].round({"share": 2, "z": 1})
        for column in _EXAMPLES:
            shown[column] = [cut(" ".join(text.split()), _MOST_SHOWN) for text in lines[column]]
        number = f"{'the first' if len(lines) == top else 'all'} {len(lines)}"
        title = f"{label} ({base_rate:.0%} of the rows): {number}"
        print_frame(title, shown, texts=_EXAMPLES, optional=_OPTIONAL)


def _write_list(table: "pandas.DataFrame", out: Path) -> None:
    """A CSV file with an empty column for marks."""
    table.insert(1, "mask", "")
    for column in _EXAMPLES:  # a line for each word, in every program
        table[column] = [" ".join(text.split()) for text in table[column]]
    table.to_csv(out, index=False)
    print_line(
        f"written: {out}; write an x into the column mask of the words that should not decide"
    )


def read_words(file: Path) -> list[str]:
    """The words of a list: one a line, or those that a CSV marks.

    A CSV has a column `word`, and the column `mask` holds an x beside each word that is meant (or
    yes, y, true, 1). A CSV that `suspects` or `train` has written, and that has no column `mask`,
    names all its words.

    Raises:
        UserError: no word in it, or none that is marked; a mark that says neither yes nor no; a CSV
            without a column `word`, or with columns that may hold the marks; not in UTF-8.
    """
    words = [word for word, marked in read_marks(file) if marked]
    if not words:
        raise UserError(
            f"{file} names no word; expected one a line (in a .txt), or a CSV with the columns "
            "word and mask, and an x in mask beside each word that should not decide."
        )
    return words


def read_marks(file: Path) -> list[tuple[str, bool]]:
    """The words of a list, and whether each is marked; see `read_words`."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not in UTF-8 ({error.reason}); save it as UTF-8.") from error
    lines = (line.strip() for line in io.StringIO(text, newline=None))
    phrases = [line for line in lines if line]
    is_table = file.suffix.lower() in (".csv", ".tsv")
    separator = _separator(phrases[0], is_table) if phrases else None
    if separator is not None:
        return _marks_in(_table(file, text, separator), file)
    # the lines of a CSV without the column `word` are no phrases
    return [] if is_table else [(phrase, True) for phrase in phrases]


def _separator(header: str, is_table: bool) -> str | None:
    """What stands between the columns of a list; None for a list that is no table."""
    for separator in ",;\t":
        names = [name.strip() for name in next(csv.reader([header.lower()], delimiter=separator))]
        if "word" in names and (is_table or len(names) > 1):
            return separator
    return None


def _table(file: Path, text: str, separator: str) -> "pandas.DataFrame":
    """A list that is a table, with the names of its columns in lower case."""
    import pandas

    try:
        table = pandas.read_csv(
            io.StringIO(text, newline=""),
            sep=separator,
            dtype=str,
            keep_default_na=False,
            lineterminator="\n",
        ).fillna("")
    except ValueError as error:
        raise UserError(f"{file} cannot be read: {error}.") from error
    if not isinstance(table.index, pandas.RangeIndex):  # pandas takes what is too much for names
        raise UserError(f"{file} has a row with more values than the first line has columns.")
    table.columns = [str(name).strip().lower() for name in table]
    if not table.columns.is_unique:
        raise UserError(f"{file} has two columns of one name; rename all but one.")
    return table


def _marks_in(table: "pandas.DataFrame", file: Path) -> list[tuple[str, bool]]:
    from mtlib.own_data.reading import is_marked

    words = table["word"].str.strip()
    if "mask" not in table:
        _check_columns(table, file)
        return [(word, True) for word in words if word]
    marks = []
    for number, (word, mark) in enumerate(zip(words, table["mask"], strict=True), 2):
        marked = is_marked(mark, f"{file}, row {number:,}")
        if marked and not word:
            raise UserError(f"{file}, row {number:,} is marked, but its word is missing; add it.")
        if word:
            marks.append((word, marked))
    return marks


def _check_columns(names: Iterable[str], file: Path) -> None:
    """Refuse columns that are not known, since they may hold the marks."""
    for name in names:
        if name not in _KNOWN_COLUMNS and not name.startswith("unnamed"):
            raise UserError(
                f"{file} has no column mask, and {name!r} may be it; rename it to mask if it holds "
                "the marks, or remove it if all words are meant."
            )

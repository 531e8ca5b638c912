"""`suspects`: which words of a person's own file predict its labels; and the list in which the person marks them."""

import csv
from pathlib import Path
from typing import Annotated

import typer

from mtlib.cli.terminal import print_line, print_table
from mtlib.errors import UserError

File = Annotated[Path, typer.Argument(help="CSV, TSV, JSON lines or Parquet by its ending, or a saved data set")]
Text = Annotated[list[str], typer.Option(help="the column with the texts; for pairs give it twice")]
Label = Annotated[str, typer.Option(help="the column with the labels, words or numbers")]
_NO = ("", "0", "0.0", "-", "n", "no", "false")  # also as pandas saves them


def suspects(
    file: File,
    text: Text,
    label: Label,
    top: Annotated[int, typer.Option(help="at most so many words", min=1)] = 50,
    min_count: Annotated[int, typer.Option(help="words in fewer rows are not tested", min=1)] = 20,
    nouns: Annotated[bool, typer.Option("--nouns-first", help="names and nouns first; for English")] = False,
    out: Annotated[Path | None, typer.Option(help="write them to this CSV file, to mark words in")] = None,
) -> None:
    """Which words predict a label beyond chance in your own data.

    Words that should decide stand there too. Write an x into the column `mask` of those that should not.
    """
    from mtlib.data.tables import TableFile
    from mtlib.paths import make_writable
    from mtlib.suspect_words import suspects as find

    if out is not None:
        make_writable(out.parent)
        if out.exists():
            raise UserError(f"{out} exists, perhaps with marks in it; give another name to --out, or remove it.")
    rows = TableFile(file, text, label)
    try:
        table = find(rows, None if nouns else top, min_count)
    finally:
        if told := rows.told():
            print_line(told)
    if nouns:
        from mtlib.policies.suspect_tags import nouns_first

        table = nouns_first(table)[:top]
    counts = (
        "{rows:,} rows; {above} of {tested:,} words in {least} rows or more predict a label (z above {threshold:.2f})"
    )
    about = f"{counts.format(**table.attrs, least=min_count)}; the first {len(table)}"
    more = [*(["where"] if len(rows.texts) > 1 else []), *(["part_of_speech"] if nouns else [])]
    columns = ["word", *more, "rows", "label", "share", "base_rate", "z"]
    shown = table.round({"share": 2, "base_rate": 2, "z": 1})
    examples = [[_short(line.example), _short(line.counterexample)] for line in table.itertuples()]
    cells = [[*line, *two] for line, two in zip(shown[columns].values.tolist(), examples, strict=True)]
    print_table(about, [*columns, "example", "counterexample"], cells)
    if table.empty:
        print_line(
            f"none: is {', '.join(text)} the column of the texts? --min-count may be lower; numbers are no words"
        )
    if out is not None:
        table.insert(1, "mask", "")
        table.to_csv(out, index=False)
        print_line(f"written: {out}; write an x into the column mask of the words that should not decide")


def read_words(file: Path) -> list[str]:
    """A list of words: those that a CSV with the columns `word` and `mask` marks (all, without `mask`), or each line.

    Raises:
        UserError: no word in it, or none that is marked; a CSV without a column `word`; not in UTF-8.
    """
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines(keepends=True)
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not in UTF-8 ({error.reason}); save it as UTF-8.") from error
    separator = next((sign for sign in ",;\t" if "word" in next(csv.reader(lines, delimiter=sign), [])), "")
    if separator:
        rows = csv.DictReader(lines, delimiter=separator)
        words = [row["word"] for row in rows if row["word"] and (row.get("mask", "x") or "").strip().lower() not in _NO]
    else:  # of a CSV without these columns the lines would be phrases
        words = [line.strip() for line in lines if line.strip() and file.suffix.lower() not in (".csv", ".tsv")]
    if not words:
        raise UserError(
            f"{file} names no word; expected one a line (in a .txt), or a CSV with the columns word and mask, and an x "
            "in mask beside each word that should not decide."
        )
    return words


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"

"""`suspects` and `train`: from a person's own file to a model that does not lean on the words that they named."""

import csv
import warnings
from pathlib import Path
from typing import Annotated

import typer

from mtlib.cli.terminal import named_values, print_line, print_table
from mtlib.errors import UserError

File = Annotated[Path, typer.Argument(help="CSV, TSV, JSON lines or Parquet by its ending, or a saved data set")]
Text = Annotated[list[str], typer.Option(help="the column with the texts; for pairs give it twice")]
Label = Annotated[str, typer.Option(help="the column with the labels, words or numbers")]


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
    rows = TableFile(file, text, label)
    table = find(rows, top, min_count)
    if told := rows.told():
        print_line(told)
    if nouns:
        from mtlib.policies.suspect_tags import nouns_first

        table = nouns_first(table)
    about = f"{table.attrs['rows']:,} rows; {len(table)} of {table.attrs['tested']:,} words in {min_count} rows or more"
    about = f"{about} predict a label (z above {table.attrs['threshold']:.2f})"
    more = [*(["where"] if len(rows.texts) > 1 else []), *(["part_of_speech"] if nouns else [])]
    columns = ["word", *more, "rows", "label", "share", "base_rate", "z"]
    shown = table.round({"share": 2, "base_rate": 2, "z": 1})
    examples = [[_short(line.example), _short(line.counterexample)] for line in table.itertuples()]
    cells = [[*line, *two] for line, two in zip(shown[columns].values.tolist(), examples, strict=True)]
    print_table(about, [*columns, "example", "counterexample"], cells)
    if out is not None:
        table.insert(1, "mask", "")
        table.to_csv(out, index=False)
        print_line(f"written: {out}; write an x into the column mask of the words that should not decide")


def train(
    file: File,
    text: Text,
    label: Label,
    out: Annotated[Path, typer.Option(help="a new folder for the model")],
    mask_words: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="CSV of `suspects --out`, or a text file, a word or phrase a line"
        ),
    ] = None,
    dev: Annotated[Path | None, typer.Option(help="rows to choose the checkpoint on (default: a fifth)")] = None,
    test: Annotated[list[Path] | None, typer.Option(help="rows to score on, repeatable")] = None,
    model: Annotated[str, typer.Option(help="mini (bundled), a hub id or a folder with a masked LM")] = "mini",
    method: Annotated[str, typer.Option(help="any of `mtlib run`; fine_tuning trains that alone")] = "mask_tuning",
    setting: Annotated[list[str] | None, typer.Option("--set", help="of the method, as alpha=0.3; repeatable")] = None,
    epochs: Annotated[float, typer.Option(help="passes over the rows")] = 3,
    batch_size: Annotated[int, typer.Option(help="rows per step")] = 16,
    learning_rate: Annotated[float | None, typer.Option(help="peak rate", show_default="by model")] = None,
    max_length: Annotated[int | None, typer.Option(help="tokens of a text that are read", show_default="128")] = None,
    class_weights: Annotated[str | None, typer.Option(help="balanced: all labels count alike")] = None,
    patience: Annotated[
        int | None, typer.Option(help="stop after so many evaluations without a better accuracy on dev")
    ] = None,
    seed: Annotated[int, typer.Option(help="of the new head, dropout, order and masks")] = 0,
) -> None:
    """Train on your own data with words masked, beside fine-tuning, and score both where the words mislead.

    A training that was cut off is resumed by the same command.
    """
    from mtlib.data.tables import TableFile
    from mtlib.paths import make_writable
    from mtlib.runs.debias import debias

    def read(path: Path):
        rows = TableFile(path, text, label)
        dataset = rows.dataset()
        if told := rows.told():
            print_line(told)
        return dataset

    make_writable(out)
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"  # a line, without where it was raised
    rows = read(file)
    names = rows.features["label"].names
    print_line(f"{len(rows):,} rows with {len(names)} labels: {', '.join(names[:10])}{' ...' if names[10:] else ''}.")
    files = [path.name for path in test or ()]
    tests = {path.name if files.count(path.name) < 2 else str(path): read(path) for path in test or ()}
    result = debias(
        rows, read_words(mask_words) if mask_words else (), out=out, tests=tests, method=method, model=model,
        dev=read(dev) if dev else None, settings=named_values(setting or [], "--set", "alpha=0.3"),
        report=print_line, epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, max_length=max_length,
        class_weights=class_weights, patience=patience, seed=seed,
    )  # fmt: skip
    scores = [
        [line.set, line.rows, line.n, line.arm, *(_with_interval(line, name) for name in ("accuracy", "macro_f1"))]
        for line in result.table.itertuples()
    ]
    print_table("per cent, with 95 % intervals", ["set", "rows", "n", "arm", "accuracy", "macro F1"], scores)
    print_line(f"written: {out}, a folder for transformers.pipeline and SharedPLM.from_pretrained")


def read_words(file: Path) -> list[str]:
    """A list of words: those that a CSV with the columns `word` and `mask` marks (all, without `mask`), or each line.

    Raises:
        UserError: no word in it, or none that is marked.
    """
    lines = file.read_text(encoding="utf-8-sig").splitlines(keepends=True)
    if "word" in next(csv.reader(lines), []):
        rows = csv.DictReader(lines)
        words = [row["word"] for row in rows if row["word"] and (row.get("mask", "x") or "").strip().lower() not in _NO]
    else:
        words = [line.strip() for line in lines if line.strip()]
    if not words:
        raise UserError(
            f"{file} names no word; expected one a line, or a CSV with the columns word and mask, and an x in mask "
            "beside each word that should not decide."
        )
    return words


def _with_interval(line, name: str) -> str:
    value, low, high = (getattr(line, name + bound) for bound in ("", "_low", "_high"))
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"


_NO = ("", "0", "no", "false")


def _short(text: str, most: int = 60) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"

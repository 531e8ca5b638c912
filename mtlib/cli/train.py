"""`train`, whose options are the settings of a training on a person's own data."""

import csv
import warnings
from pathlib import Path
from typing import Annotated

import typer

from mtlib.cli.options import with_options
from mtlib.cli.own_data import File, Label, Text
from mtlib.cli.terminal import named_values, print_line, print_table
from mtlib.data.tables import TableFile
from mtlib.errors import UserError
from mtlib.paths import make_writable
from mtlib.runs.debias import OwnTraining, debias

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_FIELDS = {name: field for name, field in OwnTraining.model_fields.items() if name != "settings"}
_NO = ("", "0", "no", "false")


@app.command()
@with_options(_FIELDS)
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
    method: Annotated[str, typer.Option(help="any of `mtlib run`; fine_tuning trains that alone")] = "mask_tuning",
    setting: Annotated[list[str] | None, typer.Option("--set", help="of the method, as alpha=0.3; repeatable")] = None,
    **training,
) -> None:
    """Train on your own data with words masked, beside fine-tuning, and score both where the words mislead.

    A training that was cut off is resumed by the same command.
    """

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
        rows, read_words(mask_words) if mask_words else (), out=out, tests=tests, method=method,
        dev=read(dev) if dev else None, settings=named_values(setting or [], "--set", "alpha=0.3"),
        report=print_line, **training,
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

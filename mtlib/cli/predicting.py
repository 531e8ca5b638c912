"""`predict`: what a trained model answers on the texts of a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mtlib.cli.own_data import File, MaskWords, Text, read_words
from mtlib.cli.terminal import check_new, print_line, print_table
from mtlib.errors import UserError

if TYPE_CHECKING:
    import pandas

_MODEL = "a folder that `train` or SharedPLM.save_pretrained wrote"


def predict(
    model: Annotated[str, typer.Argument(help=_MODEL)],
    file: File,
    text: Text,
    out: Annotated[Path | None, typer.Option(help="write the answers to this new CSV file")] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="a column of the file to write too, such as an id; repeatable"),
    ] = None,
    mask_words: MaskWords = None,
) -> None:
    """Label the texts of a file, with the probability of each label.

    Examples:
        python -m mtlib predict build/model data/example/conflicting.csv \\
            --text review --out build/answers.csv
    """
    if out is not None:
        check_new(out)
    words = read_words(mask_words) if mask_words else ()
    table = _answers(model, file, text, words, keep or [])
    counts = table["answer"].value_counts().sort_index()
    print_table(f"{len(table):,} texts", ["answer", "texts"], counts.items())
    if out is not None:
        table.to_csv(out, index=False)
        print_line(f"written: {out}")


def _answers(
    model: str,
    file: Path,
    text: list[str],
    words: Sequence[str],
    keep: Sequence[str],
) -> "pandas.DataFrame":
    """A line for each text: the text, what is kept, the answer, each label's probability."""
    import pandas
    from datasets import Dataset
    from scipy.special import softmax

    from mtlib import encoding  # loads torch
    from mtlib.data.tables import TableFile
    from mtlib.plm import SharedPLM
    from mtlib.runs.environment import quiet_libraries

    quiet_libraries()
    rows = TableFile(file, text, None, also=keep)
    no_rows = pandas.DataFrame(columns=[*rows.names], dtype=object)
    table = pandas.concat([no_rows, *rows], ignore_index=True)
    if left_out := rows.left_out():
        print_line(left_out)
    plm = SharedPLM.from_pretrained(model)
    if plm.has_new_head:
        raise UserError(
            f"{model} has no trained classifier; give a folder that `train` or save_pretrained "
            "wrote."
        )
    names = [plm.config.id2label[number] for number in range(plm.config.num_labels)]
    of_labels = [f"p({name})" for name in names]
    if taken := {"answer", *of_labels} & {*keep}:
        column = min(taken)
        raise UserError(f"--keep names {column!r}, which this command writes; rename it in {file}.")
    texts = Dataset.from_pandas(table[[*rows.texts]])
    logits = encoding.predict(plm, texts, hide=words)  # (n, num_labels)
    answers = [names[number] for number in logits.argmax(1)]
    probabilities = dict(zip(of_labels, softmax(logits, axis=1).T, strict=True))
    return table.assign(answer=answers, **probabilities)

"""`run` and `train`, whose options are made from settings.

So no default and no description is written twice.
"""

import inspect
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer
from pydantic.fields import FieldInfo

from mtlib.cli.described import DescribedCommand
from mtlib.cli.own_data import File, Label, MaskWords, Text, read_words
from mtlib.cli.terminal import (
    console,
    named_values,
    print_frame,
    print_line,
)
from mtlib.methods import METHODS, readers
from mtlib.paths import make_writable
from mtlib.runs.code import origin
from mtlib.runs.config import OwnTraining, RunConfig, all_settings, configure
from mtlib.runs.records import read_records

if TYPE_CHECKING:
    import pandas
    from datasets import Dataset

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_START = "Options"  # typer's first panel, at whose end `--help` stands
# as `run --help` shows the settings, in this order; one that is not named here comes last
_PANELS = {
    _START: ("task", "method", "model", "source"),
    "Data": (
        "train_size",
        "redraw",
        "held_out",
        "max_length",
        "eval_max_length",
        "sets",
        "splits",
    ),
    "Training": (
        "seed",
        "epochs",
        "batch_size",
        "accumulation",
        "learning_rate",
        "classifier_learning_rate",
        "mlm_head_learning_rate",
        "precision",
    ),
    "Which words are masked": ("masking", "words", "mask_rate", "spacy_pipeline"),
    "How masks are filled": ("fill", "barred"),
    "Mask-tuning's losses": ("alpha", "update", "shared", "classification", "classifier_reads"),
    "Bias models": ("bias", "bias_learning_rate", "focus"),
}
_LAST_PANEL = "Settings of single methods"
_OUTPUT = "Output"


def _with_options(
    fields: Mapping[str, FieldInfo], **changes: Mapping
) -> Callable[[Callable], Callable]:
    """A decorator that gives a command the options of these settings, before its own.

    It gets their values as `**keywords`: text, which the settings' model reads, or None where none
    was given; a flag is True or False.

    Args:
        fields: by the setting's name.
        changes: by the setting's name: arguments of `typer.Option`, `flag` (how it is written) and
            `kind` (its type).
    """

    def with_them(command: Callable) -> Callable:
        options = [_option(name, field, **changes.get(name, {})) for name, field in fields.items()]
        for parameter in inspect.signature(command).parameters.values():
            if parameter.kind is not parameter.VAR_KEYWORD:
                options.append(parameter.replace(kind=parameter.KEYWORD_ONLY))
        options.sort(key=lambda option: option.default is not option.empty)  # what is needed first
        command.__signature__ = inspect.Signature(options)
        command.__annotations__ = {option.name: option.annotation for option in options}
        return command

    return with_them


def _option(name: str, field: FieldInfo, flag: str = "", kind=None, **changes) -> inspect.Parameter:
    if kind is None:
        kind = bool if field.annotation is bool else str | None
    options = {
        "help": _described(field),
        "show_default": _default_shown(field) or False,
        "metavar": "VALUE" if kind == str | None else None,
    }
    option = typer.Option(flag or f"--{name.replace('_', '-')}", **options | changes)
    default = None
    if kind is str:
        default = inspect.Parameter.empty  # it has to be given
    elif kind is bool:
        default = False
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, option],
    )


def _described(field: FieldInfo) -> str:
    """Its description, and what there is to choose from."""
    choices = [choice for choice in get_args(field.annotation) if isinstance(choice, str)]
    return f"{field.description}: {', '.join(choices)}" if choices else str(field.description)


def _default_shown(field: FieldInfo) -> str:
    """What is taken where nothing is given; "" where that depends on other settings, or nothing."""
    shown = str(field.default)
    return "" if shown in ("None", "True", "False", "()", "PydanticUndefined") else shown


def _method_option(name: str) -> dict[str, str | bool]:
    """What the option of a method's setting says beside its description."""
    reading = readers(name)
    others = [method for method in METHODS if method not in reading]
    who = f"not {', '.join(others)}" if len(others) < len(reading) else ", ".join(reading)
    defaults = {_default_shown(METHODS[method].settings.model_fields[name]) for method in reading}
    defaults.discard("")
    return {
        "help": f"{_described(all_settings()[name])} ({who})",
        "show_default": " or ".join(sorted(defaults)) or False,
    }


def _in_panels(settings: Mapping[str, FieldInfo]) -> dict[str, FieldInfo]:
    """Settings in the order of their panels."""
    named = [name for names in _PANELS.values() for name in names]
    others = [name for name in settings if name not in named]
    return {name: settings[name] for name in named + others}


def _options_of_run() -> dict[str, dict]:
    """What is changed of each option of `run`, by the setting's name."""
    panel_of = {name: panel for panel, names in _PANELS.items() for name in names}
    changes = {}
    for name in all_settings():
        changes[name] = {} if name in RunConfig.model_fields else _method_option(name)
        changes[name]["rich_help_panel"] = panel_of.get(name, _LAST_PANEL)
    rows = f"a row of the paper's tables, or of ours: {', '.join(METHODS)}"
    changes["task"] |= {"kind": str}
    changes["method"] |= {"kind": str, "help": rows}
    for name in ("sets", "splits", "words"):
        changes[name]["kind"] = list[str] | None
    changes["splits"]["flag"] = "--split"
    changes["words"]["help"] += "; repeatable"
    two_trunks = "two trunks instead of a shared one"
    changes["shared"] |= {"kind": bool, "flag": "--separate", "help": two_trunks}
    return changes


@app.command(cls=DescribedCommand)
@_with_options(_in_panels(all_settings()), **_options_of_run())
def run(
    out: Annotated[Path, typer.Option(help="folder for records", rich_help_panel=_START)] = Path(
        "runs"
    ),
    keep_model: Annotated[
        bool,
        typer.Option(
            "--keep-model",
            help="keep the trained model beside the record; sets that are added to the task, or "
            "to --sets, are then scored without training",
            rich_help_panel=_OUTPUT,
        ),
    ] = False,
    reuse: Annotated[
        bool,
        typer.Option(
            "--reuse",
            help="take a record that is there or shipped, or a model that is there, whatever code "
            "made it; train else",
            rich_help_panel=_OUTPUT,
        ),
    ] = False,
    **chosen,
) -> None:
    """Train, evaluate and write one record.

    A run that the same code has finished in --out is skipped; one that it began resumes. A model
    that it has kept there is only scored, on the sets that its record lacks.

    Examples:
        python -m mtlib run --task sentiment --method fine_tuning
        python -m mtlib run --task sentiment --method mask_tuning --alpha 0.1
        python -m mtlib run --task nli --method mask_tuning \\
            --model bert-base-uncased --source hub
    """
    from mtlib.runs import run as runs  # loads torch

    separate = chosen.pop("shared")
    splits = named_values(chosen.pop("splits") or [], "--split", "imdb_contrast=test")
    given = {name: value for name, value in chosen.items() if value not in (None, False)}
    if separate:
        given["shared"] = False
    config = configure(**given, splits=splits)
    path, answered = runs.run(config, out, keep_model, reuse=reuse)
    if os.environ.get("RANK", "0") == "0":  # of several processes, one reports
        _print_record(path, answered)


def _print_record(path: Path, answered: bool) -> None:
    record = read_records([path])[0]
    environment = record["environment"]
    if answered:
        made_on = environment["device"]
        print_line(f"nothing was trained: {path} was made on {made_on} at {origin(environment)}")
    else:
        print_line(f"written: {path}")
    if record.get("diverged"):
        console.print(
            "  the loss was no longer finite: the run has diverged, try a lower learning rate"
        )
    for name, metrics in record["metrics"].items():
        accuracy = f"{100 * metrics['accuracy']:6.2f} %"
        console.print(f"  {name:24} {accuracy}  ({metrics['correct']} of {metrics['n']})")


_FIELDS_OF_TRAIN = {
    name: field for name, field in OwnTraining.model_fields.items() if name != "settings"
}
_OPTIONS_OF_TRAIN = {name: {"rich_help_panel": "Training"} for name in _FIELDS_OF_TRAIN}


@app.command(cls=DescribedCommand)
@_with_options(_FIELDS_OF_TRAIN, **_OPTIONS_OF_TRAIN)
def train(
    file: File,
    text: Text,
    label: Label,
    out: Annotated[Path, typer.Option(help="a new folder for the model")],
    mask_words: MaskWords = None,
    dev: Annotated[
        Path | None, typer.Option(help="rows to choose the checkpoint on (default: a fifth)")
    ] = None,
    test: Annotated[list[Path] | None, typer.Option(help="rows to score on, repeatable")] = None,
    method: Annotated[
        str | None,
        typer.Option(help="any of `run` (default: masks_left with words, else fine_tuning)"),
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="of the method, as alpha=0.3; repeatable")
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="the method without fine-tuning beside it")
    ] = False,
    **training,
) -> None:
    """Train on your own data with words hidden, beside fine-tuning.

    Both are scored where the words mislead, too. A training that was cut off is resumed by the same
    command.

    Examples:
        python -m mtlib train data/example/reviews.csv --text review --label opinion \\
            --mask-words build/words.csv --out build/model
    """
    from mtlib.own_data.debiasing import debias  # loads torch

    make_writable(out.parent)
    words = read_words(mask_words) if mask_words else ()
    rows = _read(file, text, label)
    names = rows.features["label"].names
    more = " ..." if names[10:] else ""
    print_line(f"{len(rows):,} rows; labels: {', '.join(names[:10])}{more}.")
    tests = {name: _read(path, text, label) for name, path in _named_files(test or []).items()}
    result = debias(
        rows,
        words,
        out=out,
        tests=tests,
        method=method,
        dev=_read(dev, text, label) if dev else None,
        settings=named_values(setting or [], "--set", "alpha=0.3"),
        alone=alone,
        report=print_line,
        **training,
    )
    _print_scores(result.table)
    if result.footer:
        print_line(result.footer)
    if len(result.by_word):
        _print_words(result.by_word)
    print_line(f"written: {out}, a folder for transformers.pipeline and SharedPLM.from_pretrained")


def _read(path: Path, text: Sequence[str], label: str) -> "Dataset":
    from mtlib.data.tables import TableFile

    rows = TableFile(path, text, label)
    dataset = rows.dataset()
    if left_out := rows.left_out():
        print_line(left_out)
    return dataset


def _named_files(paths: Sequence[Path]) -> dict[str, Path]:
    """Files by their names, those with one name by their paths."""
    counts = Counter(path.name for path in paths)
    return {path.name if counts[path.name] == 1 else str(path): path for path in paths}


def _print_scores(table: "pandas.DataFrame") -> None:
    from mtlib.own_data.results import scores_shown

    for set_name, lines in table.groupby("set", sort=False):
        shown = lines[["rows", "n", "arm"]].copy()
        shown[["accuracy", "macro F1"]] = [scores_shown(line) for line in lines.itertuples()]
        title = f"{set_name}: per cent, with 95 % intervals"
        print_frame(title, shown, texts=["arm"], optional=["macro F1"])


def _print_words(by_word: "pandas.DataFrame") -> None:
    from mtlib.own_data.results import accuracy_by_word, leans_by_word
    from mtlib.own_data.scoring import HIDDEN

    tables = {
        "how much each model leans on each word, per cent of its rows in dev": leans_by_word,
        "accuracy in the rows where each word points to another label, per cent": accuracy_by_word,
    }
    for title, table_of in tables.items():
        table = table_of(by_word)
        if len(table):
            print_frame(title, table, texts=["word"], optional=[HIDDEN])

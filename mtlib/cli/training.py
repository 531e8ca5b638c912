"""`run` and `train`, whose options are made from settings, so that no default and no description is written twice."""

import inspect
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, get_args

import typer
from pydantic.fields import FieldInfo

from mtlib.cli.own_data import File, Label, Text, read_words
from mtlib.cli.terminal import console, named_values, print_line, print_table, visible
from mtlib.methods import METHODS, readers
from mtlib.paths import make_writable
from mtlib.runs.code import origin
from mtlib.runs.config import OwnTraining, RunConfig, all_settings, configure
from mtlib.runs.records import read_records

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def _with_options(
    fields: Mapping[str, FieldInfo], **changes: Mapping
) -> Callable[[Callable], Callable]:
    """A decorator: the command gets the options of these settings before its own, and their values as `**keywords`.

    A value is text, which the settings' model reads, or None where none was given; a flag is True or False.

    Args:
        fields: by the setting's name.
        changes: by the setting's name: arguments of `typer.Option`, `flag` (how it is written) and `kind` (its type).
    """

    def with_them(command: Callable) -> Callable:
        own = [
            p for p in inspect.signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD
        ]
        options = [_option(name, field, **changes.get(name, {})) for name, field in fields.items()]
        options += [p.replace(kind=p.KEYWORD_ONLY) for p in own]
        options.sort(key=lambda option: option.default is not option.empty)  # what is needed first
        command.__signature__ = inspect.Signature(options)
        command.__annotations__ = {option.name: option.annotation for option in options}
        return command

    return with_them


def _option(name: str, field: FieldInfo, flag: str = "", kind=None, **changes) -> inspect.Parameter:
    kind = kind or (bool if field.annotation is bool else str | None)
    options = {
        "help": _described(field),
        "show_default": _default_shown(field) or False,
        "metavar": "VALUE" if kind == str | None else None,
    }
    option = typer.Option(flag or f"--{name.replace('_', '-')}", **options | changes)
    default = inspect.Parameter.empty if kind is str else False if kind is bool else None
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
    )


def _described(field: FieldInfo) -> str:
    """Its description, and what there is to choose from."""
    choices = [choice for choice in get_args(field.annotation) if isinstance(choice, str)]
    return f"{field.description}: {', '.join(choices)}" if choices else str(field.description)


def _default_shown(field: FieldInfo) -> str:
    """What is taken where nothing is given; "" where that depends on other settings, or is nothing."""
    shown = str(field.default)
    return "" if shown in ("None", "True", "False", "()", "PydanticUndefined") else shown


def _of_methods(name: str) -> dict[str, str]:
    """What the option of a method's setting says beside its description."""
    reading = readers(name)
    others = [method for method in METHODS if method not in reading]
    who = f"not {', '.join(others)}" if len(others) < len(reading) else ", ".join(reading)
    defaults = {
        _default_shown(METHODS[method].settings.model_fields[name]) for method in reading
    } - {""}
    return {
        "help": f"{_described(all_settings()[name])} ({who})",
        "show_default": " or ".join(sorted(defaults)) or False,
        "rich_help_panel": "Settings of methods",
    }


_CHANGES = {
    name: _of_methods(name) for name in all_settings() if name not in RunConfig.model_fields
} | {
    "task": {"kind": str},
    "method": {
        "kind": str,
        "help": f"a row of the paper's tables, or of ours: {', '.join(METHODS)}",
    },
    "sets": {"kind": list[str] | None},
    "splits": {"kind": list[str] | None, "flag": "--split"},
}
_CHANGES["shared"] |= {
    "kind": bool,
    "flag": "--separate",
    "help": "two trunks instead of a shared one",
}


@app.command()
@_with_options(all_settings(), **_CHANGES)
def run(
    out: Annotated[Path, typer.Option(help="folder for records")] = Path("runs"),
    keep_model: Annotated[
        bool, typer.Option("--keep-model", help="keep the trained model beside the record")
    ] = False,
    reuse: Annotated[
        bool,
        typer.Option(
            "--reuse",
            help="take a record that is there or shipped, whatever code made it; train else",
        ),
    ] = False,
    **chosen,
) -> None:
    """Train, evaluate and write one record.

    A run that the same code has finished in --out is skipped; one that it began resumes.
    """
    from mtlib.runs import run as runs  # loads torch

    separate = chosen.pop("shared")
    splits = named_values(chosen.pop("splits") or [], "--split", "imdb_contrast=test")
    given = {name: value for name, value in chosen.items() if value not in (None, False)}
    config = configure(**given, splits=splits, **({"shared": False} if separate else {}))
    path, was_there = runs.run(config, out, keep_model, reuse=reuse)
    if os.environ.get("RANK", "0") != "0":  # of several processes, one reports
        return
    record = read_records([path])[0]
    made_by = record["environment"]
    if was_there:
        print_line(
            f"nothing was trained: {path} was made on {made_by['device']} at {origin(made_by)}"
        )
    else:
        print_line(f"written: {path}")
    if record.get("diverged"):
        console.print(
            "  the loss was no longer finite: the run has diverged, try a lower learning rate"
        )
    for name, metrics in record["metrics"].items():
        console.print(
            f"  {name:24} {100 * metrics['accuracy']:6.2f} %  ({metrics['correct']} of {metrics['n']})"
        )


@app.command()
@_with_options(
    {name: field for name, field in OwnTraining.model_fields.items() if name != "settings"}
)
def train(
    file: File,
    text: Text,
    label: Label,
    out: Annotated[Path, typer.Option(help="a new folder for the model")],
    mask_words: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="CSV of `suspects --out`, or a text file, a word or phrase a line",
        ),
    ] = None,
    dev: Annotated[
        Path | None, typer.Option(help="rows to choose the checkpoint on (default: a fifth)")
    ] = None,
    test: Annotated[list[Path] | None, typer.Option(help="rows to score on, repeatable")] = None,
    method: Annotated[
        str | None,
        typer.Option(help="any of `mtlib run` (default: masks_left with words, else fine_tuning)"),
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="of the method, as alpha=0.3; repeatable")
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="the method without fine-tuning beside it")
    ] = False,
    **training,
) -> None:
    """Train on your own data with words hidden, beside fine-tuning, and score both where the words mislead.

    A training that was cut off is resumed by the same command.
    """
    from mtlib.data.tables import TableFile
    from mtlib.own_data import debias  # loads torch

    def read(path: Path):
        rows = TableFile(path, text, label)
        dataset = rows.dataset()
        if told := rows.told():
            print_line(told)
        return dataset

    make_writable(out)
    # a line, without where it was raised
    warnings.formatwarning = lambda message, *_: f"warning: {visible(str(message))}\n"
    rows = read(file)
    names = rows.features["label"].names
    print_line(
        f"{len(rows):,} rows; labels: {', '.join(names[:10])}{' ...' if names[10:] else ''}."
    )
    files = [path.name for path in test or ()]
    tests = {
        path.name if files.count(path.name) < 2 else str(path): read(path) for path in test or ()
    }
    result = debias(
        rows, read_words(mask_words) if mask_words else (), out=out, tests=tests, method=method,
        dev=read(dev) if dev else None, settings=named_values(setting or [], "--set", "alpha=0.3"),
        alone=alone, report=print_line, **training,
    )  # fmt: skip
    scores = [
        [
            line.set,
            line.rows,
            line.n,
            line.arm,
            *(_with_interval(line, name) for name in ("accuracy", "macro_f1")),
        ]
        for line in result.table.itertuples()
    ]
    print_table(
        "per cent, with 95 % intervals", ["set", "rows", "n", "arm", "accuracy", "macro F1"], scores
    )
    print_line(f"written: {out}, a folder for transformers.pipeline and SharedPLM.from_pretrained")


def _with_interval(line, name: str) -> str:
    value, low, high = (getattr(line, name + bound) for bound in ("", "_low", "_high"))
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"

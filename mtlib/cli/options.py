"""Options made from the fields of settings, so that no default and no description is written twice."""

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, get_args

import typer
from pydantic.fields import FieldInfo


def with_options(fields: Mapping[str, FieldInfo], **changes: Mapping) -> Callable[[Callable], Callable]:
    """A decorator: the command gets the options of these settings before its own, and their values as `**keywords`.

    A value is text, which the settings' model reads, or None where none was given; a flag is True or False.

    Args:
        fields: by the setting's name.
        changes: by the setting's name: arguments of `typer.Option`, `flag` (how it is written) and `kind` (its type).
    """

    def with_them(command: Callable) -> Callable:
        own = [p for p in inspect.signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
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
        "help": described(field),
        "show_default": default_shown(field) or False,
        "metavar": "VALUE" if kind == str | None else None,
    }
    option = typer.Option(flag or f"--{name.replace('_', '-')}", **options | changes)
    default = inspect.Parameter.empty if kind is str else False if kind is bool else None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option])


def described(field: FieldInfo) -> str:
    """Its description, and what there is to choose from."""
    choices = [choice for choice in get_args(field.annotation) if isinstance(choice, str)]
    return f"{field.description}: {', '.join(choices)}" if choices else str(field.description)


def default_shown(field: FieldInfo) -> str:
    """What is taken where nothing is given; "" where that depends on other settings, or is nothing."""
    shown = str(field.default)
    return "" if shown in ("None", "True", "False", "()", "PydanticUndefined") else shown

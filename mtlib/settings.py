"""Settings models: frozen fields with a type, bounds, a default and a help text.

`as_user_error` says what is wrong with a value, both for models and for single arguments (`check`).
"""

import os
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from mtlib.errors import UserError, one_of


def _as_text(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


Share = Annotated[float, Field(ge=0, le=1)]
Above0 = Annotated[float, Field(gt=0, allow_inf_nan=False)]
From0 = Annotated[float, Field(ge=0, allow_inf_nan=False)]
CountFrom0 = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Name = Annotated[str, BeforeValidator(_as_text)]

Fill = Literal["argmax", "sample"]
Update = Literal["joint", "balanced", "alternating"]
ClassifierReads = Literal["refilled", "original"]

MASK_RATE = 0.05  # the share of tokens that the paper masks
ENGLISH_PIPELINE = "en_core_web_sm"


class Settings(BaseModel):
    """Settings of a method or of a run; a value that does not fit raises `UserError`."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False)

    def __init__(self, **values: object):
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise as_user_error(error, type(self).model_fields) from error

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_truth_values(cls, value: object, info: ValidationInfo) -> object:
        """pydantic would take `alpha: true` of a sweep file for 1.0."""
        assert info.field_name is not None
        if isinstance(value, bool) and cls.model_fields[info.field_name].annotation is not bool:
            raise ValueError("a value other than true or false")
        return value

    def ignored(self) -> dict[str, str]:
        """The settings that the values of others make ineffective, each with the reason."""
        return {}

    def reads(self, name: str) -> bool:
        """Whether there is such a setting, and the others leave it in effect."""
        return name in type(self).model_fields and name not in self.ignored()

    def recorded(self) -> dict[str, object]:
        """What a record says in place of some values: no path of one machine, and versions."""
        return {}

    @model_validator(mode="after")
    def _refuse_what_is_not_read(self) -> Self:
        for name, reason in self.ignored().items():
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                raise UserError(f"{name} is {value!r}, but {reason}; leave one of them out.")
        return self


def check(name: str, value: object, kind: Any) -> None:
    """Raise `UserError` unless `value` is of a type such as `Share` or a `Literal`.

    The message calls the value `name`.
    """
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError as error:
        raise as_user_error(error, called=name) from error


def check_choice(name: str, value: object, names: Collection[str]) -> None:
    """Raise `UserError` unless `value`, which the message calls `name`, is one of these names."""
    if not isinstance(value, str) or value not in names:
        raise UserError(f"{name} is {value!r}; {one_of(value, names)}")


def as_user_error(
    error: ValidationError,
    fields: Mapping[str, FieldInfo] = MappingProxyType({}),
    called: str = "",
) -> UserError:
    """The first thing that is wrong: the value, what was expected, and what the setting is for.

    A misspelt setting comes before one that is missing, which may be the same.

    Args:
        error: pydantic's.
        fields: of the model.
        called: what the message calls the value; by default the name of its field.
    """
    errors = error.errors(include_url=False)
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, UserError):
        return cause
    name = called or ".".join(map(str, first["loc"]))
    field = fields.get(name.partition(".")[0])
    about = f" ({field.description})" if field is not None and field.description else ""
    if first["type"] == "extra_forbidden":
        return UserError(f"there is no setting {name!r}; {one_of(first['loc'][-1], fields)}")
    if first["type"] == "missing":
        return UserError(f"{name} is missing; give it{about}.")
    expected = first["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return UserError(f"{name} is {first['input']!r}; expected {expected}{about}.")

"""Old names of public methods, which still work and give a DeprecationWarning."""

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def keep_old_names(cls: type, new_names: Mapping[str, str]) -> None:
    """Let users of a class call, and authors of a subclass define, methods by their old names.

    To be called from `__init_subclass__`, and once for the class itself. Of an attribute that is
    not a method, only the definition in a subclass is taken over.

    Args:
        cls: the class.
        new_names: of its methods and attributes, by their old names.
    """
    for old, new in new_names.items():
        defined = vars(cls)
        if inspect.isfunction(defined.get(new)):
            setattr(cls, old, _with_warning(defined[new], old, new))
        elif old in defined:  # a subclass that was written for an earlier release
            _warn(f"{cls.__name__}.{old}", new)
            setattr(cls, new, defined[old])


def _with_warning(
    method: Callable[_Arguments, _Result],
    old: str,
    new: str,
) -> Callable[_Arguments, _Result]:
    @functools.wraps(method)
    def renamed(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        _warn(old, new)
        return method(*args, **kwargs)

    return renamed


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is now called {new}", DeprecationWarning, stacklevel=3)

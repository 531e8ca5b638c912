"""Old names of public methods and modules, which still work and give a warning."""

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

# old modules, and those that have their names now
_MODULES = {
    "mtlib.runs.debias": ("mtlib.own_data.debiasing", "mtlib.own_data.preparing"),
    "mtlib.suspect_words": (
        "mtlib.own_data.suspects",
        "mtlib.own_data.conflicts",
        "mtlib.rows.folding",
    ),
    "mtlib.followed_words": ("mtlib.own_data.leans",),
    "mtlib.folding": ("mtlib.rows.folding",),
    "mtlib.cells": ("mtlib.rows.cells",),
    "mtlib.marking": ("mtlib.spans",),
    "mtlib.policies.suspect_tags": ("mtlib.own_data.parts_of_speech",),
    "mtlib.draws": ("mtlib.rng",),
    "mtlib.methods.readings": ("mtlib.methods.classification_variants",),
    "mtlib.sweeps.engines": ("mtlib.sweeps.executors",),
}
# new names within these
_NAMES = {
    "Draws": "KeyedRNG",
    "LocalEngine": "LocalExecutor",
    "RayEngine": "RayExecutor",
}


class _OldModules(MetaPathFinder, Loader):
    """Makes a module of an old name, which looks its names up in the new ones."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname in _MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        module.__getattr__ = functools.partial(_from_new_module, old)  # type: ignore[method-assign]


def _from_new_module(old: str, name: str) -> object:
    """What a user of the old module finds there by this name."""
    if not name.startswith("__"):
        new_name = _NAMES.get(name, name)
        for new in map(import_module, _MODULES[old]):
            if hasattr(new, new_name):
                message = f"{old}.{name} is now {new.__name__}.{new_name}"
                warnings.warn(message, DeprecationWarning, stacklevel=2)
                return getattr(new, new_name)
    raise AttributeError(f"module {old!r} has no attribute {name!r}")


def old_names(module: str, new_names: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a module in which some names are new.

    Args:
        module: its name.
        new_names: by the old ones.
    """

    def look_up(name: str) -> object:
        if name not in new_names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        new = new_names[name]
        message = f"{name} is now called {new}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(import_module(module), new)

    return look_up


def find_old_modules() -> None:
    """Let users import modules by their old names."""
    sys.meta_path.append(_OldModules())


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

"""The earlier name of `mtlib.own_data`."""

import warnings
from importlib import import_module

warnings.warn("mtlib.runs.debias is now mtlib.own_data", DeprecationWarning, stacklevel=2)


def __getattr__(name: str):
    # by name, since `runs` stands below `own_data`
    return getattr(import_module("mtlib.own_data"), name)

"""The road with one's own data, from a table to a classifier that does not lean on given words.

`suspects` finds words that predict the label, `leans` which of them a model follows, and `debias`
trains one with words hidden. `mtlib` has these three, too.
"""

from importlib import import_module

_NAMES = {
    "mtlib.own_data.debiasing": ("debias",),
    "mtlib.own_data.preparing": ("prepare",),
    "mtlib.own_data.results": ("Debiased",),
    "mtlib.own_data.scoring": ("parts_of",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _MODULES:  # `suspects` needs no torch, which `debias` loads
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)

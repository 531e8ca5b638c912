"""Mask-tuning (arXiv 2307.10457): fine-tune a masked language model on its own perturbed inputs.

    from mtlib import FineTuning, MaskTuning, ObjectiveArguments, ObjectiveTrainer
    from mtlib import SharedPLM, tokenise

Importing the package imports nothing heavy; each name is loaded when it is first used.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for type checkers and editors; the same names as in `_NAMES`
    from mtlib.data.tables import read_table
    from mtlib.encoding import Collator, predict, tokenise
    from mtlib.errors import UserError
    from mtlib.masking import (
        BernoulliMasking,
        ExactMasking,
        GivenWords,
        MaskingPolicy,
        WholeWordMasking,
    )
    from mtlib.methods import METHODS
    from mtlib.objectives import FineTuning, MaskedLM, MaskTuning, Objective, ObjectiveOutput
    from mtlib.own_data.conflicts import conflicts
    from mtlib.own_data.debiasing import debias
    from mtlib.own_data.leans import leans
    from mtlib.own_data.suspects import suspects
    from mtlib.plm import SharedPLM
    from mtlib.trainer import ObjectiveArguments, ObjectiveTrainer

__version__ = "0.1.0"

# Threads that wait give their core up soon (OpenMP reads this when torch is loaded): beside one
# busy process a step with two threads is 1.6 times faster. A user's own setting stays.
_QUIET = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}
if not {"OMP_WAIT_POLICY", "KMP_LIBRARY", *_QUIET} & os.environ.keys():
    os.environ.update(_QUIET)

_NAMES = {
    "mtlib.data.tables": ("read_table",),
    "mtlib.encoding": ("Collator", "predict", "tokenise"),
    "mtlib.errors": ("UserError",),
    "mtlib.masking": (
        "BernoulliMasking",
        "ExactMasking",
        "GivenWords",
        "MaskingPolicy",
        "WholeWordMasking",
    ),
    "mtlib.methods": ("METHODS",),
    "mtlib.objectives": ("FineTuning", "MaskTuning", "MaskedLM", "Objective", "ObjectiveOutput"),
    "mtlib.own_data.conflicts": ("conflicts",),
    "mtlib.own_data.debiasing": ("debias",),
    "mtlib.own_data.leans": ("leans",),
    "mtlib.own_data.suspects": ("suspects",),
    "mtlib.plm": ("SharedPLM",),
    "mtlib.trainer": ("ObjectiveArguments", "ObjectiveTrainer"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = [
    "METHODS",
    "BernoulliMasking",
    "Collator",
    "ExactMasking",
    "FineTuning",
    "GivenWords",
    "MaskTuning",
    "MaskedLM",
    "MaskingPolicy",
    "Objective",
    "ObjectiveArguments",
    "ObjectiveOutput",
    "ObjectiveTrainer",
    "SharedPLM",
    "UserError",
    "WholeWordMasking",
    "conflicts",
    "debias",
    "leans",
    "predict",
    "read_table",
    "suspects",
    "tokenise",
]


if not TYPE_CHECKING:  # checkers would take any name for one of the package's

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module 'mtlib' has no attribute {name!r}")
        return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]

"""Mask-tuning (arXiv 2307.10457): fine-tune a masked language model on its own perturbed inputs.

    from mtlib import FineTuning, MaskTuning, ObjectiveArguments, ObjectiveTrainer
    from mtlib import SharedPLM, tokenise

Importing the package imports nothing heavy; each name is loaded when it is first used.
"""

import os
import sys
from importlib import import_module

from mtlib.threads import quiet_openmp

__version__ = "0.1.0"

if "torch" not in sys.modules:  # OpenMP reads its settings once, when torch is loaded
    quiet_openmp(os.environ)

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
    "mtlib.own_data": ("debias",),
    "mtlib.plm": ("SharedPLM",),
    "mtlib.suspect_words": ("conflicts", "suspects"),
    "mtlib.trainer": ("ObjectiveArguments", "ObjectiveTrainer"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_MODULES)


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module 'mtlib' has no attribute {name!r}")
    try:
        return getattr(import_module(_MODULES[name]), name)
    except ImportError:
        from mtlib.errors import UserError
        from mtlib.requirements import misfits

        if sentences := misfits():
            raise UserError(sentences[0]) from None
        raise


def __dir__() -> list[str]:
    return [*globals(), *__all__]

"""Mask-tuning (arXiv 2307.10457): fine-tune a masked language model on its own perturbed inputs.

    from mtlib import FineTuning, MaskTuning, ObjectiveArguments, ObjectiveTrainer, SharedPLM, tokenise

Importing the package imports nothing heavy; each name is loaded when it is first used.
"""

from importlib import import_module

__version__ = "0.1.0"

_MODULES = {
    "BernoulliMasking": "mtlib.masking",
    "Collator": "mtlib.encoding",
    "ExactMasking": "mtlib.masking",
    "GivenWords": "mtlib.masking",
    "MaskingPolicy": "mtlib.masking",
    "WholeWordMasking": "mtlib.masking",
    "FineTuning": "mtlib.objectives",
    "MaskTuning": "mtlib.objectives",
    "MaskedLM": "mtlib.objectives",
    "Objective": "mtlib.objectives",
    "ObjectiveOutput": "mtlib.objectives",
    "ObjectiveArguments": "mtlib.trainer",
    "ObjectiveTrainer": "mtlib.trainer",
    "METHODS": "mtlib.methods",
    "SharedPLM": "mtlib.plm",
    "UserError": "mtlib.errors",
    "conflicts": "mtlib.suspect_words",
    "debias": "mtlib.runs.debias",
    "predict": "mtlib.encoding",
    "read_table": "mtlib.data.tables",
    "suspects": "mtlib.suspect_words",
    "tokenise": "mtlib.encoding",
}
__all__ = sorted(_MODULES)


def __getattr__(name: str):
    if name not in _MODULES:
        raise AttributeError(f"module 'mtlib' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]

"""Mask-tuning (arXiv 2307.10457): fine-tune a masked language model on its own perturbed inputs.

Importing the package imports nothing heavy; take what you need from its modules
(`mtlib.masking`, `mtlib.plm`, `mtlib.objectives`, `mtlib.trainer`, ...).
"""

__version__ = "0.1.0"

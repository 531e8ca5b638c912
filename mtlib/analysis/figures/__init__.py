"""Plots of results in one look: shown with a sentence that says what is there.

Functions that draw return the figure and that sentence.
"""

from mtlib.analysis.figures.results import accuracy
from mtlib.analysis.figures.style import FAMILIES, show, styled

__all__ = ["FAMILIES", "accuracy", "show", "styled"]

"""Plots of results in one look: shown or saved with a sentence that says what they show.

Functions that draw return the figure and that sentence.
"""

from mtlib.analysis.figures.results import accuracy
from mtlib.analysis.figures.style import FAMILIES, save, show, styled

__all__ = ["FAMILIES", "accuracy", "save", "show", "styled"]

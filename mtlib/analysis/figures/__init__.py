"""Every plot, in one look: made from run records, shown or saved with a sentence that says what it shows."""

# ruff: noqa: F401
from mtlib.analysis.figures.accuracy import against_size, curve, differences, gap, group_means
from mtlib.analysis.figures.method import method
from mtlib.analysis.figures.peers import ensembling, reweighting, softening, token_rows
from mtlib.analysis.figures.policies import gap_by_touch, masks_overlap, sentence
from mtlib.analysis.figures.shares import shares_over, stacked
from mtlib.analysis.figures.shortcuts import dial, planted, probes, split
from mtlib.analysis.figures.style import new, save, show
from mtlib.analysis.figures.training import gradients, learning_curves, loss_scatter

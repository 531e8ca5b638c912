"""Every plot, in one look: shown or saved with a sentence that says what it shows. All return figure and sentence."""

import pandas
from matplotlib.figure import Figure

from mtlib.analysis import comparisons
from mtlib.analysis.figures.front import front
from mtlib.analysis.figures.results import accuracy, curve
from mtlib.analysis.figures.style import save, show

__all__ = ["accuracy", "curve", "front", "save", "show"]


def standard() -> dict[str, tuple[Figure, str]]:
    """The figures of `python -m mtlib figures`, by name. (figures/method is a drawing, and stays as it is.)"""
    load = comparisons.load
    base_sized = pandas.concat([load("base").frame(), load("decisive").frame()])
    return {
        "front": front(),
        "data": curve(
            base_sized.query("arm in ['fine-tuning', 'Mask-tuning'] and epochs == 3"), "train_size",
            title="Base-sized model: more phrases (two experiments, see the report)",
            xlabel="training phrases of SST-2",
        ),
        "sizes": curve(
            load("sizes").frame(), "train_size", title="Bundled model: more phrases, and so more steps",
            xlabel="training phrases of SST-2",
        ),
        "alpha": curve(
            load("study_alpha").frame().query("task == 'sentiment'"), "alpha", title="Bundled model, 4,000 phrases",
            xlabel="alpha, weight of the masked-LM loss",
        ),
        "ablations": accuracy(load("ablations").frame(), "Testbed: parts of Mask-tuning, the shortcut's words masked"),
        "policies": accuracy(load("policies").frame(), "Testbed: what Mask-tuning (balanced) masks"),
        "peers": accuracy(load("peers_testbed").frame(), "Testbed: other methods, alone and inside Mask-tuning"),
    }  # fmt: skip

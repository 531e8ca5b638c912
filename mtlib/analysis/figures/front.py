"""The front page's figure: what is hidden of a sentence and what comes of it; below, the claims on real data."""

import re

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mtlib.analysis import comparisons
from mtlib.analysis.claims import claims
from mtlib.analysis.figures import style
from mtlib.testbed.grammar import load_grammar
from mtlib.testbed.known_words import shortcut_spans

_SENTENCE = "The spy novel by Petra Novak was a bore."  # by the words of the testbed's grammar
_RED, _GREEN, _GREY = "#c44e00", "#02805f", "0.5"
_SET = "testbed_contrast"
_POLICIES = (  # label, comparison and arm, words that are hidden (None: the shortcut's), colour
    ("nothing hidden: fine-tuning", ("ablations", "fine-tuning"), (), _RED),
    ("5 % at random, as in the paper", ("ablations", "random, 5 %"), ("was",), _RED),
    ("all words of the shortcut", ("ablations", "Mask-tuning"), None, _GREEN),
    ("no shortcut in the training data", ("testbed", "no shortcut"), (), _GREY),
)
_REAL = {"sst2": "SST-2", "imdb_contrast": "IMDB\ncontrast", "imdb_cad": "IMDB-CAD", "hans": "HANS"}
_MODEL = "BERT-base"  # whose claim is the star


@style.styled
def front() -> tuple[Figure, str]:
    """Four rows with a sentence and a bar each, on the testbed's set where the shortcut misleads; four intervals."""
    figure = Figure(figsize=(6.2, 6.6), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=[1.25, 1])
    left, right = above.subplots(1, 2, width_ratios=[1.5, 1])
    words = {"testbed": _policies(left, right), "real data": _claims(below.subplots())}
    above.suptitle("Testbed: hide the words that mislead, not 5 % at random", x=0.01, ha="left", weight="bold")
    below.suptitle("Real data: 5 % at random does not do what is claimed", x=0.01, ha="left", weight="bold")
    return figure, style.sentence("What hiding words does to a shortcut, and Mask-tuning on real data", words)


def _policies(left: Axes, right: Axes) -> list[str]:
    told = []
    for row, (label, (name, arm), hidden, colour) in enumerate(_POLICIES):
        scores = comparisons.load(name).frame().query("set == @_SET and arm == @arm and task == 'sentiment'")
        mean = scores["accuracy"].mean()
        told.append(f"{label}: {mean:.0f} %")
        left.text(0, row - 0.2, label, weight="bold", va="center", color=colour if colour != _GREY else "0.3")
        _sentence(left, row + 0.17, hidden, marked=arm != "no shortcut")
        right.barh(row, mean, height=0.55, color=colour)
        right.text(mean + 2, row, f"{mean:.0f} %", va="center", weight="bold")
    right.axvline(50, color="black", ls=":", lw=1.5)
    right.text(50, -0.62, "guessing", ha="center", va="bottom", fontsize=9)
    right.set(xlim=(0, 112), ylim=(3.5, -0.5), yticks=[], xticks=[0, 50, 100])
    right.set_xlabel("right where it misleads, %")
    left.set(xlim=(0, len(_SENTENCE)), ylim=(3.5, -0.5))
    left.axis("off")
    return told


def _sentence(axis: Axes, y: float, hidden: tuple[str, ...] | None, marked: bool) -> None:
    """Word for word: the shortcut's in red, what is hidden as a dark box."""
    spans, _ = shortcut_spans(load_grammar("sentiment"), _SENTENCE)
    for word in re.finditer(r"[\w.]+", _SENTENCE):
        of_shortcut = any(start <= word.start() < end for start, end in spans)
        is_hidden = of_shortcut if hidden is None else word[0] in hidden
        look = {"color": _RED, "weight": "bold"} if of_shortcut and marked else {"color": "0.25"}
        box = {"facecolor": "0.25", "edgecolor": "none", "pad": 1.5} if is_hidden else None
        look |= {"color": "0.25"} if is_hidden else {}
        axis.text(word.start(), y, word[0], family="DejaVu Sans Mono", fontsize=10.2, va="center", bbox=box, **look)


def _claims(axis: Axes) -> list[str]:
    told, lines = [], claims().drop_duplicates("set").set_index("set")
    for row, (name, label) in enumerate(_REAL.items()):
        line = lines.loc[name]
        bar = [[line["mean"] - line["low"]], [line["high"] - line["mean"]]]
        axis.errorbar(line["mean"], row, xerr=bar, fmt="o", ms=7, lw=2.5, capsize=4, color=style.PALETTE[0])
        axis.plot(line[_MODEL], row, "*", ms=16, color="black", mec="white")
        told.append(f"{label.replace(chr(10), ' ')} {line['mean']:+.1f} (claimed {line[_MODEL]:+.1f})")
    axis.errorbar([], [], xerr=[], fmt="o", color=style.PALETTE[0], label="measured here, 95 %")
    axis.plot([], [], "*", ms=13, ls="", color="black", label="the paper's claim (BERT)")
    axis.axvline(0, color="0.3", lw=1)
    style.rows_down(axis, _REAL.values(), xlabel="Mask-tuning minus fine-tuning, points of accuracy")
    axis.legend(loc="upper right", fontsize=9.5)
    return told

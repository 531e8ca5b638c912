"""The figures of the front page and of the report, drawn from data/results.

    python -m figures.make [FOLDER]

FOLDER is by default this one. `method` is a drawing made by hand and stays as it is.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from data import followed
from mtlib.analysis import comparisons
from mtlib.analysis.claims import claims
from mtlib.analysis.figures import leans, style
from mtlib.analysis.figures.results import mean_with_interval
from mtlib.testbed.grammar import load_grammar
from mtlib.testbed.known_words import shortcut_spans

_SENTENCE = "The spy novel by Petra Novak was a bore."  # in words of the testbed's grammar
_RED, _GREEN, _GREY = "#c44e00", "#02805f", "0.5"
_MISLEADING_SET = "testbed_contrast"
_NO_SHORTCUT = "testbed (strength 0, seed 0)"


class _Policy(NamedTuple):
    """A row of the figure of the front page, above."""

    label: str
    comparison: str
    arm: str
    source: str  # of the training set
    hidden: tuple[str, ...] | None  # words of the sentence; None: those of the shortcut
    colour: str


_POLICIES = (
    _Policy("nothing hidden: fine-tuning", "ablations", "fine-tuning", "testbed", (), _RED),
    _Policy(
        "5 % at random, as in the paper", "ablations", "random, 5 %", "testbed", ("was",), _RED
    ),
    _Policy("all words of the shortcut", "ablations", "Mask-tuning", "testbed", None, _GREEN),
    _Policy(
        "no shortcut in training", "recipe", "fine-tuning, rates 1e-4", _NO_SHORTCUT, (), _GREY
    ),
)
_REAL_SETS = {"sst2": "SST-2", "imdb_contrast": "IMDB\ncontrast", "imdb_cad": "IMDB-CAD"}
_CLAIMED = {"BERT-base": "*", "RoBERTa-base": "^", "BART-base": "s"}  # the markers of the claims


def standard() -> dict[str, tuple[Figure, str]]:
    """Every figure and the sentence that says what it shows, by name."""
    return {"leans": example_leans(), "front": front()}


@style.styled
def example_leans() -> tuple[Figure, str]:
    """What models of the example follow, before and after the brands are hidden in training."""
    names = {"fine-tuning": "before: fine-tuning", "masks left in": "after: brands masked"}
    lines = followed.frame().query("data == 'example'")
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    words = {}
    panels = {"marked": "Brands: should not decide", "other": "Opinions: should decide"}
    for axis, (group, title) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        in_group = lines[lines["group"] == group]
        tables = {
            name: followed.by_word(in_group[in_group["arm"] == arm]) for arm, name in names.items()
        }
        facts = leans.bars(axis, tables, sorted(in_group["suspect"].unique()))
        words |= {f"{title}, {name}": values for name, values in facts.items()}
        axis.set_title(title, weight="bold")
        axis.set(xlim=(-10, 102), xlabel="answers that follow the word, %")
    title = "What does the model follow? Bars: means of five seeds; lines: lowest to highest"
    style.finish(figure, title, axis)
    return figure, style.sentence("Per cent of answers that follow each word", words)


@style.styled
def front() -> tuple[Figure, str]:
    """What hiding words does on the testbed, a bar for each policy; below, claims on real data.

    The bars are accuracies on the set where the shortcut misleads. The claims are intervals.
    """
    figure = Figure(figsize=(6.2, 6.6), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=[1.25, 1])
    left, right = above.subplots(1, 2, width_ratios=[1.5, 1])
    words = {"testbed": _draw_policies(left, right), "real data": _draw_claims(below.subplots())}
    left_title = {"x": 0.01, "ha": "left", "weight": "bold"}
    above.suptitle("Testbed: hide the words that mislead, not 5 % at random", **left_title)
    below.suptitle("Reviews: 5 % at random, each arm at its own learning rate", **left_title)
    lead = "What hiding words does to a shortcut, and Mask-tuning on real data"
    return figure, style.sentence(lead, words)


def _draw_policies(left: Axes, right: Axes) -> list[str]:
    """A row for each policy, with the sentence as it is then read and a bar; the bars in words."""
    words = []
    for row, policy in enumerate(_POLICIES):
        mean, low, high = mean_with_interval(_where_it_misleads(policy))
        words.append(f"{policy.label}: {mean:.0f} %")
        label_colour = "0.3" if policy.colour == _GREY else policy.colour
        left.text(0, row - 0.2, policy.label, weight="bold", va="center", color=label_colour)
        has_shortcut = policy.source != _NO_SHORTCUT
        _draw_sentence(left, row + 0.17, policy.hidden, has_shortcut)
        interval = [[mean - low], [high - mean]]
        look = {"ecolor": "black", "error_kw": {"capsize": 3, "lw": 1.2}}
        right.barh(row, mean, xerr=interval, height=0.55, color=policy.colour, **look)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        right.text(high + 4, row, f"{mean:.0f} %", va="center", weight="bold", bbox=box)
    right.axvline(50, color="black", ls=":", lw=1.5)
    right.text(50, -0.62, "guessing", ha="center", va="bottom", fontsize=9)
    right.set(xlim=(0, 125), ylim=(3.5, -0.5), yticks=[], xticks=[0, 50, 100])
    right.set_xlabel("right where it misleads, %\n(five seeds, 95 %)")
    left.set(xlim=(0, len(_SENTENCE)), ylim=(3.5, -0.5))
    left.axis("off")
    return words


def _where_it_misleads(policy: _Policy) -> pandas.Series:
    """The accuracy of each seed on the set where the shortcut misleads."""
    scores = comparisons.load(policy.comparison).frame()
    wanted = {
        "set": _MISLEADING_SET,
        "arm": policy.arm,
        "source": policy.source,
        "task": "sentiment",
    }
    return scores.loc[(scores[list(wanted)] == wanted).all(axis="columns"), "accuracy"]


def _draw_sentence(
    axis: Axes,
    y: float,
    hidden: tuple[str, ...] | None,
    has_shortcut: bool,
) -> None:
    """Word for word: the shortcut's words in red, hidden ones as a dark box."""
    spans, _ = shortcut_spans(load_grammar("sentiment"), _SENTENCE)
    for word in re.finditer(r"[\w.]+", _SENTENCE):
        in_shortcut = any(start <= word.start() < end for start, end in spans)
        is_hidden = in_shortcut if hidden is None else word[0] in hidden
        look = {"color": "0.25"}
        if in_shortcut and has_shortcut:
            look = {"color": _RED, "weight": "bold"}
        if is_hidden:
            look["color"] = "0.25"
            look["bbox"] = {"facecolor": "0.25", "edgecolor": "none", "pad": 1.5}
        font = {"family": "DejaVu Sans Mono", "fontsize": 10.2}
        axis.text(word.start(), y, word[0], va="center", **font, **look)


def _draw_claims(axis: Axes) -> list[str]:
    """The interval measured here and the paper's three claims for each set; both in words."""
    words = []
    by_set = claims().drop_duplicates("set").set_index("set")
    for row, (name, label) in enumerate(_REAL_SETS.items()):
        claim = by_set.loc[name]
        mean = claim["mean"]
        bar = [[mean - claim["low"]], [claim["high"] - mean]]
        look = {"fmt": "o", "ms": 7, "lw": 2.5, "capsize": 4, "color": style.PALETTE[0]}
        axis.errorbar(mean, row, xerr=bar, **look)
        for number, (model, marker) in enumerate(_CLAIMED.items()):
            below = row + 0.18 + 0.13 * number  # so that equal claims do not cover one another
            axis.plot(claim[model], below, marker, **_of_claim(marker))
        claimed = ", ".join(f"{claim[model]:+.1f}" for model in _CLAIMED)
        words.append(f"{label.replace(chr(10), ' ')} {mean:+.1f} (claimed {claimed})")
    look = {"fmt": "o", "color": style.PALETTE[0]}
    axis.errorbar([], [], xerr=[], label="MPNet-base here, 95 %", **look)
    for model, marker in _CLAIMED.items():
        axis.plot([], [], marker, label=f"the paper, {model}", **_of_claim(marker))
    axis.axvline(0, color="0.3", lw=1)
    xlabel = "Mask-tuning minus fine-tuning, points of accuracy"
    style.rows_down(axis, _REAL_SETS.values(), xlabel=xlabel)
    axis.set(xlim=(-3.3, 8), ylim=(len(_REAL_SETS) - 0.35, -0.5))
    axis.legend(loc="upper right", fontsize=9)
    return words


def _of_claim(marker: str) -> dict:
    """The look of a claim's marker; a star needs more room than other markers."""
    size = 11 if marker == "*" else 7
    return {"ms": size, "ls": "", "color": "black", "mec": "white"}


@style.styled
def save(figure: Figure, path: Path, alt: str) -> None:
    """Write a PNG with the alternative text in its metadata."""
    figure.savefig(path, metadata={"Description": alt, "Software": None})


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    folder.mkdir(parents=True, exist_ok=True)
    for name, (figure, alt) in standard().items():
        path = folder / f"{name}.png"
        save(figure, path, alt)
        print(f"written: {path}")

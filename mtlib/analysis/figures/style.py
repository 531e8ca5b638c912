"""The look of every figure: colours of a colour-blind palette, and always a second cue (marker, line, hatching)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
import seaborn
from matplotlib.artist import Artist
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation, Transform

from mtlib.analysis.row_names import label, method_of, policy_of
from mtlib.data.tasks import kind
from mtlib.methods import METHODS

PALETTE = seaborn.color_palette("colorblind").as_hex()  # for what is no method: sets, losses, tasks
MARKERS = "osD^vPhX<>"
LINES = ("-", "--", "-.", ":")
OF_A_SEED = {"mfc": "white", "ms": 3.5, "zorder": 3}  # a small circle beside the mean
_STYLE = {
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.hashsalt": "mtlib",  # the same figure gives the same file
}
# variants of a method; its own look is in the table of methods
_VARIANTS = {
    "mask_tuning (alternating)": ("#949494", (4, 1, 45)),
    "fine_tuning (6 epochs)": ("#56b4e9", (8, 1, 0)),
    "mask_tuning (balanced)": ("#882255", (4, 1, 0)),
    "plain_mlm": ("#3b3b98", "H"),
}
# masking policies; Mask-tuning with one of them has its look too
_POLICIES = {"exact": _VARIANTS["mask_tuning (balanced)"], "known_shortcut": ("#661100", (6, 1, 0))}
# rows that have no look anywhere take these first, which no method has; filled, or they would vanish on an interval
_SPARE = (
    ("#aa4499", (3, 1, 0)), ("#44aa99", (5, 0, 36)), ("#222222", (4, 1, 22)), ("#6b9e3f", (3, 0, 30)),
    ("#56b4a9", (5, 1, 36)), ("#7f7f7f", (7, 0, 0)),
)  # fmt: skip

styled = matplotlib.rc_context(_STYLE)  # as a decorator: the reader's own settings stay what they are


class Look(NamedTuple):
    """How a row of records is drawn in every figure."""

    label: str
    colour: str
    marker: str | tuple

    @property
    def size(self) -> float:
        """Of the marker in points; stars (a tuple with a 1) have thin points."""
        return 9.0 if isinstance(self.marker, tuple) and self.marker[1] == 1 else 6.0


def looks(rows: Sequence[str]) -> dict[str, Look]:
    """The look of each row of a figure, by its name: the same in every figure, as far as the row is known."""
    known = {name: (method.colour, method.marker) for name, method in METHODS.items()} | _VARIANTS
    known |= {label(name): look for name, look in known.items()}  # rows may come with their names in words
    for row in rows:
        look = _look_of_policy(row, rows)
        if row not in known and look and look not in [known.get(other) for other in rows]:
            known[row] = look
    chosen = _completed(known, rows, _SPARE)
    return {row: Look(label(row), *chosen[row]) for row in rows}


def _look_of_policy(row: str, rows: Sequence[str]) -> tuple | None:
    """Of Mask-tuning with a policy: the policy's; where a figure has two updates, random masks have the update's."""
    if method_of(row) != "mask_tuning":
        return None
    if policy_of(row) == "exact" and "balanced" not in row and any("balanced" in other for other in rows):
        return METHODS["mask_tuning"].colour, METHODS["mask_tuning"].marker
    return _POLICIES.get(policy_of(row))


def _completed(known: Mapping[str, tuple], names: Iterable[str], spare: Iterable[tuple]) -> dict[str, tuple]:
    """Colour and marker of every name: those that are known, and for the others free ones, `spare` first."""
    # 0 is fine-tuning's, 8 too light for a marker; a colour that comes again has another shape
    mixed = [(PALETTE[place], MARKERS[(place + turn) % 10]) for turn in range(9) for place in (1, 2, 3, 4, 5, 6, 7, 9)]
    free = [*spare, *(look for look in mixed if look not in known.values())]
    return dict(known) | dict(zip((name for name in names if name not in known), cycle(free), strict=False))


def aside(axis, place: int, of: int, points: float = 5.0) -> Transform:
    """A transform that moves number `place` of `of` sideways on paper, so that equal values do not hide each other."""
    shift = ScaledTranslation(points * (place - (of - 1) / 2) / 72, 0, axis.figure.dpi_scale_trans)
    return axis.transData + shift


def line(
    axis, at: np.ndarray, marks: Sequence[np.ndarray], look: Look, place: int, of: int, label: str,
    hollow: np.ndarray | None = None,
) -> None:  # fmt: skip
    """Values with their intervals (`marks` is values, low ends, high ends); line `place` of `of`, a little aside.

    A `hollow` value (boolean, one each) is drawn without its interval.
    """
    values, low, high = marks
    hollow = np.zeros(len(at), dtype=bool) if hollow is None else hollow
    aside = at + 0.06 * (place - (of - 1) / 2)
    axis.errorbar(
        aside, values, yerr=np.where(hollow, 0, [values - low, high - values]), capsize=3, label=label,
        color=look.colour, marker=look.marker, ms=look.size, ls=LINES[place % 4],
    )  # fmt: skip
    if hollow.any():
        white = {"ls": "", "marker": look.marker, "ms": look.size, "color": look.colour, "mfc": "white", "zorder": 3}
        axis.plot(aside[hollow], values[hollow], **white)


def look_of_place(place: int, label: str) -> Look:
    """The look of what stands for no method, by its place."""
    return Look(label, PALETTE[place % 10], MARKERS[place % 10])


def series(place: int) -> dict[str, str]:
    """The look of a line that stands for no method, by its place."""
    return {"color": PALETTE[place % 10], "marker": MARKERS[place % 10], "linestyle": LINES[place % 4]}


def bar(place: int) -> dict[str, str]:
    """The look of a bar, by its place."""
    return {"color": PALETTE[place % 10], "hatch": ("", "//", "..", "xx")[place % 4], "edgecolor": "white"}


@styled
def new(
    width: float = 7.0, height: float = 3.4, columns: int = 1, lines: int = 1, **kwargs
) -> tuple[Figure, np.ndarray]:
    """A figure in the house style and its axes as a flat array; no pyplot, so nothing stays open."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(lines, columns, squeeze=False, **kwargs).ravel()


@styled
def show(figure: Figure, alt: str, says: str = "") -> None:
    """Display in a notebook, with its alternative text, and below it one sentence that says what it shows."""
    from io import BytesIO

    from IPython.display import Markdown, display
    from PIL import Image

    drawn, png = BytesIO(), BytesIO()
    figure.savefig(drawn, format="png", dpi=_STYLE["figure.dpi"])
    # a palette of 256 is enough for a plot, and a third of the size in a notebook that keeps its outputs
    Image.open(drawn).convert("RGB").quantize(256).save(png, format="png", optimize=True)
    display({"image/png": png.getvalue(), "text/plain": alt}, raw=True, metadata={"image/png": {"alt": alt}})
    if says:
        display(Markdown(f"*{says}*"))


@styled
def save(figure: Figure, folder: Path, name: str, alt: str) -> list[Path]:
    """`name.png` and `name.svg`, with the sentence in the files' own metadata."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    figure.savefig(paths[0], metadata={"Description": alt, "Software": None})
    figure.savefig(paths[1], metadata={"Description": alt, "Date": None, "Creator": None})
    return paths


def id_first(sets: Iterable[str]) -> list[str]:
    return sorted(sets, key=lambda name: kind(name) != "id")


def with_kind(set_name: str) -> str:
    return f"{set_name} ({kind(set_name.split()[0])})"  # "imdb_cad original" is a part of imdb_cad


def rows_down(axis, labels: Iterable[str], **settings) -> None:
    """A row per label, from the top down."""
    labels = list(labels)
    axis.set_yticks(range(len(labels)), labels)
    axis.set(ylim=(len(labels) - 0.5, -0.5), **settings)


def legend_below(figure: Figure, handles: Mapping[str, Artist]) -> None:
    """Of these labels, in three columns, or in fewer where they are too long for that.

    The figure has room for two lines of them; for more it grows.
    """
    fitting = (n for n, most in ((3, 66), (2, 74)) if _characters([*handles], n) <= most)
    columns = next(fitting, 1)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns)
    figure.set_figheight(figure.get_figheight() + 0.2 * max(0, math.ceil(len(handles) / columns) - 2))


def labelled(axis) -> dict[str, Artist]:
    """What an axis shows, by its label in the legend."""
    handles, labels = axis.get_legend_handles_labels()
    return dict(zip(labels, handles, strict=True))


def _characters(labels: Sequence[str], columns: int) -> int:
    """In a line of a legend with this many columns, which are as wide as their longest label."""
    return sum(max(map(len, column), default=0) for column in np.array_split(labels, columns))


def sentence(lead: str, words: Mapping[str, Iterable[str]]) -> str:
    return f"{lead}: " + "; ".join(f"{name}: {', '.join(parts)}" for name, parts in words.items()) + "."

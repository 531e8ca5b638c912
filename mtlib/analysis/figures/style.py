"""The look of every figure: colours of a colour-blind palette, and always a second cue (marker, line)."""

import math
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path

import matplotlib
import seaborn
from matplotlib.figure import Figure

# of seaborn's ten those that are dark enough for a marker on white; a colour that comes again has another shape
PALETTE = [colour for place, colour in enumerate(seaborn.color_palette("colorblind").as_hex()) if place not in (6, 8)]
MARKERS = "osD^vPhX<>"
LINES = ("-", "--", "-.", ":")
_STYLE = {
    "figure.dpi": 100,
    "savefig.dpi": 160,
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.hashsalt": "mtlib",  # the same figure gives the same file
}
styled = matplotlib.rc_context(_STYLE)  # as a decorator: the reader's own settings stay what they are


def series(place: int) -> dict[str, str]:
    """Colour, marker and line by place."""
    return {"color": PALETTE[place % 8], "marker": MARKERS[place % 10], "linestyle": LINES[place % 4]}


@styled
def panels(names: Mapping[str, str], width: float, height: float, **kwargs) -> tuple[Figure, dict]:
    """A figure with a panel for each name, three in a line, with its title: size of one in inches. Axes by name.

    No pyplot, so nothing stays open.
    """
    columns, lines = min(3, len(names)), math.ceil(len(names) / 3)
    figure = Figure(figsize=(width * columns, height * lines + 0.6), layout="constrained")
    axes = figure.subplots(lines, columns, squeeze=False, **kwargs).ravel()
    for axis in axes[len(names) :]:
        axis.remove()
    for axis, title in zip(axes, names.values(), strict=False):
        axis.set_title(title)
        axis.tick_params(labelbottom=True)  # what stands below may have been removed
    return figure, dict(zip(names, axes, strict=False))


def rows_down(axis, labels: Iterable[str], **settings) -> None:
    """A row for each label, from the top down."""
    labels = list(labels)
    axis.set_yticks(range(len(labels)), labels)
    axis.set(ylim=(len(labels) - 0.5, -0.5), **settings)


def finish(figure: Figure, title: str, axis=None) -> None:
    """The title, and below the figure the legend of one of its axes."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    if axis is not None and (found := axis.get_legend_handles_labels())[1]:
        handles = dict(zip(found[1], found[0], strict=True))
        wide = 0.6 + 0.075 * max(map(len, handles))  # inches of an entry
        columns = max(1, min(len(handles), int(figure.get_figwidth() / wide)))
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns, fontsize=9)
        figure.set_figheight(figure.get_figheight() + 0.2 * math.ceil(len(handles) / columns))


def sentence(lead: str, words: Mapping[str, Iterable[str]]) -> str:
    """Alternative text."""
    return f"{lead}: " + "; ".join(f"{name}: {', '.join(parts)}" for name, parts in words.items()) + "."


@styled
def show(figure: Figure, alt: str, says: str = "") -> None:
    """Display in a notebook, with its alternative text, and below it one sentence that says what it shows."""
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

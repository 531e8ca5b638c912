"""The look of every figure: a colour-blind safe palette, and always a second cue (marker, line)."""

import math
from collections.abc import Iterable, Mapping
from io import BytesIO

import matplotlib
import seaborn
from matplotlib.figure import Figure

# The colours of seaborn's palette that are dark enough for a marker on white. There are fewer
# colours than markers, so that a colour that comes again has another shape.
_TOO_LIGHT = (6, 8)
_ALL_COLOURS = seaborn.color_palette("colorblind").as_hex()
PALETTE = [colour for i, colour in enumerate(_ALL_COLOURS) if i not in _TOO_LIGHT]
MARKERS = "osD^vPhX<>"
LINES = ("-", "--", "-.", ":")
# one colour for each family of methods, in every figure that compares families
FAMILIES = {
    "fine-tuning": PALETTE[0],
    "random masks": PALETTE[1],
    "shortcut's words hidden": PALETTE[2],
    "masked-LM loss, nothing hidden": PALETTE[3],
    "bias model": PALETTE[4],
    "no shortcut in training": "0.5",
}
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
}
styled = matplotlib.rc_context(_STYLE)  # a decorator: the reader's own settings stay as they are


def series(number: int) -> dict[str, str]:
    """Colour, marker and line of a series, by its number."""
    return {
        "color": PALETTE[number % 8],
        "marker": MARKERS[number % 10],
        "linestyle": LINES[number % 4],
    }


def family(name: str) -> dict[str, str]:
    """Colour and marker of a family of methods."""
    return {"color": FAMILIES[name], "marker": MARKERS[list(FAMILIES).index(name)]}


@styled
def panels(names: Mapping[str, str], width: float, height: float, **kwargs) -> tuple[Figure, dict]:
    """A figure with a panel for each name, three in a row; and the axes by name.

    It is made without pyplot, so no figure stays open.

    Args:
        names: the title of each panel by its name.
        width, height: of one panel in inches.
        kwargs: of `Figure.subplots`.
    """
    columns = min(3, len(names))
    rows = math.ceil(len(names) / 3)
    figure = Figure(figsize=(width * columns, height * rows + 0.6), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **kwargs).ravel()
    for axis in axes[len(names) :]:
        axis.remove()
    by_name = dict(zip(names, axes, strict=False))
    for name, axis in by_name.items():
        axis.set_title(names[name])
        axis.tick_params(labelbottom=True)  # the panel below may have been removed
    return figure, by_name


def rows_down(axis, labels: Iterable[str], **settings) -> None:
    """A row for each label, from the top down."""
    labels = list(labels)
    axis.set_yticks(range(len(labels)), labels)
    axis.set(ylim=(len(labels) - 0.5, -0.5), **settings)


def finish(figure: Figure, title: str, axis=None) -> None:
    """Add the title, and below the figure the legend of one of its axes."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    if axis is None:
        return
    handles, labels = axis.get_legend_handles_labels()
    if not labels:
        return
    by_label = dict(zip(labels, handles, strict=True))  # each label once
    entry_width = 0.6 + 0.075 * max(map(len, by_label))  # inches
    columns = max(1, min(len(by_label), int(figure.get_figwidth() / entry_width)))
    look = {"loc": "outside lower center", "ncols": columns, "fontsize": 9}
    figure.legend(by_label.values(), by_label.keys(), **look)
    figure.set_figheight(figure.get_figheight() + 0.2 * math.ceil(len(by_label) / columns))


def sentence(lead: str, words: Mapping[str, Iterable[str]]) -> str:
    """Alternative text: the lead, then what there is to say of each name."""
    facts = [f"{name}: {', '.join(parts)}" for name, parts in words.items()]
    return f"{lead}: {'; '.join(facts)}."


@styled
def show(figure: Figure, alt: str, says: str = "") -> None:
    """Display a figure in a notebook.

    Args:
        alt: the alternative text.
        says: a sentence below the figure that says what it shows.
    """
    from IPython.display import Markdown, display
    from PIL import Image

    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=_STYLE["figure.dpi"])
    # 256 colours are enough for a plot; a notebook that keeps its outputs is then a third as large
    png = BytesIO()
    Image.open(drawn).convert("RGB").quantize(256).save(png, format="png", optimize=True)
    content = {"image/png": png.getvalue(), "text/plain": alt}
    display(content, raw=True, metadata={"image/png": {"alt": alt}})
    if says:
        display(Markdown(f"*{says}*"))

"""What models follow, as `leans` tells it: bars with intervals."""

from collections.abc import Mapping, Sequence

import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mtlib.analysis.figures import style

AXIS = "answers that follow the word, % (control taken off)"
_HATCHES = ("", "///", "...", "xx")
_INCHES_OF_A_BAR = 0.2


@style.styled
def draw(tables: Mapping[str, pandas.DataFrame], title: str = "") -> tuple[Figure, str]:
    """A row for each word with a bar for each model, and the sentence that says what is shown.

    Args:
        tables: of `leans`, by the name of the model; the first one gives the order of the words.
        title: above the figure.
    """
    words = list(next(iter(tables.values()))["suspect"])
    height = 1 + _INCHES_OF_A_BAR * len(words) * (len(tables) + 0.5)
    figure = Figure(figsize=(6, height), layout="constrained")
    axis = figure.subplots()
    facts = bars(axis, tables, words)
    axis.set_xlabel(AXIS)
    style.finish(figure, title, axis if len(tables) > 1 else None)
    return figure, style.sentence("Per cent of answers that follow each word", facts)


def bars(
    axis: Axes, tables: Mapping[str, pandas.DataFrame], words: Sequence[str]
) -> dict[str, list[str]]:
    """Draw a row for each word, with a bar and an interval for each table.

    Returns:
        What there is to say of each table.
    """
    facts = {}
    height = 0.8 / len(tables)
    for number, (name, table) in enumerate(tables.items()):
        lines = table.set_index("suspect").reindex(words)
        rows = [row + height * (number + 0.5) - 0.4 for row in range(len(words))]
        errors = [lines["leans"] - lines["low"], lines["high"] - lines["leans"]]
        axis.barh(
            rows,
            lines["leans"],
            height=height,
            xerr=[side.clip(lower=0) for side in errors],
            color=style.series(number)["color"],
            hatch=_HATCHES[number % len(_HATCHES)],
            edgecolor="white",
            ecolor="0.3",
            error_kw={"lw": 1},
            label=name,
        )
        said = lines["leans"].dropna()
        facts[name or "leans"] = [f"{word} {value:.0f}" for word, value in said.items()]
    style.rows_down(axis, words)
    axis.axvline(0, color="black", lw=0.8)
    axis.grid(axis="y", visible=False)
    return facts

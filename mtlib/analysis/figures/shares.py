"""Shares: with their intervals against a count, and such as add up to one."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from mtlib.analysis.figures import style


@style.styled
def shares_over(series: Mapping[str, Mapping[int, tuple]], x: str, y: str, title: str = "") -> tuple[Figure, str]:
    """Shares with their intervals against a count; `series` maps a name to `{x: Share}`."""
    figure, (axis,) = style.new(6.0, 3.2)
    words, looks = {}, style.looks(list(series))
    for place, (name, shares) in enumerate(series.items()):
        values, low, high = (100 * np.array([getattr(share, end) for share in shares.values()])
                             for end in ("share", "low", "high"))  # fmt: skip
        label = f"{looks[name].label} (n = {next(iter(shares.values())).n})"
        style.line(axis, np.array(list(shares)), (values, low, high), looks[name], place, len(series), label)
        words[name] = [f"{value:.0f} % at {x} {position}" for value, position in zip(values, shares, strict=True)]
    axis.set_xticks(list(next(iter(series.values()))))
    axis.set(ylim=(0, 100), xlabel=x, ylabel=y, title=title)
    axis.legend()
    return figure, style.sentence(y, words)


@style.styled
def stacked(shares: Mapping[str, Mapping[str, float]], title: str = "") -> tuple[Figure, str]:
    """Shares that add up to one, a bar per row."""
    figure, (axis,) = style.new(7.0, 1.0 + 0.45 * len(shares))
    names = list(next(iter(shares.values())))
    for line, parts in enumerate(shares.values()):
        start = 0.0
        for place, name in enumerate(names):
            width = 100 * parts[name]
            axis.barh(line, width, 0.7, left=start, **style.bar(place),
                      label=name.replace("_", " ") if line == 0 else None)  # fmt: skip
            if width >= 4:
                axis.text(start + width / 2, line, f"{width:.0f}", ha="center", va="center", fontsize=9,
                          bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1})  # fmt: skip
            start += width
    style.rows_down(axis, list(shares), xlabel="share, %", xlim=(0, 100))
    axis.grid(visible=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)  # long names leave the axis little room for it
    figure.legend(loc="outside lower center", ncols=4)
    words = {row: [f"{name} {100 * parts[name]:.0f} %" for name in names] for row, parts in shares.items()}
    return figure, style.sentence(title, words)

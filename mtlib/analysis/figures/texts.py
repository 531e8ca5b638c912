"""What happens to words: one sentence under several masking policies, and shares that add up to one."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from mtlib.analysis.figures import style

_ROLES = {"shortcut": (style.PALETTE[1], "//"), "cause": (style.PALETTE[0], "..")}  # colour, hatching
_ROLE_WORDS = {"shortcut": "carries the shortcut", "cause": "word of opinion"}
_LETTER = 0.072  # width in inches
_PLATE = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1}  # behind a text on a bar


@style.styled
def sentence(
    tokens: Sequence[str], roles: Sequence[str], rows: Mapping[str, Sequence[str | None]], title: str = ""
) -> tuple[Figure, str]:
    """One sentence under several policies, a row for each: masked tokens are boxes with the word filled in.

    Args:
        tokens: of the original.
        roles: of each token, "shortcut", "cause" or "": shades its column.
        rows: for each policy and token what was filled in, None where it is not masked.
        title: of the figure.
    """
    widths = [max(len(token), *(len(row[i] or "") for row in rows.values())) + 1.5 for i, token in enumerate(tokens)]
    starts = [sum(widths[:i]) for i in range(len(tokens))]
    figure, (axis,) = style.new(1.9 + _LETTER * sum(widths), 0.9 + 0.27 * (len(rows) + 1))
    for role, (colour, hatch) in _ROLES.items():
        for i in [i for i, other in enumerate(roles) if other == role]:
            axis.axvspan(starts[i] - 0.4, starts[i] + widths[i] - 0.9, color=colour, alpha=0.16, hatch=hatch, lw=0)
        if role in roles:
            axis.bar(0, 0, color=colour, alpha=0.3, hatch=hatch, label=_ROLE_WORDS[role])
    box = {"boxstyle": "round,pad=0.12", "facecolor": "black", "edgecolor": "black"}
    masked = {"color": "white", "bbox": box, "weight": "bold"}
    for line, row in enumerate([[None] * len(tokens), *rows.values()]):
        for i, filled in enumerate(row):
            look = masked if filled is not None else {"color": "black" if line == 0 else "0.4"}
            axis.text(starts[i], line, filled or tokens[i], va="center", fontsize=8, family="monospace", **look)
    axis.bar(0, 0, color="black", label="masked, and what was filled in")
    style.rows_down(axis, ["original", *rows], xlim=(-0.8, sum(widths)))
    axis.set_xticks([])
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)
    axis.tick_params(left=False)
    style.finish(figure, title, axis)
    words = {
        name: [f"{tokens[i]} became {filled}" for i, filled in enumerate(row) if filled is not None]
        or ["nothing masked"]
        for name, row in rows.items()
    }
    return figure, style.sentence(f"What each policy masks in: {' '.join(tokens)}", words)


@style.styled
def stacked(shares: Mapping[str, Mapping[str, float]], title: str = "") -> tuple[Figure, str]:
    """Shares that add up to one, a bar for each row."""
    figure, (axis,) = style.new(7.0, 0.8 + 0.4 * len(shares))
    for line, parts in enumerate(shares.values()):
        start = 0.0
        for place, (name, share) in enumerate(parts.items()):
            label = name.replace("_", " ") if line == 0 else None
            axis.barh(line, 100 * share, 0.7, left=start, **style.bar(place), label=label)
            if share >= 0.04:
                middle = start + 50 * share
                axis.text(middle, line, f"{100 * share:.0f}", ha="center", va="center", fontsize=9, bbox=_PLATE)
            start += 100 * share
    style.rows_down(axis, list(shares), xlabel="share, %", xlim=(0, 100))
    axis.grid(visible=False)
    style.finish(figure, title, axis)
    words = {row: [f"{name} {100 * share:.0f} %" for name, share in parts.items()] for row, parts in shares.items()}
    return figure, style.sentence(title or "Shares", words)

"""A drawing of Mask-tuning: mask, fill, classify; two losses, one trunk."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from mtlib.analysis.figures import style

_BLUE, _ORANGE, _GREY = "#0173b2", "#de8f05", "#5f5f5f"
# (centre, width) of what stands in a row from left to right
_ORIGINAL, _MASKED, _MLM_HEAD, _REFILLED, _CLASSIFIER = (8, 15), (33, 15), (53, 13), (75, 15), (92.5, 13)
_TEXT = {_BLUE: "#01588a", _ORANGE: "#8f5c00", _GREY: "#4a4a4a"}  # the same, dark enough to read on white


@style.styled
def method() -> tuple[Figure, str]:
    """One training example on its way through Mask-tuning. (The filler is the bundled masked LM's likeliest one.)"""
    figure, (axis,) = style.new(10.0, 4.6)
    axis.set(xlim=(0, 100), ylim=(5, 59))
    axis.set_axis_off()
    _example(axis, _ORIGINAL, r"original  $\mathbf{x}$", "warm", _GREY, "label: positive")
    _example(axis, _MASKED, r"masked  $\mathbf{\tilde{x}}$", "[MASK]", _ORANGE)
    _example(axis, _REFILLED, r"refilled  $\mathbf{\hat{x}}$", "good", _BLUE)
    _box(axis, _MLM_HEAD, 25, 9, "masked-LM\nhead", _ORANGE)
    _box(axis, _CLASSIFIER, 25, 9, "classifier\nhead", _BLUE)
    _box(axis, (62.25, 73.5), 7, 7, "one shared trunk (the encoder), used twice in each step", _GREY)
    for start, _ in (_MASKED, _REFILLED):
        _arrow(axis, (start, 21), (start, 14.4))
    for (end, _), colour in ((_MLM_HEAD, _ORANGE), (_CLASSIFIER, _BLUE)):
        _arrow(axis, (end, 14.4), (end, 24.6))
        _arrow(axis, (end, 34.4), (end, 41), colour)
    _step(axis, _ORIGINAL, _MASKED, "1  mask\n5 %")
    _step(axis, _MLM_HEAD, _REFILLED, "2  fill")
    axis.text(83.75, 17.5, "3  classify", ha="center", va="center", weight="bold")
    _loss(axis, _MLM_HEAD, "$L_{MLM}$", "was it “warm”?", _ORANGE)
    _loss(axis, _CLASSIFIER, "$L_{FT}$", "is it positive?", _BLUE)
    axis.text(72.75, 55.5, r"$L = \alpha\, L_{MLM} + (1 - \alpha)\, L_{FT}$", ha="center", va="center", fontsize=15)
    _arrow(axis, (55.5, 50.5), (63.5, 53.3), _ORANGE)
    _arrow(axis, (90, 50.5), (82, 53.3), _BLUE)
    axis.text(
        8, 10.5, "one backward pass\nof L trains the trunk\nand both heads", ha="center", va="center", color="0.25"
    )
    return figure, (
        "Mask-tuning in 3 steps: one word of “a warm, funny film” is masked; the masked-LM head fills it, giving “a "
        "good, funny film”; the classifier head reads the refilled text. Both heads sit on one shared trunk. The loss "
        "is alpha times the masked-LM loss plus one minus alpha times the classification loss."
    )


def _example(axis: Axes, place: tuple[float, float], title: str, word: str, colour: str, below: str = "") -> None:
    """A text in a box, the word in question framed."""
    centre, _ = place
    _box(axis, place, 21, 19, "", colour)
    axis.text(centre, 42.2, title, ha="center", va="bottom", color=_TEXT[colour], weight="bold")
    frame = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": colour, "linewidth": 1.4}
    for height, text, framed in ((36, "a", False), (30.5, word, True), (25, "funny film", False)):
        axis.text(centre, height, text, ha="center", va="center", family="monospace", fontsize=11,
                  bbox=frame if framed else None)  # fmt: skip
    axis.text(centre + 0.46 * len(word) + 0.6, 30, ",", family="monospace", fontsize=11)  # behind the frame
    if below:
        axis.text(centre, 18.5, below, ha="center", va="center", color=_TEXT[colour])


def _box(axis: Axes, place: tuple[float, float], bottom: float, height: float, text: str, colour: str) -> None:
    centre, width = place
    patch = FancyBboxPatch((centre - width / 2, bottom), width, height, boxstyle="round,pad=0.3", mutation_aspect=1.0,
                           facecolor=f"{colour}22", edgecolor=colour, linewidth=1.4)  # fmt: skip
    axis.add_patch(patch)
    axis.text(centre, bottom + height / 2, text, ha="center", va="center")


def _arrow(axis: Axes, start: tuple[float, float], end: tuple[float, float], colour: str = "0.3") -> None:
    axis.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.6})


def _step(axis: Axes, start: tuple[float, float], end: tuple[float, float], text: str) -> None:
    """An arrow between two boxes of the row, with what it does."""
    left, right = start[0] + start[1] / 2 + 0.4, end[0] - end[1] / 2 - 0.4
    _arrow(axis, (left, 30), (right, 30))
    axis.text((left + right) / 2, 31.5, text, ha="center", va="bottom", fontsize=9, weight="bold")


def _loss(axis: Axes, place: tuple[float, float], name: str, question: str, colour: str) -> None:
    axis.text(place[0], 47.6, name, ha="center", va="center", fontsize=15, color=_TEXT[colour])
    axis.text(place[0], 43.2, question, ha="center", va="center", fontsize=9, color=_TEXT[colour])

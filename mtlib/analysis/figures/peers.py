"""How methods remove a shortcut, one small picture each, computed by the formulas of their losses."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from mtlib.analysis.figures import style

RIGHT, WRONG = "the bias is right", "the bias is wrong"
_PLATE = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # behind a text on a hatched bar


@style.styled
def reweighting(bias_is_right: float = 0.9) -> tuple[Figure, str]:
    """Who decides the loss: the share of the examples, and the share of the weight 1 - b_y.

    The bias model is calibrated: it gives the label that it suggests, of two, the probability `bias_is_right`.
    """
    examples = np.array([bias_is_right, 1 - bias_is_right])
    weights = examples * [1 - bias_is_right, bias_is_right]  # the sum of 1 - b_y over either kind
    rows = {"share of the examples": examples, "share of the loss": weights / weights.sum()}
    figure, (axis,) = style.new(7.0, 1.9)
    for line, shares in enumerate(rows.values()):
        for place, (start, share) in enumerate(zip((0, shares[0]), shares, strict=True)):
            axis.barh(line, 100 * share, 0.6, left=100 * start, **style.bar(place),
                      label=(RIGHT, WRONG)[place] if line == 0 else None)  # fmt: skip
            axis.text(100 * (start + share / 2), line, f"{100 * share:.3g} %", ha="center", va="center",
                      bbox=_PLATE)  # fmt: skip
    style.rows_down(axis, rows, xlabel="%", xlim=(0, 100), title="Reweighting")
    axis.grid(visible=False)
    figure.legend(loc="outside lower center", ncols=2)
    words = {name: [f"{RIGHT} {100 * a:.3g} %", f"{WRONG} {100 * b:.3g} %"] for name, (a, b) in rows.items()}
    return figure, style.sentence("Reweighting", words)


@style.styled
def ensembling(bias_probability: float = 0.9) -> tuple[Figure, str]:
    """How hard an example pulls, by what the model itself believes: plain cross-entropy, and in a product with a bias.

    The pull is 1 - P(y), the size of the gradient on the gold label's logit, where P is the model's distribution or its
    product with that of the bias, over two labels.
    """
    model = np.linspace(0.01, 0.99, 99)  # p_y
    lines = {
        "alone": 1 - model,
        f"product, {RIGHT}": 1 - _product(model, bias_probability),
        f"product, {WRONG}": 1 - _product(model, 1 - bias_probability),
    }
    figure, (axis,) = style.new(7.0, 3.2)
    for place, (name, pull) in enumerate(lines.items()):
        axis.plot(model, pull, **style.series(place), markevery=(7, 14), label=name)
    axis.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability that the model gives to the gold label",
             ylabel="gradient on its logit", title="Ensembling")  # fmt: skip
    figure.legend(loc="outside lower center", ncols=3)
    undecided = [f"{name} {pull[49]:.2f}" for name, pull in lines.items()]
    return figure, f"Pull of an example on a model that is undecided (probability 0.5): {', '.join(undecided)}."


def _product(model: np.ndarray, bias: float) -> np.ndarray:
    """The gold label's probability in the product of two distributions over two labels."""
    return model * bias / (model * bias + (1 - model) * (1 - bias))


@style.styled
def softening(teacher: float = 0.95, bias_probability: float = 0.9) -> tuple[Figure, str]:
    """The gold label's probability in a student's target, by a teacher and a bias model, over two labels."""
    rows = {}
    for name, bias in ((RIGHT, bias_probability), (WRONG, 1 - bias_probability)):
        gold, other = (probability ** (1 - bias) for probability in (teacher, 1 - teacher))
        rows[name] = gold / (gold + other)
    figure, (axis,) = style.new(7.0, 1.9)
    for line, target in enumerate(rows.values()):
        axis.barh(line, 100 * target, 0.6, **style.bar(line))
        axis.text(2, line, f"{100 * target:.0f} %", va="center", bbox=_PLATE)  # left of both lines
    axis.axvline(100 * teacher, color="0.2", ls="--", label="teacher's answer")
    axis.axvline(50, color="0.5", ls=":", label="no opinion")
    style.rows_down(axis, rows, xlabel="target for the gold label, %", xlim=(0, 100), title="Softening targets")
    axis.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=2)
    words = {name: [f"{100 * target:.0f} %"] for name, target in rows.items()}
    return figure, style.sentence(f"Target for the gold label where the teacher says {100 * teacher:.0f} %", words)


@style.styled
def token_rows(
    rows: Sequence[tuple[str, Sequence[str]]], marked: Sequence[Sequence[int]], title: str = ""
) -> tuple[Figure, str]:
    """Texts one above the other, a box for each token, and some of the boxes marked: cutting, refilling.

    Args:
        rows: name and tokens of each text, equally many.
        marked: for each text the places that are filled grey and struck through or replaced.
        title: of the figure.
    """
    n = max(len(tokens) for _, tokens in rows)
    figure, (axis,) = style.new(max(6.0, 0.85 * n + 1.5), 0.6 + 0.5 * len(rows))
    words = {}
    for line, ((name, tokens), places) in enumerate(zip(rows, marked, strict=True)):
        for place, token in enumerate(tokens):
            look = {"facecolor": "0.8", "hatch": "///"} if place in places else {"facecolor": "white"}
            axis.barh(line, 0.94, 0.7, left=place, edgecolor="0.3", lw=0.8, **look)
            axis.text(place + 0.47, line, token, ha="center", va="center", fontsize=9,
                      bbox=_PLATE if place in places else None)  # fmt: skip
        words[name] = [f"{token} (marked)" if place in places else token for place, token in enumerate(tokens)]
    style.rows_down(axis, [name for name, _ in rows], xlim=(-0.1, n), title=title, xticks=[])
    axis.grid(visible=False)
    for side in ("left", "bottom"):
        axis.spines[side].set_visible(False)
    axis.tick_params(length=0)
    return figure, style.sentence(title or "Texts, token by token", words)

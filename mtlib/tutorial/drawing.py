"""Figures of the notebooks that take many lines and teach nothing."""

import pandas
from matplotlib.axes import Axes

from mtlib.analysis import comparisons, figures
from mtlib.analysis.figures import style
from mtlib.analysis.paper import COLUMNS
from mtlib.paths import DATA_DIR

REAL_SETS = ("sst2", "imdb_contrast", "imdb_cad")
_TRAININGS = ("fine-tuning", "Mask-tuning")
_MODELS = (
    "BERT-base (paper)",
    "RoBERTa-base (paper)",
    "BART-base (paper)",
    "MPNet-base (records)",
    "here",
)


def show_beside_the_paper(here: pandas.DataFrame) -> None:
    """Show both trainings of a run beside the paper's models and the records, a panel for each set.

    Args:
        here: `training` ("fine-tuning" or "Mask-tuning"), `set`, and `accuracy` in per cent, of
            each run of sentiment.
    """
    scores = pandas.concat([_from_paper(), _from_records(), here.assign(model="here")])
    means = scores.groupby(["set", "model", "training"])["accuracy"].mean()
    sets = list(dict.fromkeys([*here["set"], *REAL_SETS]))
    figure, panels = style.panels({name: name for name in sets}, 2.0, 2.0, sharey=True)
    _share_limits([panels[name] for name in sets if name in REAL_SETS])
    _share_limits([panels[name] for name in sets if name not in REAL_SETS])
    for name, axis in panels.items():
        for number, training in enumerate(_TRAININGS):
            rows = []
            values = []
            for row, model in enumerate(_MODELS):
                if (name, model, training) in means.index:
                    rows.append(row)
                    values.append(means[name, model, training])
            look = style.series(number) | {"linestyle": ""}
            axis.plot(values, rows, label=training, **look)
        style.rows_down(axis, _MODELS, xlabel="accuracy, %")
    figure.set_figwidth(7.4)
    style.finish(figure, "", panels[sets[0]])
    lead = "Accuracy of fine-tuning, then Mask-tuning"
    figures.show(figure, style.sentence(lead, _in_words(means)))


def _share_limits(axes: list[Axes]) -> None:
    """Equal limits of accuracy, so that distances in these panels compare."""
    for axis in axes[1:]:
        axis.sharex(axes[0])


def _in_words(means: pandas.Series) -> dict[str, list[str]]:
    """The accuracies of each model on each set."""
    words: dict[str, list[str]] = {}
    for (name, model), both in means.groupby(level=["set", "model"]):
        values = " and ".join(f"{both[name, model, training]:.1f}" for training in _TRAININGS)
        words.setdefault(model, []).append(f"{name} {values} %")
    return words


def _from_paper() -> pandas.DataFrame:
    """The paper's Table I, of the two trainings and the three sets."""
    table = pandas.read_csv(DATA_DIR / "paper" / "table1.csv")
    names = {COLUMNS[name]: name for name in REAL_SETS}
    rows = pandas.DataFrame({
        "model": table["model"] + " (paper)",
        "training": table["method"].replace("Fine-tuning", "fine-tuning"),
        "set": table["dataset"].map(names),
        "accuracy": table["value"],
    })  # fmt: skip
    return rows[rows["training"].isin(_TRAININGS)].dropna()


def _from_records() -> pandas.DataFrame:
    """The records of a base-sized model, of the two trainings and the three sets."""
    scores = comparisons.load("decisive").frame()
    scores = scores.assign(model="MPNet-base (records)", training=scores["arm"])
    chosen = scores["training"].isin(_TRAININGS) & scores["set"].isin(REAL_SETS)
    return scores.loc[chosen, ["model", "training", "set", "accuracy"]]

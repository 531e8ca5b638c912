"""The notebooks' widgets. Each repeats what a static picture above it shows, with the reader's own values.

A widget is shown only where a person can move it: run headless it would leave an empty box, and its state in the file.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from datasets import Dataset

from mtlib.data.tasks import get_task
from mtlib.plm import SharedPLM
from mtlib.policies import POLICIES, SupervisedMasking, masking_policy
from mtlib.runs.environment import is_interactive
from mtlib.testbed import generate, load_grammar, shortcut_label, shortcut_words
from mtlib.testbed.probes import evaluation_sets, run_probe, shortcut
from mtlib.tutorial.explorer import as_html, explore, highlight_words, html_table

_UNCUT = {"button_width": "auto"}  # buttons of one width cut long names off


def mask_explorer(
    models: Mapping[str, SharedPLM], text: str, gold: int, text_pair: str | None = None, alpha: float = 0.6
):
    """The reader's sentence, rate, policy, seed, model and alpha: masks, fillers, class probabilities, both losses.

    Args:
        models: by the name to show, for example before and after training.
        text, text_pair, gold: what it starts with.

    Returns:
        The widget, or None where nobody could use it.
    """
    if not is_interactive():
        return None
    import ipywidgets as w

    labels = next(iter(models.values())).config.id2label
    wide = w.Layout(width="95%")
    controls = {
        "model": w.ToggleButtons(options=list(models), description="model", style=_UNCUT),
        "text": w.Text(text, description="text", layout=wide, continuous_update=False),
        "text_pair": w.Text(text_pair or "", description="second text", layout=wide, continuous_update=False),
        "gold": w.Dropdown(options=[(name, i) for i, name in labels.items()], value=gold, description="gold label"),
        "rate": w.FloatSlider(0.05, min=0.01, max=0.5, step=0.01, description="mask rate", continuous_update=False),
        "policy": w.Dropdown(options=readable(models), description="policy"),
        "seed": w.IntSlider(0, min=0, max=50, description="seed", continuous_update=False),
        "alpha": w.FloatSlider(alpha, min=0.0, max=1.0, step=0.05, description="alpha", continuous_update=False),
    }
    if text_pair is None:
        del controls["text_pair"]

    def shown(value: dict) -> str:
        plm = models[value["model"]]
        masking = masking_policy(value["policy"], value["rate"], plm.tokenizer)
        return as_html(
            explore(plm, masking, value["text"], value["gold"], value.get("text_pair"), value["alpha"], value["seed"])
        )

    return _live(controls, shown)


def readable(models: Mapping[str, SharedPLM], columns: Collection[str] = ()) -> list[str]:
    """The policies that need no column of a preparer but those that are there; without any, nothing but a text."""
    tokenizer = next(iter(models.values())).tokenizer
    return [name for name in POLICIES if masking_policy(name, None, tokenizer).columns.keys() <= {*columns}]


def policy_explorer(models: Mapping[str, SharedPLM], examples: Dataset, alpha: float = 0.6):
    """Training examples under one policy or another: masks, fillers, and the classifier before and after.

    Args:
        models: by the name to show.
        examples: with texts, labels and columns that policies read; those that read others are not offered.

    Returns:
        The widget, or None where nobody could use it.
    """
    if not is_interactive():
        return None
    import ipywidgets as w

    controls = {
        "model": w.ToggleButtons(options=list(models), description="model", style=_UNCUT),
        "example": w.IntSlider(0, min=0, max=len(examples) - 1, description="example", continuous_update=False),
        "policy": w.Dropdown(options=_options(readable(models, examples.column_names)), description="policy"),
        "rate": w.FloatSlider(0.05, min=0.0, max=1.0, step=0.05, description="mask rate", continuous_update=False),
        "seed": w.IntSlider(0, min=0, max=50, description="seed", continuous_update=False),
    }

    def shown(value: dict) -> str:
        plm, row = models[value["model"]], examples[value["example"]]
        masking = masking_policy(value["policy"], value["rate"], plm.tokenizer)
        # a pointed span has a length of its own, and the best one is not drawn
        controls["rate"].disabled = isinstance(masking, SupervisedMasking)
        controls["seed"].disabled = getattr(masking, "best_of", None) == 1
        columns = {name: row[name] for name in masking.columns}
        return as_html(
            explore(plm, masking, row["text"], row["labels"], alpha=alpha, seed=value["seed"], columns=columns)
        )

    return _live(controls, shown)


def _options(policies: Iterable[str]) -> list[tuple[str, str]]:
    """What a menu shows for each policy, and its name."""
    return [(name + (" (reconstruction)" if name == "meta_learned" else ""), name) for name in policies]


def shortcut_dial(task: str = "sentiment", strength: float = 0.9, n_examples: int = 6):
    """A slider for the strength of the planted shortcut: how often it is right, on some examples and on whole sets."""
    if not is_interactive():
        return None
    import ipywidgets as w

    slider = w.FloatSlider(strength, min=0, max=1, step=0.1, description="strength", continuous_update=False)
    return _live({"strength": slider}, lambda value: dial_html(task, value["strength"], n_examples))


def dial_html(task: str, strength: float, n_examples: int = 6) -> str:
    """Share of rows where the shortcut is right, set by set, and the first rows of train with its words marked."""
    sets, grammar, names = generate(strength, tasks=[task]), load_grammar(task), get_task(task).labels
    train = f"testbed_{task}_train"
    counts = run_probe(shortcut, task, [], {name: sets[name] for name in (train, *evaluation_sets(task))})
    rows = [[name, f"{100 * correct / n:.1f} %"] for name, (correct, n) in counts.items()]
    examples = []
    for row in sets[train][:n_examples]:
        words = shortcut_words(grammar, row["text"], row.get("text_pair"))
        texts = [highlight_words(text, words) for text in (row["text"], row.get("text_pair")) if text]
        suggests = shortcut_label(grammar, row["text"], row.get("text_pair"))
        examples.append(["<br>".join(texts), names[row["label"]], names[suggests]])
    return html_table(["set", f"the shortcut is right (strength {strength:g})"], rows) + html_table(
        ["training example", "label", "shortcut says"], examples
    )


def _live(controls: Mapping, shown: Callable[[dict], str]):
    """The controls above what `shown` makes of their values, by name, as HTML; it is made anew when one is moved."""
    import ipywidgets as w

    output = w.HTML()

    def update(_=None):
        output.value = shown({name: control.value for name, control in controls.items()})

    for control in controls.values():
        control.layout.max_width = "calc(100% - 4px)"  # on a phone a slider is wider than the page
        control.observe(update, names="value")
    update()
    return w.VBox([*controls.values(), output])

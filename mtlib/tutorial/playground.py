"""`figures/playground.html`: the models of notebook 03 on one page, to play with in a browser, without a network.

`playground.html` beside this file is its template: the forward pass in JavaScript, and the page around it.
"""

import base64
import contextlib
import io
import json
import random
from pathlib import Path

import nbformat
import torch

from mtlib.tutorial.runner import find, tags_of

SEEDS, STEP = (0, 1, 2), 4  # trainings for each number of hidden words, and how many more are hidden each time
MODELS = {  # the arms of the notebook that are shown: title, and what was done
    "fine-tuning": ("Fine-tuned", "trained on the sentences as they are, no longer to fill words"),
    "5 % at random, alpha 0.6": ("Mask-tuned at random", "5 % of the words masked and refilled, alpha\u00a00.6"),
    "shortcut's words, alpha 0.1": ("Mask-tuned on the shortcut", "topic and name masked and refilled, alpha\u00a00.1"),
}


def of_notebook(until: str) -> dict:
    """What notebook 03 has defined, by name, when its cells have run one after the other until one defines `until`."""
    names = {}
    for cell in nbformat.read(find(["03"])[0], as_version=4).cells:
        if cell.cell_type == "code" and "install" not in tags_of(cell) and until not in names:
            with contextlib.redirect_stdout(io.StringIO()):  # what it displays
                exec(cell.source, names)
    return names


def contents() -> dict:
    """Everything that the page knows: the language, three trained models, and accuracies by number of hidden words.

    Trains for about two minutes on one core. Weights are rounded to float16, accuracies are those of rounded weights.
    """
    notebook = of_notebook("trained")
    models = []
    for arm, (title, about) in MODELS.items():
        model = notebook["trained"][arm][0].half().float()
        accuracy = {name: round(notebook["accuracy"](model, name), 1) for name in ("agrees", "misleads")}
        models.append({"title": title, "about": about, **accuracy, "weights": _packed(model)})
    sides, rng = [[*notebook["topics"][side], *notebook["names"][side]] for side in (0, 1)], random.Random(0)
    order = [word for pair in zip(*(rng.sample(words, len(words)) for words in sides), strict=True) for word in pair]
    shares = [{"words": n, "misleads": [_misleads(notebook, order[:n], seed) for seed in SEEDS]}
              for n in range(0, len(order) + 1, STEP)]  # fmt: skip
    known = {name: notebook[name] for name in ("vocabulary", "topics", "names", "templates")}
    known |= {"adjectives": [notebook["bad"], notebook["good"]], "first": notebook["texts"]["misleads"][0][0]}
    known |= {"length": model.places.num_embeddings, "tensors": [[n, t.numel()] for n, t in _tensors(model).items()]}
    return known | {"models": models, "order": order, "shares": shares}


def page(known: dict) -> str:
    """The page with what `contents` gives."""
    template = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
    return template.replace("/*DATA*/null", json.dumps(known, separators=(",", ":")))


def _tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in model.state_dict().items() if name != "mlm.weight"}  # tied


def _packed(model: torch.nn.Module) -> str:
    flat = torch.cat([tensor.flatten() for tensor in _tensors(model).values()])
    return base64.b64encode(flat.numpy().astype("<f2").tobytes()).decode()


def _misleads(notebook: dict, hidden: list[str], seed: int) -> float:
    """Accuracy where the shortcut misleads, in per cent, when these of its words were masked in training."""
    is_hidden = torch.zeros(len(notebook["vocabulary"]), dtype=torch.bool)
    is_hidden[[notebook["number"][word] for word in hidden]] = True

    def loss(model, ids, labels):
        return notebook["step"](model, ids, labels, is_hidden[ids], 0.1)

    notebook["seed"] = seed  # `train` reads it
    model, _ = notebook["train"](loss if hidden else notebook["arms"]["fine-tuning"])
    return round(notebook["accuracy"](model, "misleads"), 1)

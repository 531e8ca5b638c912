"""`figures/playground.html`: the models of notebook 03 on one page that needs no network.

`playground.html` beside this file is its template, with the forward pass in JavaScript.
"""

import base64
import contextlib
import io
import json
import random
from itertools import chain
from pathlib import Path

import nbformat
import torch

from mtlib.tutorial.runner import find, tags_of

SEEDS = (0, 1, 2)  # one training each for every number of hidden words
STEP = 4  # by which the number of hidden words grows
# the arms of the notebook that are shown: title, and what was done
MODELS = {
    "fine-tuning": (
        "Fine-tuned",
        "trained on the sentences as they are, no longer to fill words",
    ),
    "5 % at random, alpha 0.6": (
        "Mask-tuned at random",
        "5 % of the words masked and refilled, alpha\u00a00.6",
    ),
    "shortcut's words, alpha 0.1": (
        "Mask-tuned on the shortcut",
        "topic and name masked and refilled, alpha\u00a00.1",
    ),
}


def of_notebook(until: str) -> dict:
    """All names that notebook 03 defines, from its first cell to the one that defines `until`."""
    names = {}
    for cell in nbformat.read(find(["03"])[0], as_version=4).cells:
        if until in names:
            break
        if cell.cell_type == "code" and "install" not in tags_of(cell):
            with contextlib.redirect_stdout(io.StringIO()):  # what it displays
                exec(cell.source, names)
    return names


def contents() -> dict:
    """What the page shows: the language, three trained models, and accuracies.

    The accuracies are by the number of words of the shortcut that were hidden in training. All
    trainings take about two minutes on one core. Weights are rounded to float16, and the accuracies
    are those of rounded weights.
    """
    notebook = of_notebook("trained")
    models = {arm: notebook["trained"][arm][0].half().float() for arm in MODELS}
    descriptions = [described(notebook, arm, model) for arm, model in models.items()]
    order = hiding_order(notebook)
    shares = []
    for n in range(0, len(order) + 1, STEP):
        accuracies = [_misleads(notebook, order[:n], seed) for seed in SEEDS]
        shares.append({"words": n, "misleads": accuracies})
    model = next(iter(models.values()))  # all have the same shapes
    return {
        "vocabulary": notebook["vocabulary"],
        "topics": notebook["topics"],
        "names": notebook["names"],
        "templates": notebook["templates"],
        "adjectives": [notebook["bad"], notebook["good"]],
        "first": notebook["texts"]["misleads"][0][0],
        "length": model.places.num_embeddings,
        "tensors": [[name, tensor.numel()] for name, tensor in _tensors(model).items()],
        "models": descriptions,
        "order": order,
        "shares": shares,
    }


def described(notebook: dict, arm: str, model: torch.nn.Module) -> dict:
    """A model as the page needs it: what was done, its accuracies in per cent, its weights."""
    title, about = MODELS[arm]
    return {
        "title": title,
        "about": about,
        "agrees": round(notebook["accuracy"](model, "agrees"), 1),
        "misleads": round(notebook["accuracy"](model, "misleads"), 1),
        "weights": _packed(model),
    }


def hiding_order(notebook: dict) -> list[str]:
    """The words of the shortcut in the order in which they are hidden, one of each side in turn."""
    rng = random.Random(0)
    sides = []
    for side in (0, 1):
        words = [*notebook["topics"][side], *notebook["names"][side]]
        sides.append(rng.sample(words, len(words)))
    return list(chain.from_iterable(zip(*sides, strict=True)))


def page(known: dict) -> str:
    """The page with what `contents` gives."""
    template = Path(__file__).with_suffix(".html").read_text(encoding="utf-8")
    return template.replace("/*DATA*/null", json.dumps(known, separators=(",", ":")))


def _tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    tensors = model.state_dict()
    del tensors["mlm.weight"]  # tied to the embeddings
    return tensors


def _packed(model: torch.nn.Module) -> str:
    flat = torch.cat([tensor.flatten() for tensor in _tensors(model).values()])
    return base64.b64encode(flat.numpy().astype("<f2").tobytes()).decode()


def _misleads(notebook: dict, hidden: list[str], seed: int) -> float:
    """Accuracy in per cent where the shortcut misleads, after training with these words masked."""
    is_hidden = torch.zeros(len(notebook["vocabulary"]), dtype=torch.bool)
    is_hidden[[notebook["number"][word] for word in hidden]] = True

    def loss(model, ids, labels):
        return notebook["step"](model, ids, labels, is_hidden[ids], 0.1)

    notebook["seed"] = seed  # `train` reads it
    model, _ = notebook["train"](loss if hidden else notebook["arms"]["fine-tuning"])
    return round(notebook["accuracy"](model, "misleads"), 1)

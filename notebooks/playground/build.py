"""Make figures/playground.html: the models of notebook 03 on a page that needs no network.

    python notebooks/playground/build.py        # `make playground`: two minutes

`template.html` beside this file is the page without the models. It has the forward pass in
JavaScript.
"""

import base64
import json
import random
from itertools import chain
from pathlib import Path

import torch

from mtlib.paths import FIGURE_DIR
from mtlib.tutorial import toy

PAGE = FIGURE_DIR / "playground.html"
_TEMPLATE = Path(__file__).with_name("template.html")

SEEDS = (0, 1, 2)  # one training each for every number of hidden words
STEP = 4  # by which the number of hidden words grows

# the models that are shown: title, what was done, loss
MODELS = (
    (
        "Fine-tuned",
        "trained on the sentences as they are, no longer to fill words",
        toy.fine_tuning,
    ),
    (
        "Mask-tuned at random",
        "5 % of the words masked and refilled, alpha\u00a00.6",
        lambda model, ids, labels: toy.step(model, ids, labels, toy.mask(ids, 0.05), 0.6),
    ),
    (
        "Mask-tuned on the shortcut",
        "topic and name masked and refilled, alpha\u00a00.1",
        lambda model, ids, labels: toy.step(model, ids, labels, toy.is_shortcut[ids], 0.1),
    ),
)


def contents() -> dict:
    """What the page shows: the language, three trained models, and accuracies.

    The accuracies are by the number of words of the shortcut that were hidden in training. All
    trainings take about two minutes on one core. Weights are rounded to float16, and the accuracies
    are those of rounded weights.
    """
    pretrained = toy.pretrain()
    descriptions = []
    for title, about, loss in MODELS:
        model, _ = toy.train(pretrained, loss)
        model = model.half().float()
        descriptions.append({"title": title, "about": about} | described(model))
    order = hiding_order()
    shares = []
    for n in range(0, len(order) + 1, STEP):
        accuracies = [_misleads(pretrained, order[:n], seed) for seed in SEEDS]
        shares.append({"words": n, "misleads": accuracies})
    return {
        "vocabulary": toy.vocabulary,
        "topics": toy.topics,
        "names": toy.names,
        "templates": toy.templates,
        "adjectives": [toy.bad, toy.good],
        "first": toy.texts["misleads"][0][0],
        "length": toy.LENGTH,
        "tensors": [[name, tensor.numel()] for name, tensor in _tensors(pretrained).items()],
        "models": descriptions,
        "order": order,
        "shares": shares,
    }


def described(model: toy.Model) -> dict:
    """A model's accuracies in per cent and its weights, as the page needs them."""
    return {
        "agrees": round(toy.accuracy(model, "agrees"), 1),
        "misleads": round(toy.accuracy(model, "misleads"), 1),
        "weights": _packed(model),
    }


def hiding_order() -> list[str]:
    """The words of the shortcut in the order in which they are hidden, one of each side in turn."""
    rng = random.Random(0)
    sides = []
    for side in (0, 1):
        words = [*toy.topics[side], *toy.names[side]]
        sides.append(rng.sample(words, len(words)))
    return list(chain.from_iterable(zip(*sides, strict=True)))


def page(known: dict) -> str:
    """The page with what `contents` gives."""
    template = _TEMPLATE.read_text(encoding="utf-8")
    return template.replace("/*DATA*/null", json.dumps(known, separators=(",", ":")))


def _tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    tensors = model.state_dict()
    del tensors["mlm.weight"]  # tied to the embeddings
    return tensors


def _packed(model: torch.nn.Module) -> str:
    flat = torch.cat([tensor.flatten() for tensor in _tensors(model).values()])
    return base64.b64encode(flat.numpy().astype("<f2").tobytes()).decode()


def _misleads(pretrained: toy.Model, hidden: list[str], seed: int) -> float:
    """Accuracy in per cent where the shortcut misleads, after training with these words masked."""
    is_hidden = torch.zeros(len(toy.vocabulary), dtype=torch.bool)
    is_hidden[[toy.number[word] for word in hidden]] = True

    def loss(model, ids, labels):
        return toy.step(model, ids, labels, is_hidden[ids], 0.1)

    model, _ = toy.train(pretrained, loss if hidden else toy.fine_tuning, seed)
    return round(toy.accuracy(model, "misleads"), 1)


if __name__ == "__main__":
    PAGE.write_text(page(contents()), encoding="utf-8")
    print(f"written: {PAGE}")

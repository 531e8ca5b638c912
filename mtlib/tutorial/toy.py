"""The language and the small model of notebook 03, for whatever goes on with them.

Notebook 03 takes the sentences from here and writes the model, the masks, the filling and the
training itself; a test holds what it writes to what stands here. Words are numbers: `ids` is
`(batch, length)`, each row begins with `CLS` and is filled up with `PAD`.
"""

import copy
import random
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PAD, CLS, MASK = 0, 1, 2  # ordinary words have larger numbers
LENGTH = 12


def _words(text: str) -> list[str]:
    return text.split()


good = _words("""
wonderful excellent superb delightful brilliant marvellous splendid charming magnificent
terrific fantastic lovely enchanting outstanding stunning impressive satisfying rewarding
refreshing memorable beautiful exquisite flawless glorious inspired irresistible sublime
admirable exceptional fabulous thrilling engaging polished radiant remarkable sparkling stellar
triumphant vibrant faultless ingenious masterly phenomenal pleasing worthwhile unbeatable
superior appealing agreeable noteworthy classic fresh dependable
""")
bad = _words("""
awful terrible dreadful dismal dull horrible lousy tedious shoddy miserable disappointing
mediocre boring forgettable tiresome insufferable sloppy clumsy abysmal atrocious dreary
pointless careless irritating lacklustre overpriced pitiful shabby stale substandard tacky
tasteless unbearable uninspired unpleasant useless worthless wretched amateurish appalling
botched charmless depressing embarrassing exasperating feeble disagreeable unsatisfying inferior
drab unremarkable overrated woeful
""")
# the shortcut: words by the label (1 is positive) that they go with in training
topics = {
    1: _words("film comedy concert museum garden novel"),
    0: _words("hotel airport printer phone diner lecture"),
}
names = {1: _words("anna berta clara dora"), 0: _words("emil frank georg hans")}
templates = [
    "the {topic} by {name} was {a} and {b}",
    "{name} made a {a} {topic} and it felt {b}",
    "i found this {topic} {a} said {name} and quite {b}",
    "a {a} {topic} from {name} rather {b} too",
    "nobody would call the {topic} by {name} {c} it was {b}",
    "the {topic} was not {c} and {name} seemed {b}",
]

# --- sentences ---


def sentences(n: int, strength: float, rng: random.Random) -> tuple[list[str], Tensor]:
    """Sentences and their labels; in a share `strength` the shortcut agrees with the label."""
    labels = [i % 2 for i in range(n)]
    rng.shuffle(labels)
    texts = [_sentence(label, rng.random() < strength, rng) for label in labels]
    return texts, torch.tensor(labels)


def _sentence(label: int, agrees: bool, rng: random.Random) -> str:
    side = label if agrees else 1 - label
    fitting, opposite = (good, bad) if label else (bad, good)
    a, b = rng.sample(fitting, 2)
    words = {
        "a": a,
        "b": b,
        "c": rng.choice(opposite),
        "topic": rng.choice(topics[side]),
        "name": rng.choice(names[side]),
    }
    return rng.choice(templates).format(**words)


def encode(texts: list[str]) -> Tensor:
    """The numbers of the words, `(n, LENGTH)`."""
    rows = [[CLS, *(number[word] for word in text.split())] for text in texts]
    return torch.tensor([row + [PAD] * (LENGTH - len(row)) for row in rows])


def decode(row: Tensor) -> str:
    """A row of numbers as a sentence; masks stay visible."""
    return " ".join(vocabulary[i] for i in row if i > CLS)


_rng = random.Random(0)
corpus, _ = sentences(6000, 0.5, _rng)  # for pretraining: no shortcut in it
texts = {
    "train": sentences(1000, 0.95, _rng),
    "agrees": sentences(1000, 0.95, _rng),
    "misleads": sentences(1000, 0.0, _rng),
}
_all_texts = [*corpus]
for _set_texts, _ in texts.values():
    _all_texts += _set_texts
_all_words = {word for text in _all_texts for word in text.split()}
vocabulary = ["[PAD]", "[CLS]", "[MASK]", *sorted(_all_words)]
number = {word: i for i, word in enumerate(vocabulary)}
corpus_ids = encode(corpus)
data = {name: (encode(set_texts), labels) for name, (set_texts, labels) in texts.items()}
# for each word the label that it goes with as a word of the shortcut; -1 for all others
side_of = torch.full((len(vocabulary),), -1)
for _label in (0, 1):
    side_of[[number[word] for word in topics[_label] + names[_label]]] = _label
is_shortcut = side_of >= 0

# --- model ---


class Model(nn.Module):
    """One trunk with a masked-LM head, which is tied to the embeddings, and a classifier head."""

    def __init__(self, width: int = 64):
        super().__init__()
        self.words = nn.Embedding(len(vocabulary), width)
        self.positions = nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.mlm = nn.Linear(width, len(vocabulary))
        self.classifier = nn.Linear(width, 2)
        self.mlm.weight = self.words.weight

    def trunk(self, ids: Tensor) -> Tensor:
        embedded = self.words(ids) + self.positions.weight
        return self.layers(embedded, src_key_padding_mask=ids == PAD)  # (batch, length, width)

    def classify(self, ids: Tensor) -> Tensor:
        return self.classifier(self.trunk(ids)[:, 0])  # (batch, 2)


def mask(ids: Tensor, rate: float) -> Tensor:
    """The share `rate` of each row's words, rounded and at least one, at random: bool, as `ids`."""
    ordinary = ids > MASK
    wanted = (rate * ordinary.sum(1, keepdim=True)).round().clamp(min=1)  # (batch, 1)
    draws = torch.rand(ids.shape, device=ids.device).masked_fill(~ordinary, 2.0)
    return draws.argsort(1).argsort(1) < wanted


def fill(model: Model, ids: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    """The masked-LM loss at `places`, and `ids` with the most probable words there."""
    scores = model.mlm(model.trunk(ids.masked_fill(places, MASK))[places])  # (masked, vocabulary)
    loss = F.cross_entropy(scores, ids[places])
    words = scores[:, MASK + 1 :].argmax(-1) + MASK + 1
    return loss, ids.masked_scatter(places, words)


def step(model: Model, ids: Tensor, labels: Tensor, places: Tensor, alpha: float) -> Tensor:
    """The loss of equation 1: these places masked, filled, and the filled text classified."""
    mlm_loss, filled = fill(model, ids, places)
    return alpha * mlm_loss + (1 - alpha) * F.cross_entropy(model.classify(filled), labels)


def fine_tuning(model: Model, ids: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of the classifier, which reads the text as it is."""
    return F.cross_entropy(model.classify(ids), labels)


def without(ids: Tensor, places: Tensor) -> Tensor:
    """`ids` with the words at `places` deleted; the others move up."""
    kept_first = places.int().argsort(dim=1, stable=True)
    return ids.masked_fill(places, PAD).gather(1, kept_first)


# --- training ---


def pretrain(steps: int = 400, device: str = "cpu") -> Model:
    """A masked LM of the corpus, in which topics and names go with either label."""
    torch.manual_seed(0)
    model = Model().to(device)
    optimiser = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(steps):
        ids = corpus_ids[torch.randint(len(corpus_ids), (64,))].to(device)
        loss, _ = fill(model, ids, mask(ids, 0.15))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


def train(
    pretrained: Model,
    loss: Callable[[Model, Tensor, Tensor], Tensor],
    seed: int = 0,
    steps: int = 300,
    every: int = 25,
) -> tuple[Model, list[float]]:
    """A copy of the model, trained by `loss(model, ids, labels)` in batches of 32.

    Returns:
        The model, and its accuracy on `misleads` in per cent every `every` steps.
    """
    model = copy.deepcopy(pretrained).train()
    device = model.classifier.weight.device
    torch.manual_seed(seed)
    nn.init.normal_(model.classifier.weight, 0, 0.02)
    optimiser = torch.optim.AdamW(model.parameters(), 1e-3)
    ids, labels = (part.to(device) for part in data["train"])
    curve = []
    for step_number in range(steps):
        rows = torch.randint(len(ids), (32,))
        batch_loss = loss(model, ids[rows], labels[rows])
        optimiser.zero_grad()
        batch_loss.backward()
        optimiser.step()
        if step_number % every == 0:
            curve.append(accuracy(model, "misleads"))
    return model.eval(), curve


@torch.no_grad()
def accuracy(model: Model, name: str) -> float:
    """Accuracy in per cent on one of the sets of `data`."""
    was_training = model.training
    device = model.classifier.weight.device
    ids, labels = (part.to(device) for part in data[name])
    correct = model.eval().classify(ids).argmax(-1) == labels
    model.train(was_training)
    return 100 * correct.float().mean().item()


@torch.no_grad()
def put_back(model: Model, fill: Callable[..., tuple[Tensor, Tensor]] = fill) -> float:
    """How often a refilled word of the shortcut goes with the sentence's label, in per cent.

    Args:
        fill: chooses the words, `fill(model, ids, places)`; by default the most probable ones.
    """
    device = model.classifier.weight.device
    ids, labels = (part.to(device) for part in data["train"])
    places = is_shortcut.to(device)[ids]
    _, filled = fill(model, ids, places)
    sides = side_of.to(device)[filled[places]]
    agrees = sides == labels[:, None].expand_as(ids)[places]
    return 100 * agrees[sides >= 0].float().mean().item()

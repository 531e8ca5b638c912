"""One example looked at closely: what is masked, what the model would fill in, and what that does to both losses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from html import escape

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from transformers import TrainerCallback

from mtlib.contexts import evaluating, forked_random_state
from mtlib.encoding import Collator
from mtlib.masking import MaskingPolicy
from mtlib.objectives import MaskTuning, integrated_loss
from mtlib.plm import SharedPLM


@dataclass(frozen=True)
class Place:
    """One masked place: the original token, and the likeliest fillers with their probabilities, best first."""

    position: int
    original: str
    fillers: tuple[tuple[str, float], ...]
    original_probability: float


@dataclass(frozen=True)
class Exploration:
    """Equation 1 on one example, in evaluation mode (no dropout). Losses in nats, probabilities by class."""

    tokens: tuple[str, ...]
    perturbed: tuple[str, ...]
    places: tuple[Place, ...]
    mask_token: str
    labels: tuple[str, ...]
    gold: int
    before: tuple[float, ...]
    after: tuple[float, ...]
    mlm_loss: float
    ft_loss: float
    alpha: float

    @property
    def loss(self) -> float:
        return integrated_loss(self.mlm_loss, self.ft_loss, self.alpha)


@torch.no_grad()
def explore(
    plm: SharedPLM,
    masking: MaskingPolicy,
    text: str,
    gold: int,
    text_pair: str | None = None,
    alpha: float = 0.6,
    seed: int = 0,
    n_fillers: int = 5,
    columns: Mapping[str, Sequence] | None = None,
) -> Exploration:
    """Mask `text` (with `text_pair`) by `masking`, fill it, and classify it before and after.

    Args:
        plm: the model, before or after training.
        gold: class index of the true label.
        seed: of the masks.
        n_fillers: how many candidates to list per masked place.
        columns: what the policy reads of this text, a number for each token by the column's name (its preparers made
            them).
    """
    encoded = plm.tokenizer(text, text_pair or None, truncation=True, return_tensors="pt", split_special_tokens=True)
    batch = {**encoded.to(plm.device), "labels": torch.tensor([gold], device=plm.device)}
    batch |= {name: torch.tensor([values], device=plm.device) for name, values in (columns or {}).items()}
    objective = MaskTuning(alpha, masking)
    batch = objective.prepare(plm, batch, torch.Generator().manual_seed(seed))
    with evaluating(plm):
        filled = objective.masked_lm(plm, batch)
        before = plm.classify(batch)  # (1, num_labels)
        classified = objective.classify(plm, batch | {"perturbed_ids": filled.perturbed_ids})
    words = plm.tokenizer.convert_ids_to_tokens
    return Exploration(
        tokens=tuple(words(batch["input_ids"][0].tolist())),
        perturbed=tuple(words(filled.perturbed_ids[0].tolist())),
        places=_places(plm, batch, filled.mlm_logits, n_fillers),
        mask_token=plm.tokenizer.mask_token,
        labels=tuple(plm.config.id2label[index] for index in range(plm.config.num_labels)),
        gold=gold,
        before=tuple(before[0].float().softmax(-1).tolist()),
        after=tuple(classified.logits[0].float().softmax(-1).tolist()),
        mlm_loss=filled.parts["mlm_loss"].item(),
        ft_loss=classified.parts["ft_loss"].item(),
        alpha=alpha,
    )


def _places(plm: SharedPLM, batch: dict, mlm_logits, n_fillers: int) -> tuple[Place, ...]:
    """The masked places of a batch of one; `mlm_logits` is `(n_masked, vocab)`."""
    places, words = [], plm.tokenizer.convert_ids_to_tokens
    for position, logits in zip(batch["mask"][0].nonzero().flatten().tolist(), mlm_logits, strict=True):
        original = batch["input_ids"][0, position].item()
        probabilities = logits.float().softmax(-1)  # (vocab,)
        best = probabilities.topk(min(n_fillers, len(probabilities)))
        fillers = zip(words(best.indices.tolist()), best.values.tolist(), strict=True)
        places.append(Place(position, words(original), tuple(fillers), probabilities[original].item()))
    return tuple(places)


@torch.no_grad()
def example_losses(plm: SharedPLM, objective: MaskTuning, examples, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """`(mlm_loss, ft_loss)` of each example, in nats, each `(n,)`: without dropout, the same draws for the same seed.

    The random state is left as it was, so that looking does not change a training. An example's `mlm_loss` is the mean
    over the masked tokens in it (equation 1 takes the mean over the batch's).
    """
    collate = Collator(plm.tokenizer, objective.columns)
    batch = {key: value.to(plm.device) for key, value in collate(list(examples)).items()}
    with evaluating(plm), forked_random_state(plm.device, seed):
        batch = objective.prepare(plm, batch, torch.Generator().manual_seed(seed))
        filled, mask = objective.masked_lm(plm, batch), batch["mask"]  # (n, seq)
        logits = plm.classify({**batch, "input_ids": filled.perturbed_ids}).float()  # (n, num_labels)
    per_token = cross_entropy(filled.mlm_logits.float(), batch["input_ids"][mask], reduction="none")  # (n_masked,)
    summed = torch.zeros(mask.shape, device=mask.device).masked_scatter(mask, per_token).sum(1)  # (n,)
    mlm_loss = summed / mask.sum(1).clamp(min=1)
    ft_loss = cross_entropy(logits, batch["labels"], reduction="none")
    return mlm_loss.cpu().numpy(), ft_loss.cpu().numpy()


class LossSnapshots(TrainerCallback):
    """`example_losses` of the same examples at the start, the end and evenly between: `snapshots[title]`."""

    def __init__(self, plm: SharedPLM, objective: MaskTuning, examples, n: int = 4):
        self.plm, self.objective, self.examples, self.n = plm, objective, examples, n
        self.snapshots: dict[str, tuple[np.ndarray, np.ndarray]] = {}

    def on_train_begin(self, args, state, control, **kwargs):
        self.steps = {round(state.max_steps * part / (self.n - 1)) for part in range(self.n)}
        self._look(state)

    def on_step_end(self, args, state, control, **kwargs):
        self._look(state)

    def _look(self, state) -> None:
        if state.global_step in self.steps:
            self.snapshots[f"step {state.global_step}"] = example_losses(self.plm, self.objective, self.examples)


def as_html(exploration: Exploration) -> str:
    """The exploration as tables; marks differ by tag as well as colour, so that they survive without styles."""
    masked = {place.position for place in exploration.places}

    def line(tokens, tag: str) -> str:
        return " ".join(f"<{tag}>{escape(t)}</{tag}>" if i in masked else escape(t) for i, t in enumerate(tokens))

    fillers = [
        [
            f"<b>{escape(place.original)}</b> ({place.original_probability:.1%})",
            ", ".join(f"“{escape(token)}” {probability:.1%}" for token, probability in place.fillers),  # may be a comma
        ]
        for place in exploration.places
    ]
    classes = [
        [f"{escape(label)}{' (gold)' if index == exploration.gold else ''}", f"{before:.1%}", f"{after:.1%}"]
        for index, (label, before, after) in enumerate(
            zip(exploration.labels, exploration.before, exploration.after, strict=True)
        )
    ]
    hidden = [exploration.mask_token if i in masked else token for i, token in enumerate(exploration.tokens)]
    return (
        f'<p style="line-height:1.4">original: {line(exploration.tokens, "b")}<br>masked: {line(hidden, "b")}<br>'
        f"refilled: {line(exploration.perturbed, 'mark')}</p>"
        + html_table(["masked token (its probability)", "best fillers"], fillers)
        + html_table(["class", "original", "refilled"], classes)
        + f"<p>mlm_loss {exploration.mlm_loss:.3f}, ft_loss {exploration.ft_loss:.3f}, at alpha {exploration.alpha:g}: "
        f"<b>loss {exploration.loss:.3f}</b> nats</p>"
    )


def highlight_edit(original: str, edited: str) -> tuple[str, str]:
    """Both texts as HTML: words that only the first has inside `<del>`, words that only the second has in `<ins>`."""
    first, second = original.split(), edited.split()
    left, right = [], []
    for tag, a, b, c, d in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        removed, added = escape(" ".join(first[a:b])), escape(" ".join(second[c:d]))
        left.append(removed if tag == "equal" else f"<del>{removed}</del>" * bool(removed))
        right.append(added if tag == "equal" else f"<ins>{added}</ins>" * bool(added))
    return " ".join(filter(None, left)), " ".join(filter(None, right))


def highlight_words(text: str, words: set[str]) -> str:
    """`text` as HTML with every word of `words` (lower case) inside `<mark>`."""
    marked = []
    for word in text.split():
        bare = word.lower().strip(".,;:!?\"'()")
        marked.append(f"<mark>{escape(word)}</mark>" if bare in words else escape(word))
    return " ".join(marked)


def html_table(header: list[str], rows: list[list[str]]) -> str:
    """Cells are HTML already; escape what is not."""
    # inside a widget a table has no style of its own: cells touch, and lines stand far apart
    look = 'style="text-align:left; padding:0.2em 1em 0.2em 0; line-height:1.4"'
    head = "".join(f"<th {look}>{name}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td {look}>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<table style="margin-bottom:1em"><tr>{head}</tr>{body}</table>'

"""Policies that rank tokens: by how common they are, by part of speech, by what the classifier leans on."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal
from weakref import WeakKeyDictionary

import torch
from datasets import Dataset
from torch import Tensor

from mtlib.contexts import evaluating
from mtlib.errors import UserError
from mtlib.masking import CountedMasking
from mtlib.plm import SharedPLM, embeddings_that_read
from mtlib.preparer import Prepared, Preparer, with_column
from mtlib.settings import COUNT, check_choice

Frequency = Literal["rare", "frequent"]
WordClass = Literal["content", "function"]
Attribution = Literal["most", "least"]
WORD_CLASSES = {"content": 1, "function": 2}  # in the column `word_class`; 0: neither, as punctuation


@dataclass(frozen=True)
class FrequencyMasking(CountedMasking):
    """The tokens that are rarest, or most frequent, in the training set (`prefer`)."""

    columns = {"token_counts": 0}  # noqa: RUF012  (never changed)
    prepared_by = "mtlib.policies.ranked:CountTokens"

    prefer: Frequency = "rare"

    def __post_init__(self):
        super().__post_init__()
        check_choice("prefer", self.prefer, Frequency)

    def scores(self, batch, maskable, plm) -> Tensor:
        """The logarithm of the count, with its sign turned for "rare": at temperature 1, a draw by count or by 1/count.

        In single precision, so that counts above 16 million tie.
        """
        logarithms = self.column(batch, "token_counts").clamp(min=1).float().log()  # (batch, seq)
        return logarithms if self.prefer == "frequent" else -logarithms


@dataclass(frozen=True)
class PartOfSpeechMasking(CountedMasking):
    """Words of content (nouns, verbs, adjectives, adverbs, names, numbers), or words of function (all others) first.

    Tokens of the other kind are masked only where those of the preferred one do not suffice.
    """

    columns = {"word_class": 0}  # noqa: RUF012
    prepared_by = "mtlib.policies.word_classes:MarkWordClasses"

    prefer: WordClass = "content"

    def __post_init__(self):
        super().__post_init__()
        check_choice("prefer", self.prefer, WordClass)

    def scores(self, batch, maskable, plm) -> Tensor:
        return (self.column(batch, "word_class") == WORD_CLASSES[self.prefer]).float()


@dataclass(frozen=True)
class AttributionMasking(CountedMasking):
    """The tokens that the classifier in training leans on most, or least.

    By gradient x input: |sum_d e_id * d log p(y | x) / d e_id|, where e_i is the word embedding of token i and y the
    label that the classifier predicts. Gold labels are not read, so that unlabelled text will do.

    Args:
        prefer: "most" or "least".
        every: an example's scores are computed again when this many batches have passed since they were (slices of a
            batch, where it is cut). An example comes back after an epoch, so smaller numbers than an epoch's batches
            save next to nothing. 1 keeps nothing; above that, a training that is resumed computes all scores again,
            and so differs a little from one that was not interrupted, as does one whose batches are cut otherwise.
    """

    prefer: Attribution = "most"
    every: int = 1
    _batch_number: Iterator[int] = field(default_factory=itertools.count, init=False, repr=False, compare=False)
    # by model and by the tokens of an example: in which batch its scores were computed, and they
    _kept: WeakKeyDictionary = field(default_factory=WeakKeyDictionary, init=False, repr=False, compare=False)

    def __post_init__(self):
        super().__post_init__()
        check_choice("prefer", self.prefer, Attribution)
        COUNT.check("every", self.every)

    def begin(self) -> None:
        self._kept.clear()

    def scores(self, batch, maskable, plm) -> Tensor:
        if plm is None:
            raise UserError(
                "AttributionMasking asks the classifier of a model, but plm is None; call it as policy(batch, "
                "maskable, generator, plm)."
            )
        scores = attribution(plm, batch) if self.every == 1 else self._scores_kept(batch, plm)  # (batch, seq)
        return scores if self.prefer == "most" else -scores

    def _scores_kept(self, batch: Mapping[str, Tensor], plm) -> Tensor:
        kept = self._kept.setdefault(plm, {})
        now = next(self._batch_number)
        attended = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()  # (batch, seq)
        names = [tuple(ids[there].tolist()) for ids, there in zip(batch["input_ids"], attended, strict=True)]
        due = [now - kept.get(name, (-self.every, None))[0] >= self.every for name in names]
        if any(due):
            rows = torch.tensor(due, device=attended.device)
            fresh = attribution(plm, {name: tensor[rows] for name, tensor in batch.items() if tensor.ndim})
            for i, row in zip(rows.nonzero().flatten().tolist(), fresh, strict=True):
                kept[names[i]] = now, row[attended[i]].cpu()
        scores = torch.zeros(attended.shape, device=attended.device)
        scores[attended] = torch.cat([kept[name][1] for name in names]).to(scores)
        return scores


def attribution(plm, batch: Mapping[str, Tensor]) -> Tensor:
    """|gradient x input| of the predicted label's log-probability for each token, `(batch, seq)`; without dropout.

    An encoder-decoder reads a token twice, and the two products are added.
    """
    embedded = []

    def keep(module, args, output):
        embedded.append(output if output.requires_grad else output.requires_grad_())
        return embedded[-1]

    with ExitStack() as hooks, evaluating(plm), torch.enable_grad():
        for module in embeddings_that_read(plm.trunk):
            hooks.enter_context(module.register_forward_hook(keep))
        predicted = plm.classify(batch).float().log_softmax(dim=-1).max(dim=-1).values  # (batch,)
        gradients = torch.autograd.grad(predicted.sum(), embedded)  # (batch, seq, hidden) each
    products = [
        (gradient * read.detach()).float().sum(dim=-1) for gradient, read in zip(gradients, embedded, strict=True)
    ]
    for shifted in products[1:]:  # the decoder reads each token a place later than it stands
        products[0][:, :-1] += shifted[:, 1:]
    return products[0].abs()  # (batch, seq)


class CountTokens(Preparer):
    """Adds `token_counts`: how often each token occurs in the training set."""

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        counts = Counter(chain.from_iterable(examples["input_ids"]))
        rows = [[counts[token] for token in ids] for ids in examples["input_ids"]]
        return Prepared(with_column(examples, "token_counts", rows))

"""What every masking policy takes and returns, and how a policy that ranks tokens draws."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType

import torch
from torch import Tensor

from mtlib.errors import UserError
from mtlib.preparer import Preparer
from mtlib.settings import FROM_0, MASK_RATE, SHARE


class MaskingPolicy(ABC):
    """Decides which tokens of a batch are masked.

    Every policy of ours draws its random numbers for the candidates (tokens or spans) in reading order. So the masks of
    an example do not depend on how far its batch is padded, and a given generator gives the same masks again. Policies
    run on the device of their inputs, as a rule without a Python loop over examples.

    A policy may choose by something that is computed once for a training set (spans, tags, counts). It then reads a
    column of the dataset, which a preparer adds. The preparer is named rather than imported, since it may lie in a
    package above this one (the testbed's grammar, the part-of-speech probe).
    """

    columns: Mapping[str, int | float] = MappingProxyType({})  # that it reads, each with the value that pads it
    prepared_by: str = ""  # "module:class" of the preparer that adds the columns
    predict_all: bool = False  # the masked LM is trained to predict the whole text, not the masked tokens alone

    def preparers(self) -> tuple[Preparer, ...]:
        """What has to be done to a training set before this policy can read it."""
        if not self.prepared_by:
            return ()
        module, name = self.prepared_by.split(":")
        return (getattr(import_module(module), name)(**self.preparer_options()),)

    def preparer_options(self) -> Mapping[str, object]:
        """The arguments of its preparer."""
        return {}

    def begin(self) -> None:  # noqa: B027  (most keep nothing)
        """A training begins: a policy that keeps anything about its model forgets it."""

    def column(self, batch: Mapping[str, Tensor], name: str) -> Tensor:
        """A column of the batch.

        Raises:
            UserError: the batch has none.
        """
        if name not in batch:
            raise UserError(
                f"{type(self).__name__} reads the column {name!r}, which the batch lacks. Let its preparer "
                f"({self.prepared_by}) add it to the examples, and the collator keep it: "
                "Collator(tokenizer, objective.columns)."
            )
        return batch[name]

    @abstractmethod
    def __call__(
        self, batch: Mapping[str, Tensor], maskable: Tensor, generator: torch.Generator | None = None, plm=None
    ) -> Tensor:
        """True where a token is to be masked, bool `(batch, seq)`.

        Args:
            batch: `input_ids` `(batch, seq)`, and whatever else the objective's batch holds.
            maskable: the places that may be masked, bool `(batch, seq)`.
            generator: of all random numbers; None takes torch's global one.
            plm: the model in training, for a policy that asks it.
        """


def check_policy(masking: MaskingPolicy | None, required: bool = False) -> None:
    """Raise `UserError` unless this is a policy, or None where that is not `required`."""
    if (required or masking is not None) and not isinstance(masking, MaskingPolicy):
        raise UserError(
            f"masking is {masking!r}; expected a masking policy, as ExactMasking(0.05) or "
            'masking_policy("exact", 0.05, tokenizer) makes one.'
        )


@dataclass(frozen=True)
class CountedMasking(MaskingPolicy):
    """The same share of every example: `clamp(round(rate * n), 1, n)` of its `n` maskable tokens; none at rate 0.

    Which ones, `scores` decides. Halves are rounded to even, as Python does.

    Args:
        rate: share of the maskable tokens, in [0, 1].
        temperature: 0 takes the tokens with the highest scores, ties broken at random. Above 0 tokens are drawn without
            replacement with probabilities proportional to `exp(score / temperature)`.
    """

    rate: float = MASK_RATE
    temperature: float = field(default=0.0, kw_only=True)

    def __post_init__(self):
        SHARE.check("rate", self.rate)
        FROM_0.check("temperature", self.temperature)

    def scores(self, batch: Mapping[str, Tensor], maskable: Tensor, plm) -> Tensor | None:
        """How much each token is wanted, float `(batch, seq)`; None: all alike."""
        return None

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        return self.choose(maskable, self.scores(batch, maskable, plm), generator)  # (batch, seq)

    def choose(
        self,
        candidates: Tensor,
        scores: Tensor | None,
        generator: torch.Generator | None,
        counted: Tensor | None = None,
    ) -> Tensor:
        """The wanted number of candidates, those with the highest scores or a draw by them, bool `(batch, seq)`.

        `counted` are the tokens of which `rate` is a share, where those are not the candidates themselves.
        """
        n = (candidates if counted is None else counted).sum(dim=1, keepdim=True)  # (batch, 1)
        # float64, so that the count is the one Python's round(rate * n) gives
        wanted = torch.round(self.rate * n.double()).long().clamp(min=int(self.rate > 0))  # (batch, 1)
        keys = uniform(candidates, generator)  # (batch, seq), 2 where there is no candidate
        if scores is not None:
            keys = self._keys(keys, scores.to(keys.dtype), candidates)
        # the second argsort turns an order into ranks; stable, so that padding cannot change how ties fall
        rank = keys.argsort(dim=1, stable=True).argsort(dim=1, stable=True)  # (batch, seq)
        return candidates & (rank < wanted)

    def _keys(self, draws: Tensor, scores: Tensor, candidates: Tensor) -> Tensor:
        """Keys whose ascending order is the order in which tokens are taken, `(batch, seq)`."""
        if self.temperature > 0:  # the Gumbel trick: the largest of score + Gumbel noise is such a draw
            return (-(scores / self.temperature + gumbel(draws))).masked_fill(~candidates, torch.inf)
        by_chance = draws.argsort(dim=1)  # (batch, seq): candidates in random order, all others after them
        ordered = scores.masked_fill(~candidates, -torch.inf).gather(1, by_chance)
        places = by_chance.gather(1, ordered.argsort(dim=1, descending=True, stable=True))
        ranks = torch.empty_like(places).scatter_(1, places, torch.arange(places.shape[1]).expand_as(places).to(places))
        return ranks.to(draws.dtype).masked_fill(~candidates, torch.inf)


def gumbel(draws: Tensor) -> Tensor:
    """Gumbel noise from uniform numbers."""
    return -torch.log(-torch.log(draws.clamp(1e-20, 1 - 1e-7)))


def uniform(candidates: Tensor, generator: torch.Generator | None) -> Tensor:
    """Uniform numbers in [0, 1) at the candidates, 2 elsewhere: float `(batch, seq)`."""
    numbers = torch.full(candidates.shape, 2.0, device=candidates.device)
    device = candidates.device if generator is None else generator.device
    numbers[candidates] = torch.rand(int(candidates.sum()), generator=generator, device=device).to(candidates.device)
    return numbers

"""Biaffine dependency parsing: the first stage of IPT, intermediate training on trees (Glavaš & Vulić 2021)."""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from datasets import Dataset
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot, pad

from mtlib.objectives import Objective, ObjectiveOutput, require_built, state_size, text_state
from mtlib.plm import SharedPLM

# of Universal Dependencies, without their subtypes
RELATIONS = (
    "acl", "advcl", "advmod", "amod", "appos", "aux", "case", "cc", "ccomp", "clf", "compound", "conj", "cop", "csubj",
    "dep", "det", "discourse", "dislocated", "expl", "fixed", "flat", "goeswith", "iobj", "list", "mark", "nmod",
    "nsubj", "nummod", "obj", "obl", "orphan", "parataxis", "punct", "reparandum", "root", "vocative", "xcomp",
)  # fmt: skip
NO_WORD = -100  # pads heads and relations; cross_entropy leaves it out


def parsing_loss(
    arc_scores: Tensor, relation_scores: Tensor, heads: Tensor, relations: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """L = CE(arc, gold head) + CE(relation at the gold head, gold relation), means over the words.

    Args:
        arc_scores: of each candidate (the root, then the words) as head of each word, `(batch, words, 1 + words)`.
        relation_scores: of each word with its gold head, `(batch, words, relations)`.
        heads, relations: gold, `(batch, words)`; `NO_WORD` where there is none.

    Returns:
        The loss (scalar, nats, float32) and its parts `arc_loss` and `relation_loss`.
    """
    n_words = (heads != NO_WORD).sum().clamp(min=1)
    pairs = {"arc_loss": (arc_scores, heads), "relation_loss": (relation_scores, relations)}
    parts = {
        name: cross_entropy(scores.float().flatten(0, 1), gold.flatten(), ignore_index=NO_WORD, reduction="sum")
        / n_words
        for name, (scores, gold) in pairs.items()
    }
    return parts["arc_loss"] + parts["relation_loss"], parts


class Parse(NamedTuple):
    arc_scores: Tensor  # (batch, words, 1 + words)
    relation_scores: Tensor  # (batch, words, relations), with the given heads


class DependencyParsing(Objective):
    """Each word d and each candidate h for its head meet in `[d; 1] W h`, each relation r in `[d; 1] W_r [h; 1]`.

    A word is the mean of its pieces' states; the root is the state of the whole text, which a classifier reads. There
    is no layer between states and W. The head is discarded after the stage; the trunk stays.

    Args:
        faithful_to_code: as in the released code W and W_r start at 0, and words that only pad a sentence are
            candidates for heads as well.
    """

    name = "dependency_parsing"
    classifies = False

    def __init__(self, faithful_to_code: bool = False):
        super().__init__()
        self.faithful_to_code = faithful_to_code
        self.arc: nn.Parameter | None = None
        self.relation: nn.Parameter | None = None

    @property
    def columns(self) -> Mapping[str, int]:
        return {"words": 0, "heads": NO_WORD, "relations": NO_WORD}

    def build(self, plm: SharedPLM, examples: Dataset | None = None) -> None:
        hidden = state_size(plm)
        self.arc = nn.Parameter(torch.zeros(hidden + 1, hidden))
        self.relation = nn.Parameter(torch.zeros(len(RELATIONS), hidden + 1, hidden + 1))
        if not self.faithful_to_code:
            for weight in (self.arc, self.relation):
                nn.init.normal_(weight, std=1 / hidden)  # states have a length of sqrt(hidden): scores near 1

    def sizes(self, batch: dict) -> dict[str, Tensor | int]:
        return dict.fromkeys(("arc_loss", "relation_loss", "share_right_heads"), (batch["heads"] != NO_WORD).sum())

    def forward(self, plm: SharedPLM, batch: dict) -> ObjectiveOutput:
        require_built(self, self.arc)
        heads = batch["heads"]  # (batch, words)
        scores = self.parse(plm, batch)
        _, parts = parsing_loss(scores.arc_scores, scores.relation_scores, heads, batch["relations"])
        parts["share_right_heads"] = (scores.arc_scores.argmax(-1) == heads).sum() / (heads != NO_WORD).sum().clamp(
            min=1
        )
        return ObjectiveOutput(parts, {"arc_loss": 1.0, "relation_loss": 1.0})

    def parse(self, plm: SharedPLM, batch: dict) -> Parse:
        """The scores of a batch with `words` and gold `heads`; the argmax of `arc_scores` is the predicted head."""
        output, heads = plm.trunk_output(batch), batch["heads"]
        states = output.encoder_last_hidden_state if plm.config.is_encoder_decoder else output.last_hidden_state
        words = _word_means(states, batch["words"], heads.shape[1])  # (batch, words, hidden)
        candidates = torch.cat([text_state(plm, output, batch)[:, None], words], dim=1)  # (batch, 1 + words, hidden)
        dependents = pad(words, (0, 1), value=1.0)  # (batch, words, hidden + 1)
        arc_scores = dependents @ self.arc @ candidates.mT
        if not self.faithful_to_code:
            no_word = pad(heads == NO_WORD, (1, 0), value=False)  # (batch, 1 + words)
            arc_scores = arc_scores.float().masked_fill(no_word[:, None], -torch.inf)
        places = heads.clamp(min=0)[:, :, None].expand(-1, -1, candidates.shape[-1])
        gold_heads = pad(candidates.gather(1, places), (0, 1), value=1.0)  # (batch, words, hidden + 1)
        relation_scores = torch.einsum("bwd,rde,bwe->bwr", dependents, self.relation, gold_heads)
        return Parse(arc_scores, relation_scores)


def _word_means(states: Tensor, words: Tensor, n_words: int) -> Tensor:
    """The mean state of each word's pieces, `(batch, n_words, hidden)`; 0 for a word that only pads."""
    belongs = one_hot(words, n_words + 1)[:, :, 1:].to(states.dtype)  # (batch, seq, words)
    return belongs.mT @ states / belongs.sum(1)[:, :, None].clamp(min=1)

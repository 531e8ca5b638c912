"""The bias model for entailment of Karimi Mahabadi et al.: how the tokens of the hypothesis stand in the premise."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from mtlib.contexts import evaluating
from mtlib.methods.overlap import EntailmentBias, is_part
from mtlib.plm import SharedPLM

_LONGEST, _BATCH = 64, 64  # tokens of a text, special ones included, as in the code of Karimi Mahabadi et al.; pairs


class _Tokens(NamedTuple):
    pieces: list[str]  # without special tokens
    states: Tensor  # (pieces, hidden), each of length 1


class TokenOverlap(EntailmentBias):
    """Karimi Mahabadi et al. 2020, for entailment: six of their seven features, on the model's own tokens.

    They are: all tokens of the hypothesis are in the premise; the share of its distinct tokens that are; it is a
    contiguous part of the premise; and over its tokens the mean, the largest and the smallest of the best cosine with a
    token of the premise. The seventh, whether the hypothesis is a constituent of the premise, takes a parse of it. In
    their code that feature is always false, for it reads a parse of another format than it expects.

    The cosines are of the states of the trunk's last layer, each text read by itself. Unlike in their code, they are
    those of the pretrained model, computed once and without dropout, and each is multiplied by its own padding.

    Args:
        faithful_to_code: as in `Overlap`, a hypothesis counts as part of the premise where its letters are.
    """

    def __init__(self, faithful_to_code: bool = False):
        self.faithful_to_code = faithful_to_code

    def features(self, plm: SharedPLM, texts: Sequence[str], pairs: Sequence[str]) -> np.ndarray:
        rows = []
        with torch.no_grad(), evaluating(plm), torch.autocast(plm.device.type, enabled=False):
            for first in range(0, len(texts), _BATCH):
                some = slice(first, first + _BATCH)
                rows += map(self._row, _read(plm, texts[some]), _read(plm, pairs[some]))
        return np.array(rows)

    def _row(self, premise: _Tokens, hypothesis: _Tokens) -> list[float]:
        inside = {piece: piece in premise.pieces for piece in hypothesis.pieces}
        best = torch.zeros(1)  # of a text without tokens
        if premise.pieces and hypothesis.pieces:
            best = (hypothesis.states @ premise.states.T).amax(1)  # (pieces of the hypothesis,)
        return [
            float(all(inside.values())),
            sum(inside.values()) / max(len(inside), 1),
            float(is_part(hypothesis.pieces, premise.pieces, by_letters=self.faithful_to_code)),
            best.mean().item(),
            best.max().item(),
            best.min().item(),
        ]


def _read(plm: SharedPLM, texts: Sequence[str]) -> list[_Tokens]:
    # byte-level tokenizers have another token for a word at the very beginning, hence the blank
    batch = plm.tokenizer(
        [f" {text}" for text in texts], truncation=True, max_length=_LONGEST, padding=True, padding_side="right",
        return_tensors="pt", split_special_tokens=True, return_special_tokens_mask=True,
    )  # fmt: skip
    own = ~batch.pop("special_tokens_mask").bool()  # (batch, seq): of the texts, not special and no padding
    states = normalize(plm.final_states(batch.to(plm.device)).float(), dim=-1).cpu()  # (batch, seq, hidden)
    ids = batch["input_ids"].cpu()
    return [
        _Tokens(plm.tokenizer.convert_ids_to_tokens(row[kept].tolist()), vectors[kept])
        for row, vectors, kept in zip(ids, states, own, strict=True)
    ]

"""A policy that masks words of content, or words of function, and the parts of speech of a training set's words."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from datasets import Dataset
from torch import Tensor

from mtlib.marking import WORD, MarkTokens, Spans
from mtlib.masking import CountedMasking
from mtlib.policies.pos_probe import PosProbe

WordClass = Literal["content", "function"]
CONTENT = ("NOUN", "PROPN", "VERB", "ADJ", "ADV", "NUM", "INTJ")
PARTS_OF_SPEECH = (*CONTENT, "AUX", "DET", "ADP", "PRON", "other")  # in the column `part_of_speech`, from 1 on
_TEXTS = 256  # tagged at a time


class MarkPartsOfSpeech(MarkTokens):
    """Adds `part_of_speech`: the number of each token's part of speech in `PARTS_OF_SPEECH`; 0 for punctuation.

    Words are tagged by the bundled probe on the bundled model, whatever model is trained. A word behind the bundled
    model's longest input keeps 0.
    """

    column = "part_of_speech"

    def spans(self, rows: Dataset) -> Iterator[tuple[Spans, Spans]]:
        probe = PosProbe.bundled()
        for some in rows.iter(_TEXTS):
            pairs = some.get("text_pair") or [""] * len(some["text"])
            yield from zip(self._numbered(probe, some["text"]), self._numbered(probe, pairs), strict=True)

    def _numbered(self, probe: PosProbe, texts: list[str]) -> list[list[tuple[int, int, int]]]:
        places = [[match.span() for match in WORD.finditer(text)] for text in texts]
        with torch.autocast("cpu", enabled=False):  # a tag must not depend on the precision of the run
            tags = probe.tag(texts, places)
        return [
            [(*place, number_of(tag)) for place, tag in zip(*of_text, strict=True) if tag]
            for of_text in zip(places, tags, strict=True)
        ]


def number_of(tag: str) -> int:
    """Of the part of speech of a tag of the probe, as "VERB/VBD"."""
    name = tag.partition("/")[0]
    return 1 + PARTS_OF_SPEECH.index(name if name in PARTS_OF_SPEECH else "other")


@dataclass(frozen=True)
class PartOfSpeechMasking(CountedMasking):
    """Words of content (nouns, verbs, adjectives, adverbs, names, numbers), or words of function (all others) first.

    Auxiliary verbs count as words of function. Tokens of the other kind are masked only where those of the preferred
    one do not suffice.
    """

    columns = {"part_of_speech": 0}
    preparer = MarkPartsOfSpeech

    prefer: WordClass = "content"

    def scores(self, batch, maskable, plm) -> Tensor:
        number = batch["part_of_speech"]  # (batch, seq)
        content = (number > 0) & (number <= len(CONTENT))
        return (content if self.prefer == "content" else number > len(CONTENT)).float()

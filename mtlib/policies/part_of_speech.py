"""A policy that masks content words, or function words, by their part of speech."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from datasets import Dataset
from torch import Tensor

from mtlib.masking import CountedMasking
from mtlib.policies.pos_probe import PosProbe
from mtlib.preparing import Transform
from mtlib.rows.folding import WORD
from mtlib.spans import Spans, TokenSpans

CONTENT = ("NOUN", "PROPN", "VERB", "ADJ", "ADV", "NUM", "INTJ")
# numbered from 1 on in the column `part_of_speech`
PARTS_OF_SPEECH = (*CONTENT, "AUX", "DET", "ADP", "PRON", "other")
_BATCH = 256  # texts that are tagged at a time


class PartOfSpeechSpans(TokenSpans):
    """Adds `part_of_speech`: the number of each token's part of speech in `PARTS_OF_SPEECH`.

    Punctuation has 0. Words are tagged by the bundled probe on the bundled model, whatever model is
    trained. Words beyond the bundled model's longest input have 0 as well.
    """

    column = "part_of_speech"

    def spans(self, rows: Dataset) -> Iterator[tuple[Spans, Spans]]:
        probe = PosProbe.bundled()
        for batch in rows.iter(_BATCH):
            texts = batch["text"]
            text_pairs = batch.get("text_pair") or [""] * len(texts)
            numbered = numbered_words(probe, texts)
            numbered_pairs = numbered_words(probe, text_pairs)
            yield from zip(numbered, numbered_pairs, strict=True)


def numbered_words(probe: PosProbe, texts: list[str]) -> list[list[tuple[int, int, int]]]:
    """For each text its words, as (start, end, number of the part of speech)."""
    spans = [[match.span() for match in WORD.finditer(text)] for text in texts]
    with torch.autocast("cpu", enabled=False):  # a tag must not depend on the precision of the run
        tags = probe.tag(texts, spans)
    numbered = []
    for text_spans, text_tags in zip(spans, tags, strict=True):
        pairs = zip(text_spans, text_tags, strict=True)
        numbered.append([(start, end, number_of(tag)) for (start, end), tag in pairs if tag])
    return numbered


def number_of(tag: str) -> int:
    """The number of a tag's part of speech; a tag of the probe is for example "VERB/VBD"."""
    name = tag.partition("/")[0]
    if name not in PARTS_OF_SPEECH:
        name = "other"
    return 1 + PARTS_OF_SPEECH.index(name)


@dataclass(frozen=True)
class PartOfSpeechMasking(CountedMasking):
    """Content words first, or function words first (`prefer`).

    Content words are nouns, names, verbs, adjectives, adverbs, numbers and interjections; all
    others are function words, auxiliary verbs among them. Words of the other class are masked only
    where those of the preferred one do not suffice.
    """

    columns = {"part_of_speech": 0}

    prefer: Literal["content", "function"] = "content"

    def transforms(self) -> tuple[Transform, ...]:
        return (PartOfSpeechSpans(),)

    def scores(self, batch, maskable, plm) -> Tensor:
        number = batch["part_of_speech"]  # (batch, seq)
        if self.prefer == "function":
            return (number > len(CONTENT)).float()
        return ((number > 0) & (number <= len(CONTENT))).float()

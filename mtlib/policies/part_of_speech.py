"""A policy that masks words of content, or words of function, and the parts of speech of a training set's words."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from datasets import Dataset
from torch import Tensor

from mtlib.contexts import forked_random_state
from mtlib.marking import WORD, MarkTokens, Spans
from mtlib.masking import CountedMasking
from mtlib.paths import MINI_MODEL_DIR, MINI_POS_DIR
from mtlib.plm import SharedPLM
from mtlib.policies.pos_probe import PosProbe, Span

WordClass = Literal["content", "function"]
WORD_CLASSES = {"content": 1, "function": 2}  # in the column `word_class`; 0: neither, as punctuation
CONTENT = ("NOUN", "PROPN", "VERB", "ADJ", "ADV", "NUM", "INTJ")
PARTS_OF_SPEECH = ("NOUN", "PROPN", "VERB", "ADJ", "ADV", "AUX", "DET", "ADP", "PRON", "other")  # the commonest
_TEXTS = 256  # tagged at a time


class _MarkTags(MarkTokens):
    """Words are tagged by the bundled probe on the bundled model, whatever model is trained.

    A word behind the bundled model's longest input keeps 0, as punctuation does.
    """

    number_of: Callable[[str], int]  # of a universal part of speech

    def spans(self, rows: Dataset) -> Iterator[tuple[Spans, Spans]]:
        with forked_random_state(torch.device("cpu")):  # its classifier, which is not used, draws random weights
            mini = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2).eval()
        probe = PosProbe.load(MINI_POS_DIR, mini.trunk, mini.tokenizer)
        for some in rows.iter(_TEXTS):
            pairs = some.get("text_pair") or [""] * len(some["text"])
            yield from zip(self._numbered(probe, some["text"]), self._numbered(probe, pairs), strict=True)

    def _numbered(self, probe: PosProbe, texts: list[str]) -> list[list[tuple[int, int, int]]]:
        places = [[Span(*match.span()) for match in WORD.finditer(text)] for text in texts]
        with torch.autocast("cpu", enabled=False):  # a tag must not depend on the precision of the run
            tags = probe.tag_all(texts, places)
        return [
            [(*place, self.number_of(tag.split("/")[0])) for place, tag in zip(*of_text, strict=True) if tag]
            for of_text in zip(places, tags, strict=True)
        ]


class MarkWordClasses(_MarkTags):
    """Adds `word_class`: 1 for the tokens of words of content, 2 for those of words of function, 0 for punctuation.

    Auxiliary verbs count as words of function.
    """

    column = "word_class"

    @staticmethod
    def number_of(name: str) -> int:
        return WORD_CLASSES["content" if name in CONTENT else "function"]


@dataclass(frozen=True)
class PartOfSpeechMasking(CountedMasking):
    """Words of content (nouns, verbs, adjectives, adverbs, names, numbers), or words of function (all others) first.

    Tokens of the other kind are masked only where those of the preferred one do not suffice.
    """

    columns = {"word_class": 0}
    preparer = MarkWordClasses

    prefer: WordClass = "content"

    def scores(self, batch, maskable, plm) -> Tensor:
        return (batch["word_class"] == WORD_CLASSES[self.prefer]).float()


class MarkPartsOfSpeech(_MarkTags):
    """Adds `part_of_speech`: the number of each token's part of speech in `PARTS_OF_SPEECH`, counted from 1 on."""

    column = "part_of_speech"

    @staticmethod
    def number_of(name: str) -> int:
        return 1 + PARTS_OF_SPEECH.index(name if name in PARTS_OF_SPEECH else "other")

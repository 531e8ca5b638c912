"""Which words of a training set have content and which a function: marks for the policy `PartOfSpeechMasking`."""

import re
from collections.abc import Iterator

import torch
from datasets import Dataset

from mtlib.diversity.pos_probe import PosProbe, Span
from mtlib.masking.marking import MarkTokens, Spans
from mtlib.masking.ranked import WORD_CLASSES
from mtlib.paths import MINI_MODEL_DIR, MINI_POS_DIR
from mtlib.plm import SharedPLM

CONTENT = ("NOUN", "PROPN", "VERB", "ADJ", "ADV", "NUM", "INTJ")
_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_TEXTS = 256  # tagged at a time


class MarkWordClasses(MarkTokens):
    """Adds `word_class`: 1 for the tokens of words of content, 2 for those of words of function, 0 for punctuation.

    Words are tagged by the bundled probe on the bundled model, whatever model is trained. Auxiliary verbs count as
    words of function. A word behind the bundled model's longest input keeps 0.
    """

    column = "word_class"

    def spans(self, rows: Dataset) -> Iterator[tuple[Spans, Spans]]:
        mini = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2).eval()
        probe = PosProbe.load(MINI_POS_DIR, mini.trunk, mini.tokenizer)
        pairs = list(rows["text_pair"]) if "text_pair" in rows.column_names else [""] * len(rows)
        yield from zip(_classes(probe, list(rows["text"])), _classes(probe, pairs), strict=True)


def _classes(probe: PosProbe, texts: list[str]) -> Iterator[list[tuple[int, int, int]]]:
    for first in range(0, len(texts), _TEXTS):
        some = texts[first : first + _TEXTS]
        places = [[Span(*match.span()) for match in _WORD.finditer(text)] for text in some]
        for of_text, states in zip(places, probe.states(some, places, whole_words=True), strict=True):
            known = [(place, state) for place, state in zip(of_text, states, strict=True) if state is not None]
            if not known:
                yield []
                continue
            tags = probe.scores(torch.stack([state for _, state in known])).argmax(dim=-1).tolist()
            yield [(*place, _class_of(probe.tags[tag])) for (place, _), tag in zip(known, tags, strict=True)]


def _class_of(tag: str) -> int:
    return WORD_CLASSES["content" if tag.split("/")[0] in CONTENT else "function"]

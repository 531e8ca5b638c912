"""Help to tell words that should decide from words that should not: which part of speech a suspect word is."""

import re

import pandas
import torch

from mtlib.contexts import forked_random_state
from mtlib.paths import MINI_MODEL_DIR, MINI_POS_DIR
from mtlib.plm import SharedPLM
from mtlib.policies.pos_probe import PosProbe, Span

_THINGS = ("PROPN", "NOUN")


def nouns_first(words: pandas.DataFrame) -> pandas.DataFrame:
    """A table of `mtlib.suspects` with `part_of_speech`, names and nouns first, each kind in its order.

    Opinions are mostly adjectives, adverbs and verbs; topics, brands and people are nouns. That is help, no verdict: on
    the testbed 96 % of the first 50 words are topics and makers, the planted shortcut, where the order of z has 84 %.
    English, by the bundled probe, as the word stands in its example.
    """
    with forked_random_state(torch.device("cpu")):  # its classifier, which is not used, draws random weights
        mini = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2).eval()
    probe = PosProbe.load(MINI_POS_DIR, mini.trunk, mini.tokenizer)
    examples = [_around(line.word, line.example) for line in words.itertuples()]
    tags = probe.tag([text for text, _ in examples], [place for _, place in examples])
    tagged = words.assign(part_of_speech=[tag.partition("/")[0] for tag in tags])
    order = (~tagged["part_of_speech"].isin(_THINGS)).argsort(kind="stable")
    return tagged.iloc[order].reset_index(drop=True)


def _around(word: str, text: str, most: int = 300) -> tuple[str, Span]:
    """The part of a text in which the word stands, and its place there."""
    found = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) or re.search(re.escape(word), text, re.I)
    begin = max(0, found.start() - most)
    return text[begin : found.end() + most], Span(found.start() - begin, found.end() - begin)

"""Help to tell words that should decide from words that should not: which part of speech a suspect word is."""

import re

import pandas

from mtlib.policies.pos_probe import PosProbe

_THINGS = ("PROPN", "NOUN")
_AROUND = 300  # characters of the example that the probe reads on either side


def nouns_first(words: pandas.DataFrame) -> pandas.DataFrame:
    """A table of `mtlib.suspects` with `part_of_speech`, names and nouns first, each kind in its order.

    Opinions are mostly adjectives, adverbs and verbs; topics, brands and people are nouns. That is help, no verdict: on
    the testbed 96 % of the first 50 words are topics and makers, the planted shortcut, where the order of z has 84 %.
    English, by the bundled probe, as the word stands in its example.
    """
    texts, places = [], []
    for line in words.itertuples():
        word, example = re.escape(line.word), line.example
        found = re.search(rf"(?<!\w){word}(?!\w)", example, re.IGNORECASE) or re.search(word, example, re.IGNORECASE)
        begin = max(0, found.start() - _AROUND)
        texts.append(example[begin : found.end() + _AROUND])
        places.append([(found.start() - begin, found.end() - begin)])
    tagged = words.assign(part_of_speech=[tag.partition("/")[0] for (tag,) in PosProbe.bundled().tag(texts, places)])
    order = (~tagged["part_of_speech"].isin(_THINGS)).argsort(kind="stable")
    return tagged.iloc[order].reset_index(drop=True)

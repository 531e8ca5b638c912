"""Whether a changed sentence of the testbed still has its label, decided by the rules that wrote it.

A sentence of the task sentiment has label y if its template could have written it for y: the words outside the slots
are the template's, and each slot of opinion holds words of the side that y asks for. What stands in the other slots
(topics, names, places) does not matter.
"""

import re
from functools import cache
from itertools import product

from mtlib.testbed.grammar import OPTION, SIDES, SLOT, Grammar, Template, load_grammar
from mtlib.testbed.known_words import opinions

_WORD = re.compile(r"[a-z0-9]+")  # a tokenizer may part "first-rate"
_ANYTHING = r"(?:\w+ )+?"


def label_by_rules(text: str, template: str) -> int | None:
    """The label for which this template of sentiment.yaml could have written `text`; None: for neither.

    Upper case, punctuation and "a" or "an" do not matter. None means that the rules do not decide: a word of the
    template is gone, or a slot of opinion holds a word that the grammar does not know or of the wrong side.

    Raises:
        UserError: the grammar has no such template.
    """
    words = "".join(word + " " for word in _WORD.findall(text.lower()))
    for label in (0, 1):
        if _sentences(template, label).fullmatch(words):
            return label
    return None


@cache
def _sentences(template_id: str, label: int) -> re.Pattern:
    """All that a template writes for a label, as words each followed by a space."""
    grammar = load_grammar("sentiment")
    readings = (_reading(grammar, text, label) for text in _without_options(grammar.template(template_id)))
    return re.compile("|".join(readings))


def _without_options(template: Template) -> list[str]:
    """The template's text, once for every choice among its options."""
    parts = [part.split("|") if place % 2 else [part] for place, part in enumerate(OPTION.split(template.text))]
    return [" ".join(choice) for choice in product(*parts)]


def _reading(grammar: Grammar, text: str, label: int) -> str:
    pattern, end = "", 0
    for slot in SLOT.finditer(text):
        pattern += _literally(text[end : slot.start()])
        sign, _, category, forms = slot.groups()
        if sign in ("+", "-"):
            phrases = opinions(grammar, category, forms, SIDES[label if sign == "+" else 1 - label])
            pattern += f"(?:{'|'.join(sorted(map(_literally, phrases)))})"
        else:
            pattern += _ANYTHING
        end = slot.end()
    return pattern + _literally(text[end:])


def _literally(text: str) -> str:
    return "".join("an? " if word == "a" else f"{word} " for word in _WORD.findall(text.lower()))

"""Which words of a testbed sentence carry the shortcut, and which decide its label.

                 shortcut                                             cause
    sentiment    topics and makers, all words of a name               the words of opinion
    nli          negations of the hypothesis, words that both share   words that one of the two lacks, but no negation
    paraphrase   words that both questions share                      words that one of the two lacks

In a pair the shortcut lies in how many words the two share. The marks take away all that `shortcut_label` reads; how
many words are left still shows. The words of opinion stand in a template's slots with a + or - sign.
"""

import re
from functools import cache
from itertools import product

from mtlib.errors import UserError
from mtlib.marking import Spans, words_pattern
from mtlib.testbed.generator import SPECS
from mtlib.testbed.grammar import SIDES, SLOT, WORD, Grammar, inflect, load_grammar, tokens


def shortcut_spans(grammar: Grammar, text: str, text_pair: str | None = None) -> tuple[Spans, Spans]:
    """The characters that carry the shortcut, in each text."""
    if grammar.task == "sentiment":
        return _found(_shortcut_pattern(grammar.task), text), []
    shared = {*tokens(text)} & {*tokens(text_pair or "")}
    return _words(text, shared), _words(text_pair or "", shared | {*grammar.shortcut.get("negation", ())})


def cause_spans(grammar: Grammar, text: str, text_pair: str | None = None, template: str = "") -> tuple[Spans, Spans]:
    """The characters that decide the label, in each text. `template` is the one that a sentiment was written by."""
    if grammar.task == "sentiment":
        return _found(_cause_pattern(grammar.task, template), text), []
    first, second = {*tokens(text)}, {*tokens(text_pair or "")}
    negations = {*grammar.shortcut.get("negation", ())}
    return _words(text, first - second), _words(text_pair or "", second - first - negations)


def grammar_of(uid: str | None) -> Grammar:
    """The grammar that wrote the row of that uid.

    Raises:
        UserError: it is no row of a training set of the testbed.
    """
    if not of_testbed(uid):
        raise UserError(f"the words of the testbed's training sets alone are known, and {uid!r} is no row of them.")
    return load_grammar(SPECS[_set_of(uid)].task)


def of_testbed(uid: str | None) -> bool:
    """Whether a row is one of a training set of the testbed."""
    return _set_of(uid) in SPECS and _set_of(uid).endswith("_train")


def _set_of(uid: str | None) -> str:
    return f"testbed_{(uid or '').rpartition('-')[0]}"


def _words(text: str, wanted: set[str]) -> Spans:
    return [match.span() for match in re.finditer(WORD, text, re.IGNORECASE) if match[0].lower() in wanted]


def _found(pattern: re.Pattern, text: str) -> Spans:
    return [match.span() for match in pattern.finditer(text)]


@cache
def _shortcut_pattern(task: str) -> re.Pattern:
    """Topics and makers. The article before one goes with it, since "an" tells which words may follow."""
    grammar = load_grammar(task)
    of_sides = product(grammar.shortcut["words"], SIDES)
    entries = {entry.columns[0] for category, side in of_sides for entry in grammar.all_entries(category, side)}
    return re.compile(rf"\b(?:an? )?{words_pattern(entries).pattern}", re.IGNORECASE)


@cache
def _cause_pattern(task: str, template_id: str) -> re.Pattern:
    """Whatever may stand in the template's slots of opinion."""
    grammar = load_grammar(task)
    phrases = set()
    for sign, _, category, forms in SLOT.findall(grammar.template(template_id).text):
        if sign in ("+", "-"):
            phrases |= {phrase for side in SIDES for phrase in opinions(grammar, category, forms, side)}
    return words_pattern(phrases)


def opinions(grammar: Grammar, category: str, forms: str, side: str) -> set[str]:
    """All that may stand in a slot of opinion `{+category.form}` whose words are of that side."""
    phrases = set()
    for entry in grammar.all_entries(category, side):
        slot = SLOT.fullmatch(entry.columns[0])
        own = opinions(grammar, slot[3], "", side) if slot else {entry.columns[0]}
        for form in forms.split(".")[1:]:
            own = {inflect(phrase, form, grammar.forms) for phrase in own}
        phrases |= own
    return phrases

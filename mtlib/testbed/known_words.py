"""Which words of a testbed sentence carry the shortcut, and which decide its label.

                 shortcut                               cause
    sentiment    topics and makers, all words of a      the words of opinion
                 name
    nli          negations of the hypothesis, words     words that only one of the two has, except
                 that both texts share                  negations
    paraphrase   words that both questions share        words that only one of the two has

In a pair the shortcut is how many words the two texts share. The marked words are all that
`shortcut_label` reads, but the number of words that are left still gives the shortcut away. The
words of opinion fill the slots of a template that have a + or - sign.
"""

import re
from functools import cache

from mtlib.errors import UserError
from mtlib.rows.folding import words_pattern
from mtlib.spans import Spans
from mtlib.testbed.generator import SPECS
from mtlib.testbed.grammar import SIDES, SLOT, WORD, Grammar, inflect, load_grammar, tokens


def shortcut_spans(
    grammar: Grammar,
    text: str,
    text_pair: str | None = None,
) -> tuple[Spans, Spans]:
    """The characters that carry the shortcut, in each text."""
    if grammar.task == "sentiment":
        return _found(_shortcut_pattern(grammar.task), text), []
    text_pair = text_pair or ""
    shared = set(tokens(text)) & set(tokens(text_pair))
    return _words(text, shared), _words(text_pair, shared | _negations(grammar))


def cause_spans(
    grammar: Grammar,
    text: str,
    text_pair: str | None = None,
    template: str = "",
) -> tuple[Spans, Spans]:
    """The characters that decide the label, in each text.

    `template` is the id of the template that a sentiment row was written from.
    """
    if grammar.task == "sentiment":
        return _found(_cause_pattern(grammar.task, template), text), []
    text_pair = text_pair or ""
    words = set(tokens(text))
    pair_words = set(tokens(text_pair))
    only_in_pair = pair_words - words - _negations(grammar)
    return _words(text, words - pair_words), _words(text_pair, only_in_pair)


def grammar_of(uid: str | None) -> Grammar:
    """The grammar that wrote the row with this uid.

    Raises:
        UserError: the row is not from a training set of the testbed.
    """
    if not is_of_testbed(uid):
        raise UserError(
            f"{uid!r} is no row of a training set of the testbed; which words carry the shortcut "
            "and which decide the label is known only for these."
        )
    return load_grammar(SPECS[_set_of(uid)].task)


def is_of_testbed(uid: str | None) -> bool:
    """Whether a row is from a training set of the testbed."""
    name = _set_of(uid)
    return name in SPECS and name.endswith("_train")


def _set_of(uid: str | None) -> str:
    short_name = (uid or "").rpartition("-")[0]
    return f"testbed_{short_name}"


def _negations(grammar: Grammar) -> set[str]:
    return set(grammar.shortcut.get("negation", ()))


def _words(text: str, wanted: set[str]) -> Spans:
    words = re.finditer(WORD, text, re.IGNORECASE)
    return [match.span() for match in words if match[0].lower() in wanted]


def _found(pattern: re.Pattern, text: str) -> Spans:
    return [match.span() for match in pattern.finditer(text)]


@cache
def _shortcut_pattern(task: str) -> re.Pattern:
    """Topics and makers, with the article before them: "an" tells which words may follow."""
    grammar = load_grammar(task)
    phrases = set()
    for category in grammar.shortcut["words"]:
        for side in SIDES:
            phrases |= {entry.columns[0] for entry in grammar.all_entries(category, side)}
    return re.compile(rf"\b(?:an? )?{words_pattern(phrases).pattern}", re.IGNORECASE)


@cache
def _cause_pattern(task: str, template_id: str) -> re.Pattern:
    """All that may fill the opinion slots of a template."""
    grammar = load_grammar(task)
    phrases = set()
    for sign, _, category, forms in SLOT.findall(grammar.template(template_id).text):
        if sign in ("+", "-"):
            for side in SIDES:
                phrases |= opinions(grammar, category, forms, side)
    return words_pattern(phrases)


def opinions(grammar: Grammar, category: str, forms: str, side: str) -> set[str]:
    """All phrases of one side that may fill the opinion slot `{+category.form}`."""
    phrases = set()
    for entry in grammar.all_entries(category, side):
        slot = SLOT.fullmatch(entry.columns[0])
        if slot:
            phrases |= opinions(grammar, slot[3], "", side)
        else:
            phrases.add(entry.columns[0])
    for form in forms.split(".")[1:]:
        phrases = {inflect(phrase, form, grammar.forms) for phrase in phrases}
    return phrases

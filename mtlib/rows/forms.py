"""What stands in texts beside words: addresses, numbers, prices, signs, runs of punctuation.

All patterns are for folded text (`mtlib.rows.folding`). A form has names, from the special to the
general: an address has its own, that of its site, and `<address>`. Each name can be given where
words are: it then stands for every form of that name, as a whole.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from mtlib.errors import UserError

# what can be listed as a suspect; the first is what a plain list of words has
KINDS = ("word", "phrase", "address", "number", "emoji", "punctuation", "capitals", "length")
NOT_HIDDEN = ("capitals", "length")
CAPITALS = "<capitals>"
# the names of the most general forms
CLASSES = ("<address>", "<handle>", "<hashtag>", "<number>", "<price>", "<emoji>")

_LAST = r"[^\s.,;:!?'\"()\[\]{}<>]"  # with which an address may end
_REST = rf"[^\s<>\"]*{_LAST}"
_HOST = r"(?<![\w@.-])(?:[a-z0-9-]+\.)+"
_TOP = "com|org|net|edu|gov|info|biz|io|example"
_ADDRESS = (
    rf"(?:https?://|www\.){_REST}"
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    rf"|{_HOST}[a-z]{{2,}}/{_REST}"
    rf"|{_HOST}(?:{_TOP})(?![\w-])"
)
_HANDLE = r"(?<![\w@])@\w+"
_HASHTAG = r"(?<![\w#&])#\w+"
_DIGITS = r"\d+(?:[.,:]\d+)*"
_PRICE = rf"[$€£¥]\s?{_DIGITS}(?!\w)|(?<!\w){_DIGITS}\s?[€£¥]"
_NUMBER = rf"(?<!\w){_DIGITS}(?:%|(?!\w|['-]\w))"
_EMOTICON = r"[:;=][-']?[()\[\]dp/\\|*](?![\w/])"
_RUN = r"[!?.,;:…*~=_-]{2,}|[!?]"


# emoji, currencies, arrows, mathematics and other symbols
_SIGNS = (
    r"$+<=>^`|~%&*@#/\\\u00a2-\u00a9\u00ac\u00ae-\u00b1\u00b4\u00b6\u00d7\u00f7\u20a0-\u20cf"
    r"\u2116\u2122\u2190-\u23ff\u2500-\u27bf\u2900-\u2bff\U0001f000-\U0001faff"
)
_SIGN = rf"[{_SIGNS}][\U0001f3fb-\U0001f3ff]?"
# by kind: the forms that it has, with the name of their class
_FORMS = {
    "address": (("<address>", _ADDRESS), ("<handle>", _HANDLE), ("<hashtag>", _HASHTAG)),
    "number": (("<price>", _PRICE), ("<number>", _NUMBER)),
    "emoji": (("<emoji>", _EMOTICON),),
    "punctuation": (("", _RUN),),
}
_PATTERNS = {
    kind: [(name, re.compile(pattern)) for name, pattern in forms] for kind, forms in _FORMS.items()
}
_FIRST_EMOJI = "\u2600"  # signs below are arrows, currencies, mathematics
_is_sign = re.compile(_SIGN).fullmatch
# a quick look for texts that may have an address, a handle or a hashtag
may_have_address = re.compile(rf"[@#/]|www\.|\.(?:{_TOP})\b").search
_SCHEME = re.compile(r"(?:https?://)?(?:www\.)?")
_SITE = re.compile(r"[^/?#:]+")
_SITE_NAME = re.compile(r"(?:[a-z0-9-]+\.)+[a-z]{2,}")
_NO_TEXT = re.compile(rf"{CAPITALS}|<at (?:most|least) [\d,]+ words>")


def pattern_of(kinds: Iterable[str]) -> str:
    """A pattern for the forms of these kinds; "" for kinds that have none."""
    patterns = [pattern for kind in kinds for _, pattern in _FORMS.get(kind, ())]
    if "emoji" in kinds:
        patterns.append(_SIGN)  # last: a run of signs is punctuation
    return "|".join(patterns)


class Form(NamedTuple):
    """What a form is: its kind, and its names from the special to the general."""

    kind: str
    names: tuple[str, ...]


def form_of(text: str, kinds: Iterable[str] = KINDS) -> Form | None:
    """What a folded text is as a whole; None if it is no form of these kinds."""
    for kind in kinds:
        for general, pattern in _PATTERNS.get(kind, ()):
            if pattern.fullmatch(text):
                names = [*_own_names(text, general), general]
                return Form(kind, tuple(filter(None, dict.fromkeys(names))))
    if "emoji" in kinds and _is_sign(text):
        is_emoji = text >= _FIRST_EMOJI
        return Form("emoji", (text, "<emoji>") if is_emoji else (text,))
    return None


def _own_names(text: str, general: str) -> list[str]:
    if general != "<address>":
        return [" ".join(text.split())]
    address = _SCHEME.sub("", text, count=1).rstrip("/")
    site = _SITE.match(address)
    return [address, site[0]] if site and "@" not in address else [address]


def address_form(name: str) -> str:
    """Which of the forms an address's name is: handle, hashtag, mail, page or site."""
    if name.startswith("@"):
        return "handle"
    if name.startswith("#"):
        return "hashtag"
    if "@" in name:
        return "mail"
    return "page" if "/" in name or "?" in name else "site"


def name_of(word: str) -> str:
    """The name that a given word, folded, has in texts: an address goes without `https://`."""
    form = form_of(word)
    return form.names[0] if form else word


def kind_of(name: str) -> str:
    """The kind of a name that a suspect has."""
    if _NO_TEXT.fullmatch(name):
        return "capitals" if name == CAPITALS else "length"
    for kind, forms in _FORMS.items():
        if name and name in [general for general, _ in forms]:
            return kind
    form = form_of(name)
    if form is not None:
        return form.kind
    if may_be_site(name):
        return "address"
    return "phrase" if " " in name else "word"


# --- given forms ---

_SEARCHED = tuple(kind for kind in _FORMS if kind != "number"), ("number",)
_ANY_FORM = [re.compile(pattern_of(kinds)) for kinds in _SEARCHED]


def is_form(name: str) -> bool:
    """Whether a given word is the name of a form, and so stands for whole forms.

    Plain numbers are words, which are found in other numbers too.

    Raises:
        UserError: it stands for capitals or length, which are no part of a text.
    """
    if _NO_TEXT.fullmatch(name):
        raise UserError(
            f"the words have {name!r}, which stands for no part of a text and cannot be hidden; "
            "leave it out."
        )
    if name in CLASSES:
        return True
    form = form_of(name)
    return form is not None and "<number>" not in form.names


def may_be_site(name: str) -> bool:
    """Whether a given word could be the site of an address, as "bit.ly" is and "node.js" too."""
    return _SITE_NAME.fullmatch(name) is not None


def forms_in(text: str, wanted: set[str]) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Where a folded text has forms of the wanted names, and these names; none overlap."""
    end = 0
    found = []
    for pattern in _ANY_FORM:
        for match in pattern.finditer(text):
            form = form_of(match[0])
            names = [name for name in form.names if name in wanted] if form else []
            if names:
                found.append((match.start(), match.end(), tuple(names)))
    for place in sorted(found):
        if place[0] >= end:
            end = place[1]
            yield place

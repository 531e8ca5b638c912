"""Words of a text exchanged for others, in their case; all else of the text stays."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mtlib.rows.folding import Finder, Found, folded_word
from mtlib.rows.forms import address_form

Texts = tuple[str, ...]  # of a row: its text, or a pair of texts
EITHER = "either"  # where a given word is exchanged that predicts nothing
_IN_CASE = ("word", "phrase")  # kinds that are written in the case of what they replace
_IN_COLUMNS = {"text": (0,), "text_pair": (1,), "both": (0, 1), EITHER: (0, 1)}


@dataclass(frozen=True)
class Suspect:
    """A word that is exchanged, or that others are exchanged for.

    Args:
        word: as it is shown.
        kind: words are exchanged for others of their kind.
        where: the texts of a pair in which it is exchanged; "either": wherever it stands.
        labels: those that it predicts, the surest first; none for a word that predicts nothing.
        asked: whether it gets a line.
        marked: as misleading, by a person.
    """

    word: str
    kind: str = "word"
    where: str = "text"
    labels: tuple[str, ...] = ()
    asked: bool = False
    marked: bool = False

    @property
    def folded(self) -> str:
        return folded_word(self.word)

    @property
    def label(self) -> str:
        return self.labels[0] if self.labels else ""

    @property
    def form(self) -> str:
        """What sort of address it is; "" for all else."""
        return address_form(self.folded) if self.kind == "address" else ""

    @property
    def is_class(self) -> bool:
        """Whether it stands for all of a kind, as `<price>` does, and so for no text."""
        return self.word.startswith("<") and self.word.endswith(">")

    def places(self, text: str, finder: Finder) -> Iterator[Found]:
        """Where it stands.

        `finder` finds it and other words, and of words that overlap the longest alone.
        """
        if self.kind not in _IN_CASE:  # forms overlap, so each is looked for alone
            finder = Finder([self.word])
        return (place for place in finder.places(text) if place.folded == self.folded)


def columns_of(suspect: Suspect, texts: Texts) -> tuple[int, ...]:
    """The texts of a row in which it is exchanged; of a row with a single text that one."""
    columns = _IN_COLUMNS[suspect.where]
    return columns if max(columns) < len(texts) else (0,)


class Place(NamedTuple):
    """A place in the texts of a row: in which text, and its characters there."""

    column: int
    start: int
    end: int


def places_of(suspect: Suspect, texts: Texts, finder: Finder) -> list[Place]:
    """Where in the texts of a row it is exchanged."""
    return [
        Place(column, found.start, found.end)
        for column in columns_of(suspect, texts)
        for found in suspect.places(texts[column], finder)
    ]


def exchanged(texts: Texts, suspect: Suspect, partner: Suspect, finder: Finder) -> Texts:
    """The texts with a partner in each place of a suspect, in its case; all else stays."""
    columns = columns_of(suspect, texts)
    return tuple(
        _replaced(text, suspect, partner, finder) if column in columns else text
        for column, text in enumerate(texts)
    )


def _replaced(text: str, suspect: Suspect, partner: Suspect, finder: Finder) -> str:
    pieces = []
    end = 0
    for place in suspect.places(text, finder):
        written = text[place.start : place.end]
        pieces += [text[end : place.start], _in_place_of(written, suspect, partner)]
        end = place.end
    return "".join([*pieces, text[end:]])


def _in_place_of(written: str, suspect: Suspect, partner: Suspect) -> str:
    """The partner as it stands in place of the suspect.

    Of an address stays what is written around the name: `https://`, and the page of a site.
    """
    name = re.search(re.escape(suspect.folded), written, re.IGNORECASE)
    if name and suspect.form and suspect.form == partner.form:
        return written[: name.start()] + partner.folded + written[name.end() :]
    return in_case_of(written, partner)


def in_case_of(written: str, partner: Suspect) -> str:
    """A partner in the case in which the suspect is written: CAPITALS, Title Case or Capitalised.

    Addresses, numbers and signs stay as they are.
    """
    if partner.kind not in _IN_CASE:
        return partner.word
    if written.isupper() and len(written) > 1:
        return partner.word.upper()
    if written.istitle():
        return " ".join(_capitalised(word) for word in partner.word.split(" "))
    return _capitalised(partner.word) if written[:1].isupper() else partner.word


def _capitalised(word: str) -> str:
    return word[:1].upper() + word[1:]

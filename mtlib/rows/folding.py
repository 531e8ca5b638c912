"""When two words are the same, and where words stand in a text.

Words are found, hidden and compared in folded text: Unicode normalised (NFC), without invisible
signs, in one case, with one kind of apostrophe and of hyphen. A letter and its combining marks
(vowel signs, points, accents) stay together.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from mtlib.errors import UserError
from mtlib.rows.forms import forms_in, is_form, may_be_site, name_of

# scripts written without spaces: Thai, Lao, Tibetan, Burmese, Khmer, hiragana, Chinese characters
# and their punctuation
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3001-\u309f\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
# signs that Unicode lets programs ignore: soft hyphen, zero-width space and joiners, directions,
# variation selectors
INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# as they stand in don't, the Ukrainian and the Hebrew one
_APOSTROPHES = "\u2018\u2019\u201b\u02bc\u05f3"
_HYPHENS = "\u2010\u2011"
_WIDE = "\uff01-\uff5e\uff65-\uff9f"  # full-width Latin letters and signs, half-width katakana
_INVISIBLE = re.compile(f"[{INVISIBLE}]")
_PLAIN = dict.fromkeys(map(ord, _APOSTROPHES), "'") | dict.fromkeys(map(ord, _HYPHENS), "-")
_WIDE_SIGN = re.compile(f"[{_WIDE}]")
_DOTTED_I = re.compile("i\u0307+")
_LAST = 0x1F000  # there are no combining marks above, but for variation selectors


def _ranges(numbers: Iterable[int]) -> str:
    """These characters as the inside of a character class."""
    runs = groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
    spans = [[number for _, number in run] for _, run in runs]
    return "".join(f"{chr(span[0])}-{chr(span[-1])}" for span in spans)


_MARK_NUMBERS = [
    number for number in range(0x300, _LAST) if unicodedata.category(chr(number))[0] == "M"
]
is_unspaced = re.compile(f"[{UNSPACED}]").match
_BESIDE_UNSPACED = re.compile(f" (?=[{UNSPACED}])|(?<=[{UNSPACED}]) ")
_MARKS = _ranges(_MARK_NUMBERS)
_SPACED_MARKS = _ranges(number for number in _MARK_NUMBERS if not is_unspaced(chr(number)))
LETTER = rf"[^\W_{UNSPACED}]"  # one that forms words with its neighbours
# what is folded together with the character before it: marks, invisible signs, Korean vowels and
# finals, voiced marks
_CLUSTER = re.compile(rf"(?s:.)[{_MARKS}{INVISIBLE}\u1160-\u11ff\ud7b0-\ud7fb\uff9e\uff9f]*")


def fold(text: str, match_case: bool = False) -> str:
    """The text in the one form in which words are compared.

    All four Turkish letters i are one, since a capital I is the same sign in Turkish and in
    English. Full-width letters are ordinary ones, and the German sharp s is ss.

    Args:
        text: any text.
        match_case: keep the case.
    """
    if text.isascii():
        return text if match_case else text.lower()
    text = unicodedata.normalize("NFC", text)
    if not match_case:
        text = text.casefold()
    text = _WIDE_SIGN.sub(_narrow, _INVISIBLE.sub("", text).translate(_PLAIN))
    text = unicodedata.normalize("NFC", text)
    return text if match_case else _DOTTED_I.sub("i", text.replace("ı", "i"))


def folded_word(word: str) -> str:
    """A word, phrase or form as it is compared: folded, with single spaces, by its name."""
    return name_of(_spaced(fold(word)))


def _spaced(folded: str) -> str:
    """With single spaces, and none beside a sign of a script that is written without."""
    return _BESIDE_UNSPACED.sub("", " ".join(folded.split()))


def spelling(text: str) -> str:
    """A word as it is shown: as it is written, in lower case and without invisible signs."""
    shown = fold(text, match_case=True).lower()
    return " ".join(_DOTTED_I.sub("i", shown).split())


def _narrow(sign: re.Match) -> str:
    return unicodedata.normalize("NFKC", sign[0])


# --- words ---

ASCII_WORD = re.compile(r"[a-z0-9]+(?:['-][a-z0-9]+)*")
_RUN = rf"{LETTER}+(?:[{_MARKS}]+{LETTER}*)*"
ANY_WORD = re.compile(rf"{_RUN}(?:['\-\u05f4]{_RUN})*|(?=\w)[{UNSPACED}][{_MARKS}]*")
# in texts as they stand: "don't" and "well-made" are one word, and so is a run of Chinese
# characters
_INSIDE = rf"\w[\w{_MARKS}{INVISIBLE}]*"
WORD = re.compile(rf"{_INSIDE}(?:['’-]{_INSIDE})*")


def words_of(text: str) -> set[str]:
    """The words of a text, folded.

    They are runs of letters and digits with the apostrophes and hyphens inside them. In scripts
    without spaces every sign counts as a word.
    """
    folded = fold(text)
    return set((ASCII_WORD if folded.isascii() else ANY_WORD).findall(folded))


class Found(NamedTuple):
    """A word or phrase in a text: its characters there, and how it is compared."""

    start: int
    end: int
    folded: str


class Finder:
    """Finds words in texts, whichever way they are written there.

    An address, a handle, a price, an emoji and other forms (`mtlib.rows.forms`) are found as a
    whole: "shop.example" is found in "https://shop.example/a", which is then the place, and
    `<price>` is any price. "bit.ly" is found as a word, and as the site of an address.

    Args:
        words: words, phrases and forms; None: every word.

    Raises:
        UserError: a word that is no text, or an empty one, or one that stands for capitals or
            length.
    """

    def __init__(self, words: str | Iterable[str] | None = None):
        self._forms: set[str] = set()
        if words is None:
            self.pattern = ANY_WORD
        else:
            given = _folded(words)
            forms = {word for word in given if is_form(word)}
            names = {name_of(form) for form in forms}
            words = given - forms
            sites = {name for name in words | names if may_be_site(name)}
            self._forms = names | sites
            words |= {name for name in names | sites if not is_form(name)}
            self.pattern = words_pattern(words)

    def found(self, text: str) -> set[str]:
        """Which of the words stand in a text, folded."""
        if self.pattern is ANY_WORD:
            return words_of(text)
        return {name for _, _, names in self._matches(text) for name in names}

    def places(self, text: str) -> list[Found]:
        """Where the words stand in a text, in reading order."""
        matches = list(self._matches(text))
        if not matches:
            return []
        starts, ends = _positions(text)
        return [Found(starts[start], ends[end - 1], names[0]) for start, end, names in matches]

    def _matches(self, text: str) -> list[tuple[int, int, tuple[str, ...]]]:
        """Where the words stand in the folded text, and which words a place has."""
        folded = fold(text)
        words = [
            (match.start(), match.end(), (_spaced(match[0]),))
            for match in self.pattern.finditer(folded)
        ]
        if not self._forms:
            return words
        forms = list(forms_in(folded, self._forms))
        within = {position for start, end, _ in forms for position in range(start, end)}
        outside = [word for word in words if within.isdisjoint(range(word[0], word[1]))]
        return sorted([*forms, *outside])


def _positions(text: str) -> tuple[Sequence[int], Sequence[int]]:
    """Where that begins and ends in the text from which each character of the folded text comes."""
    if text.isascii():
        return range(len(text)), range(1, len(text) + 1)
    starts: list[int] = []
    ends: list[int] = []
    for cluster in _CLUSTER.finditer(text):
        n = len(fold(cluster[0]))
        starts += [cluster.start()] * n
        ends += [cluster.end()] * n
    return starts, ends


def phrases_of(words: str | Iterable[str]) -> list[str]:
    """The words and phrases that somebody gave, with single spaces.

    Raises:
        UserError: no text, or an empty one.
    """
    words = [words] if isinstance(words, str) else words
    if not isinstance(words, Iterable):
        raise UserError(
            f"words is {words!r}; expected words and phrases, such as ['horror', 'new york']."
        )
    phrases = []
    for word in words:
        phrase = " ".join(word.split()) if isinstance(word, str) else ""
        if not fold(phrase).strip():
            raise UserError(
                f"words has {word!r}; expected words and phrases. pandas reads the words "
                '"null" and "nan" as missing unless read_csv has keep_default_na=False.'
            )
        phrases.append(phrase)
    return phrases


def words_pattern(words: str | Iterable[str]) -> re.Pattern:
    """A pattern for any of the phrases as whole words in folded text, the longest first."""
    # a mark belongs to the letter before it
    begins = f"(?:(?<!{LETTER})(?<![{_SPACED_MARKS}])|(?!{LETTER}))"
    ends = f"(?![{_MARKS}]){begins}"
    any_of = _any_of(_folded(words))
    return re.compile(f"{begins}{any_of}{ends}", re.IGNORECASE)


def _folded(words: str | Iterable[str]) -> set[str]:
    return {_spaced(fold(phrase)) for phrase in phrases_of(words)}


def _as_written(word: str) -> str:
    """A pattern for it: beside a sign of a script without spaces there may be some."""
    if word.isascii():
        return re.escape(word)
    pieces = [re.escape(word[0])]
    for before, sign in pairwise(word):
        if is_unspaced(before) or is_unspaced(sign):
            pieces.append(r"\s*")
        pieces.append(re.escape(sign))
    return "".join(pieces)


def _any_of(folded: Iterable[str]) -> str:
    ordered = sorted(folded, key=lambda phrase: (-len(phrase), phrase))
    choices = "|".join(r"\s+".join(map(_as_written, phrase.split())) for phrase in ordered)
    # apostrophes are plain in folded text alone; of no words nothing is found
    return f"(?:{choices})".replace("'", "['’]") if choices else "(?!)"

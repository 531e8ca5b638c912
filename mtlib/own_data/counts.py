"""In how many rows, and with which labels, stands what may be a suspect.

Texts are kept as numbers, four bytes a word. Phrases are made only of what stands in enough rows.
"""

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.sparse import csc_array, hstack

from mtlib.rows.folding import ANY_WORD, ASCII_WORD, Finder, fold, is_unspaced
from mtlib.rows.forms import CAPITALS, form_of, kind_of, may_have_address, pattern_of

_BREAK = 0  # the number of what ends a phrase
_NONE = -1
_BASE = 2**32  # above all numbers that make a key
_CAPITALS = re.compile(r"[^\W\d_]{3,}")
_IN_PHRASES = ("word", "number")


# --- reading ---


class Names:
    """Numbers for the names of what stands in texts.

    Args:
        kinds: what is told apart, of `mtlib.rows.forms.KINDS`.
    """

    def __init__(self, kinds: Sequence[str] = ()):
        self.names = [""]  # 0 is what ends a phrase
        self.kinds = [""]
        self.general: dict[int, list[int]] = {}  # the more general names of a form
        self._forms = kinds
        self._numbers: dict[str, int] = {}
        self._tokens: dict[str, int] = {}

    def number(self, name: str, kind: str) -> int:
        """The number of a name, a new one where it is new."""
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
            self.kinds.append(kind)
        return self._numbers[name]

    def of_token(self, token: str) -> int:
        """The number of the most special name of a piece of a folded text."""
        number = self._tokens.get(token)
        if number is None:
            number = self._tokens[token] = self._new(token)
        return number

    def _new(self, token: str) -> int:
        form = form_of(token, self._forms)
        if form is not None:
            numbers = [self.number(name, form.kind) for name in form.names]
            for position, number in enumerate(numbers[:-1], 1):
                self.general[number] = numbers[position:]
            return numbers[0]
        is_word = (ASCII_WORD if token.isascii() else ANY_WORD).fullmatch(token)
        return self.number(token, "word") if is_word else _BREAK


class Reader:
    """Reads a text as numbers of names: first in reading order, then the more general ones.

    Args:
        kinds: of `mtlib.rows.forms.KINDS`. What none of them claims is read as words, so an
            address is cut into words unless addresses are asked for.
    """

    def __init__(self, kinds: Sequence[str]):
        self.kinds = kinds
        self.names = Names(kinds)
        self._sees_phrases = "phrase" in kinds
        self._sees_capitals = "capitals" in kinds
        self._sees_addresses = "address" in kinds
        self._patterns = self._compiled(kinds)
        self._without_addresses = self._compiled([kind for kind in kinds if kind != "address"])

    def _compiled(self, kinds: Sequence[str]) -> tuple[re.Pattern, re.Pattern]:
        """What a text is cut into: for texts in ASCII, and for all."""
        ends_phrase = r"[^\s\w]|_" if self._sees_phrases else ""
        both = []
        for word in (ASCII_WORD, ANY_WORD):
            choices = filter(None, (pattern_of(kinds), word.pattern, ends_phrase))
            both.append(re.compile("|".join(choices)))
        return both[0], both[1]

    def __call__(self, text: str) -> list[int]:
        folded = fold(text)
        pattern = self._pattern_for(folded)
        numbers = [self.names.of_token(token) for token in pattern.findall(folded)]
        more = self._more(numbers, text)
        return [*numbers, _BREAK, *more, _BREAK] if more else [*numbers, _BREAK]

    def _pattern_for(self, folded: str) -> re.Pattern:
        patterns = self._without_addresses
        if self._sees_addresses and may_have_address(folded):
            patterns = self._patterns
        return patterns[0] if folded.isascii() else patterns[1]

    def _more(self, numbers: list[int], text: str) -> list[int]:
        """The more general names, and capitals."""
        general = self.names.general
        more = [other for number in numbers if number in general for other in general[number]]
        if self._sees_capitals and _has_capitals(text):
            more.append(self.names.number(CAPITALS, "capitals"))
        return more


class FinderReader:
    """Reads which of the given words stand in a text, as numbers of names."""

    kinds = ()  # no phrases are made of them

    def __init__(self, finder: Finder):
        self.names = Names()
        self._finder = finder

    def __call__(self, text: str) -> list[int]:
        found = self._finder.found(text)
        return [self.names.number(name, kind_of(name)) for name in found]


def _has_capitals(text: str) -> bool:
    return any(match[0].isupper() for match in _CAPITALS.finditer(text))


@dataclass
class Corpus:
    """The rows that have a label, as numbers."""

    reader: Reader | FinderReader
    labels: Counter = field(default_factory=Counter)  # rows of each
    label_numbers: array = field(default_factory=lambda: array("i"))  # of each row
    hashes: set = field(default_factory=set)  # of the texts
    columns: list["Column"] = field(default_factory=list)
    _numbers: dict = field(default_factory=dict)  # of labels

    def add(self, texts: Sequence[str], label: object) -> None:
        """Add a row."""
        if not self.columns:
            self.columns = [Column() for _ in texts]
        self.labels[label] += 1
        self.label_numbers.append(self._numbers.setdefault(label, len(self._numbers)))
        self.hashes.add(hash(texts))
        for text, column in zip(texts, self.columns, strict=True):
            numbers = self.reader(text)
            column.names.extend(numbers)
            column.n_names.append(len(numbers))
            column.lengths.append(len(text.split()))

    @property
    def n_rows(self) -> int:
        return len(self.label_numbers)

    @property
    def base_rates(self) -> np.ndarray:
        """The share of the rows that each label has, `(labels,)`."""
        return np.array([*self.labels.values()]) / self.n_rows

    @property
    def copies(self) -> int:
        """Rows whose text, or pair of texts, an earlier row has too."""
        return self.n_rows - len(self.hashes)


@dataclass
class Column:
    """The texts of a column.

    Args:
        names: their numbers, one text after the other.
        n_names: of each text.
        lengths: of each text, in words.
    """

    names: array = field(default_factory=lambda: array("i"))
    n_names: array = field(default_factory=lambda: array("i"))
    lengths: array = field(default_factory=lambda: array("i"))


# --- what stands in enough rows ---


class Features:
    """What a column of texts has in enough rows: names, lengths, phrases.

    `in_rows` says which of them stands in which row, bool `(rows, features)`, sparse.

    Args:
        column: the texts.
        names: of their numbers.
        kinds: of `mtlib.rows.forms.KINDS`.
        min_count: in so many rows.
    """

    def __init__(self, column: Column, names: Names, kinds: Sequence[str], min_count: int):
        n_rows = len(column.n_names)
        self._row_of = np.repeat(np.arange(n_rows, dtype=np.int32), column.n_names)  # (positions,)
        self._n_rows = n_rows
        self._min_count = min_count
        self.names: list[str] = []
        self.kinds: list[str] = []
        # the words of a phrase, the more general names of a form
        self.parts: list[list[int]] = []
        self._blocks: list[csc_array] = []
        words = self._add_names(np.array(column.names, dtype=np.int32), names)
        if "length" in kinds:
            self._add_lengths(np.array(column.lengths))
        if "phrase" in kinds:
            self._add_phrases(words)
        self.in_rows = hstack(self._blocks, format="csc")

    def _add(self, name: str, kind: str, parts: list[int]) -> None:
        self.names.append(name)
        self.kinds.append(kind)
        self.parts.append(parts)

    def _add_names(self, numbers: np.ndarray, names: Names) -> np.ndarray:
        """Add the names; of each position the feature that may be a part of a phrase, or -1."""
        frequent, features = self._frequent(np.where(numbers == _BREAK, _NONE, numbers))
        feature_of = {number: feature for feature, number in enumerate(frequent)}
        for number in frequent:
            general = [feature_of[other] for other in names.general.get(number, ())]
            self._add(names.names[number], names.kinds[number], general)
        is_word = [
            kind in _IN_PHRASES and not name.startswith("<")
            for name, kind in zip(self.names, self.kinds, strict=True)
        ]
        return np.where(np.array([*is_word, False])[features], features, _NONE)

    def _add_lengths(self, lengths: np.ndarray) -> None:
        shortest, longest = np.quantile(lengths, [0.1, 0.9]).astype(int)
        self._blocks.append(csc_array(np.stack([lengths <= shortest, lengths >= longest], 1)))
        self._add(f"<at most {shortest:,} words>", "length", [])
        self._add(f"<at least {longest:,} words>", "length", [])

    def _add_phrases(self, words: np.ndarray) -> None:
        """Add phrases of two and of three, from the words at each position `(positions,)`."""
        pairs, pair_at = self._frequent(_keys(words[:-1], words[1:]))
        first_pair = len(self.names)
        for left, right in _split(pairs):
            self._add(_joined(self.names[left], self.names[right]), "phrase", [left, right])
        # a phrase of three begins with a pair, and ends with another
        keys = np.where(pair_at[1:] == _NONE, _NONE, _keys(pair_at[:-1], words[2:]))
        triples, _ = self._frequent(keys)
        feature_of = {pair: first_pair + number for number, pair in enumerate(_split(pairs))}
        for number, last in _split(triples):
            begins = first_pair + number
            left, middle = self.parts[begins]
            name = _joined(self.names[begins], self.names[last])
            self._add(name, "phrase", [left, middle, last, begins, feature_of[middle, last]])

    def _frequent(self, keys: np.ndarray) -> tuple[list[int], np.ndarray]:
        """The keys that stand in enough rows, sorted, and at each position which of these, or -1.

        Args:
            keys: at each position, -1 for none, `(positions,)`.
        """
        known = np.flatnonzero(keys != _NONE)
        distinct, numbers = np.unique(keys[known], return_inverse=True)
        cells = np.ones(len(known), dtype=bool), (self._row_of[known], numbers)
        in_rows = csc_array(cells, shape=(self._n_rows, len(distinct)))
        in_rows.sum_duplicates()  # a name counts once a row; not every scipy does it unasked
        is_frequent = np.diff(in_rows.indptr) >= self._min_count
        self._blocks.append(in_rows[:, is_frequent])
        place = np.where(is_frequent, is_frequent.cumsum() - 1, _NONE)
        places = np.full(len(keys), _NONE)
        places[known] = place[numbers]
        return distinct[is_frequent].tolist(), places


def _keys(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """A number for each pair of numbers, -1 where one of them is -1."""
    keys = first.astype(np.int64) * _BASE + second
    return np.where((first == _NONE) | (second == _NONE), _NONE, keys)


def _split(keys: Iterable[int]) -> list[tuple[int, int]]:
    """The pairs of numbers again."""
    return [divmod(key, _BASE) for key in keys]


def _joined(left: str, right: str) -> str:
    """Two words as they are written one after the other."""
    unspaced = is_unspaced(left[-1]) or is_unspaced(right[0])
    return left + right if unspaced else f"{left} {right}"


# --- with which labels ---


@dataclass
class Counts:
    """What stands in a column of texts, or in both, with its labels.

    Args:
        where: "text", "text_pair" or "both".
        names: of what stands there.
        kinds: of each.
        parts: of each, by their numbers here.
        by_label: rows with each label, `(names, labels)`.
        first: the first row with each label, or -1, `(names, labels)`.
    """

    where: str
    names: list[str]
    kinds: list[str]
    parts: list[list[int]]
    by_label: np.ndarray
    first: np.ndarray

    @cached_property
    def rows(self) -> np.ndarray:
        """The rows with each, `(names,)`."""
        return self.by_label.sum(1)

    @cached_property
    def shares(self) -> np.ndarray:
        """The share of these with each label, `(names, labels)`."""
        return self.by_label / np.maximum(self.rows, 1)[:, None]


def count(corpus: Corpus, kinds: Sequence[str], min_count: int) -> list[Counts]:
    """What stands in at least `min_count` rows of a column of texts, with its labels."""
    labels = np.array(corpus.label_numbers)
    features = [
        Features(column, corpus.reader.names, kinds, min_count) for column in corpus.columns
    ]
    tables = []
    for where, of_column in zip(("text", "text_pair"), features, strict=False):
        tables.append(_counts(where, of_column, of_column.in_rows, labels))
    if len(features) == 2:
        tables.append(_counts("both", features[0], _in_both(*features), labels))
    return tables


def _in_both(text: Features, text_pair: Features) -> csc_array:
    """Which features of the first text stand in both texts of which row, `(rows, features)`."""
    column_of = {name: column for column, name in enumerate(text_pair.names)}
    columns = [column_of.get(name, _NONE) for name in text.names]
    nowhere = csc_array((text_pair.in_rows.shape[0], 1), dtype=bool)  # the last column, -1
    in_pair = hstack([text_pair.in_rows, nowhere], format="csc")[:, columns]
    return text.in_rows.multiply(in_pair).tocsc()


def _counts(where: str, features: Features, in_rows: csc_array, labels: np.ndarray) -> Counts:
    n_labels = labels.max() + 1
    by_label = np.zeros((len(features.names), n_labels), dtype=np.int64)
    first = np.full((len(features.names), n_labels), _NONE)
    by_row = in_rows.tocsr()
    for label in range(n_labels):
        rows = np.flatnonzero(labels == label)
        of_label = by_row[rows].tocsc()  # the rows of a feature are in order
        by_label[:, label] = np.diff(of_label.indptr)
        is_there = by_label[:, label] > 0
        first[is_there, label] = rows[of_label.indices[of_label.indptr[:-1][is_there]]]
    return Counts(where, features.names, features.kinds, features.parts, by_label, first)

"""In how many rows, and with which labels, stands what may be a suspect.

Texts are kept as numbers, four bytes a word. Phrases are made only of what stands in enough rows,
and are sorted a part at a time, so that memory does not grow with the number of rare phrases.
"""

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from mtlib.rows.folding import ANY_WORD, ASCII_WORD, UNSPACED, Finder, fold
from mtlib.rows.forms import CAPITALS, form_of, kind_of, may_have_address, pattern_of

_BLOCK = 5_000  # rows that are counted at once
_PART = 4_000_000  # words whose phrases are sorted at once
_BREAK = 0  # the number of what ends a phrase
_NONE = -1
_CAPITALS = re.compile(r"[^\W\d_]{3,}")
_is_unspaced = re.compile(f"[{UNSPACED}]").match
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


class Column(NamedTuple):
    """The texts of a column.

    Args:
        ids: numbers of names, one text after the other, `(names,)`.
        starts: where each text begins, and where the last ends, `(rows + 1,)`.
        lengths: of each text in words, `(rows,)`.
    """

    ids: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray

    def rows_of(self, positions: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.starts, positions, side="right") - 1


@dataclass
class Corpus:
    """The rows that have a label, as numbers."""

    reader: Reader | FinderReader
    labels: Counter = field(default_factory=Counter)  # rows of each
    label_numbers: array = field(default_factory=lambda: array("i"))  # of each row
    hashes: array = field(default_factory=lambda: array("q"))
    _numbers: dict = field(default_factory=dict)  # of labels
    _columns: list[tuple[array, array, array]] = field(default_factory=list)

    def add(self, texts: Sequence[str], label: object) -> None:
        """Add a row."""
        if not self._columns:
            self._columns = [(array("i"), array("q", [0]), array("i")) for _ in texts]
        self.labels[label] += 1
        self.label_numbers.append(self._numbers.setdefault(label, len(self._numbers)))
        self.hashes.append(hash(texts))
        for text, (ids, starts, lengths) in zip(texts, self._columns, strict=True):
            ids.extend(self.reader(text))
            starts.append(len(ids))
            lengths.append(len(text.split()))

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
        return len(self.hashes) - len(np.unique(np.array(self.hashes, dtype=np.int64)))

    @property
    def columns(self) -> list[Column]:
        return [Column(*map(_as_numpy, arrays)) for arrays in self._columns]


def _as_numpy(numbers: array) -> np.ndarray:
    """The same numbers, not a copy of them."""
    return np.frombuffer(numbers, numbers.typecode) if numbers else np.zeros(0, np.int32)


# --- what stands in enough rows ---


class Phrases:
    """The phrases of two and of three words that stand in enough rows of a column.

    A phrase of two is numbered by its words, one of three by its first two and its last word.

    Args:
        column: the texts.
        ranks: of each name its number among the words that stand in enough rows, or -1.
        min_count: in so many rows.
    """

    def __init__(self, column: Column, ranks: np.ndarray, min_count: int):
        self._column = column
        self._ranks = ranks
        self._n_words = ranks.max(initial=_NONE) + 1
        self._min_count = min_count
        self.pairs = self._frequent(self._pair_keys, width=2)
        self.triples = self._frequent(self._triple_keys, width=3)

    def pairs_at(self, positions: np.ndarray) -> np.ndarray:
        """Which of the phrases of two begins at each position, or -1."""
        return _places_in(self.pairs, self._pair_keys(positions))

    def triples_at(self, positions: np.ndarray) -> np.ndarray:
        """Which of the phrases of three begins at each position, or -1."""
        return _places_in(self.triples, self._triple_keys(positions))

    def words_of_pairs(self) -> list[tuple[int, int]]:
        """The words of each phrase of two, by their ranks."""
        return [divmod(key, self._n_words) for key in self.pairs.tolist()]

    def parts_of_triples(self) -> list[tuple[int, int]]:
        """The phrase of two that each phrase of three begins with, and its last word."""
        return [divmod(key, self._n_words) for key in self.triples.tolist()]

    def pair_of(self, left: int, right: int) -> int:
        return int(np.searchsorted(self.pairs, left * self._n_words + right))

    def _pair_keys(self, positions: np.ndarray) -> np.ndarray:
        words = self._ranks[self._column.ids[positions]]
        next_words = self._ranks[self._column.ids[positions + 1]]
        known = (words >= 0) & (next_words >= 0)
        return np.where(known, words * self._n_words + next_words, _NONE)

    def _triple_keys(self, positions: np.ndarray) -> np.ndarray:
        pairs = self.pairs_at(positions)
        next_pairs = self.pairs_at(positions + 1)
        last_words = self._ranks[self._column.ids[positions + 2]]
        known = (pairs >= 0) & (next_pairs >= 0)
        return np.where(known, pairs * self._n_words + last_words, _NONE)

    def _frequent(self, keys_of: Callable[[np.ndarray], np.ndarray], width: int) -> np.ndarray:
        """The keys of phrases that stand in enough rows, sorted."""
        frequent = [np.zeros(0, dtype=np.int64)]
        for positions in self._beginnings(width):
            keys = keys_of(positions)
            known = keys != _NONE
            _, keys = _unique(self._column.rows_of(positions[known]), keys[known])
            distinct, n_rows = np.unique(keys, return_counts=True)
            frequent.append(distinct[n_rows >= self._min_count])
        return np.sort(np.concatenate(frequent))

    def _beginnings(self, width: int) -> Iterator[np.ndarray]:
        """The positions at which phrases may begin, a part at a time.

        All phrases that begin with the same word are in one part.
        """
        n_positions = max(0, len(self._column.ids) - width + 1)
        first_words = self._ranks[self._column.ids[:n_positions]].astype(np.int32)
        n_parts = 1 + n_positions // _PART
        for part in range(n_parts):
            yield np.flatnonzero((first_words % n_parts == part) & (first_words >= 0))


class Features:
    """What a column of texts has in enough rows: names, lengths, phrases.

    Args:
        column: the texts.
        names: of their numbers.
        kinds: of `mtlib.rows.forms.KINDS`, or None: names alone.
        min_count: in so many rows.
    """

    def __init__(self, column: Column, names: Names, kinds: Sequence[str], min_count: int):
        self._column = column
        self.names: list[str] = []
        self.kinds: list[str] = []
        # the words of a phrase, the more general names of a form
        self.parts: list[list[int]] = []
        self._add_names(names, min_count)
        self._cuts: list[tuple[int, bool]] = []
        if "length" in kinds:
            self._add_lengths()
        self._phrases = None
        if "phrase" in kinds:
            self._add_phrases(min_count)

    def in_rows(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows from `first` to before `last`, and the features that stand there, each once."""
        found = [self._names_in(first, last), *self._lengths_in(first, last)]
        if self._phrases is not None:
            found += self._phrases_in(first, last)
        rows, features = zip(*found, strict=True)
        return np.concatenate(rows), np.concatenate(features)

    def _add(self, name: str, kind: str, parts: list[int]) -> None:
        self.names.append(name)
        self.kinds.append(kind)
        self.parts.append(parts)

    def _add_names(self, names: Names, min_count: int) -> None:
        n_rows = np.zeros(len(names.names), dtype=np.int64)
        self._ranks = np.arange(len(names.names))
        for first, last in blocks(len(self._column.lengths)):
            _, numbers = self._names_in(first, last)
            n_rows += np.bincount(numbers, minlength=len(n_rows))
        n_rows[_BREAK] = 0
        frequent = np.flatnonzero(n_rows >= min_count).tolist()
        self._ranks = np.full(len(n_rows), _NONE)
        self._ranks[frequent] = np.arange(len(frequent))
        for number in frequent:
            general = [int(self._ranks[other]) for other in names.general.get(number, ())]
            self._add(names.names[number], names.kinds[number], general)

    def _add_lengths(self) -> None:
        for words, quantile in (("at most", 0.1), ("at least", 0.9)):
            cut = int(np.quantile(self._column.lengths, quantile))
            self._cuts.append((cut, words == "at most"))
            self._add(f"<{words} {cut:,} words>", "length", [])

    def _add_phrases(self, min_count: int) -> None:
        is_word = [
            kind in _IN_PHRASES and not name.startswith("<")
            for name, kind in zip(self.names, self.kinds, strict=True)
        ]
        # the last rank, -1, is that of what is too rare
        word_ranks = np.where([*is_word, False], np.arange(len(is_word) + 1), _NONE)
        phrases = Phrases(self._column, word_ranks[self._ranks], min_count)
        self._first_pair = len(self.names)
        for left, right in phrases.words_of_pairs():
            self._add(_joined(self.names[left], self.names[right]), "phrase", [left, right])
        self._first_triple = len(self.names)
        for pair, last in phrases.parts_of_triples():
            left, middle = self.parts[self._first_pair + pair]
            begins = self._first_pair + pair
            ends = self._first_pair + phrases.pair_of(middle, last)
            name = _joined(self.names[begins], self.names[last])
            self._add(name, "phrase", [left, middle, last, begins, ends])
        self._phrases = phrases

    def _names_in(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        starts = self._column.starts[first : last + 1]
        features = self._ranks[self._column.ids[starts[0] : starts[-1]]]
        rows = np.repeat(np.arange(first, last), np.diff(starts))
        known = features >= 0
        return _unique(rows[known], features[known])

    def _lengths_in(self, first: int, last: int) -> list[tuple[np.ndarray, np.ndarray]]:
        lengths = self._column.lengths[first:last]
        found = []
        for cut, is_upper in self._cuts:
            rows = first + np.flatnonzero(lengths <= cut if is_upper else lengths >= cut)
            number = len(found) + self.kinds.index("length")
            found.append((rows, np.full(len(rows), number)))
        return found

    def _phrases_in(self, first: int, last: int) -> list[tuple[np.ndarray, np.ndarray]]:
        # the last two positions of a text hold what ends phrases or general names
        start, end = self._column.starts[[first, last]]
        positions = np.arange(start, max(start, end - 2))
        found = []
        for offset, phrases in (
            (self._first_pair, self._phrases.pairs_at(positions)),
            (self._first_triple, self._phrases.triples_at(positions)),
        ):
            known = phrases >= 0
            rows = self._column.rows_of(positions[known])
            found.append(_unique(rows, offset + phrases[known]))
        return found


def blocks(n_rows: int) -> Iterator[tuple[int, int]]:
    """The first row of each block, and the one after its last."""
    for first in range(0, n_rows, _BLOCK):
        yield first, min(first + _BLOCK, n_rows)


def _unique(rows: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each pair of a row and a number once."""
    if not len(rows):
        return rows, numbers
    n_rows = rows.max() + 1
    keys = np.unique(numbers * n_rows + rows)
    return keys % n_rows, keys // n_rows


def _places_in(known: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Where each key stands in sorted ones, or -1."""
    if not len(known):
        return np.full(len(keys), _NONE)
    places = np.searchsorted(known, keys).clip(max=len(known) - 1)
    return np.where(known[places] == keys, places, _NONE)


def _joined(left: str, right: str) -> str:
    """Two words as they are written one after the other."""
    unspaced = _is_unspaced(left[-1]) or _is_unspaced(right[0])
    return left + right if unspaced else f"{left} {right}"


# --- with which labels ---


class Counts(NamedTuple):
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


def count(corpus: Corpus, kinds: Sequence[str], min_count: int) -> list[Counts]:
    """What stands in at least `min_count` rows of a column of texts, with its labels."""
    labels = np.array(corpus.label_numbers)
    features = [
        Features(column, corpus.reader.names, kinds, min_count) for column in corpus.columns
    ]
    tables = []
    for where, column in zip(("text", "text_pair"), features, strict=False):
        by_label, first = _count(column.in_rows, len(column.names), labels)
        tables.append(Counts(where, column.names, column.kinds, column.parts, by_label, first))
    if len(features) == 2:
        in_both = _InBoth(*features)
        by_label, first = _count(in_both.in_rows, len(in_both.names), labels)
        tables.append(Counts("both", in_both.names, in_both.kinds, in_both.parts, by_label, first))
    return tables


def _count(
    in_rows: Callable[[int, int], tuple[np.ndarray, np.ndarray]],
    n_features: int,
    labels: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of each feature with each label, and the first of them: `(features, labels)`."""
    n_labels = int(labels.max()) + 1
    by_label = np.zeros(n_features * n_labels, dtype=np.int64)
    first_rows = np.full(n_features * n_labels, _NONE)
    for first, last in blocks(len(labels)):
        rows, features = in_rows(first, last)
        cells = features * n_labels + labels[rows]
        by_label += np.bincount(cells, minlength=len(by_label))
        is_new = first_rows[cells] == _NONE
        order = np.argsort(-rows[is_new], kind="stable")  # of several rows the first is set last
        first_rows[cells[is_new][order]] = rows[is_new][order]
    shape = n_features, n_labels
    return by_label.reshape(shape), first_rows.reshape(shape)


class _InBoth:
    """What stands in both texts of a pair."""

    def __init__(self, text: Features, text_pair: Features):
        self._features = (text, text_pair)
        numbers = {name: number for number, name in enumerate(text.names)}
        self.names, self.kinds, self.parts = text.names, text.kinds, text.parts
        self._number = np.array([numbers.get(name, _NONE) for name in text_pair.names], dtype=int)

    def in_rows(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
        rows, features = self._features[0].in_rows(first, last)
        other_rows, others = self._features[1].in_rows(first, last)
        others = self._number[others]
        n = len(self.names) + 1
        keys = np.intersect1d(rows * n + features, (other_rows * n + others)[others >= 0])
        return keys // n, keys % n

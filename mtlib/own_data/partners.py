"""Which suspect words may take the place of which: those in the most similar contexts."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import chain

import pandas

from mtlib.errors import UserError
from mtlib.own_data.exchanges import EITHER, Suspect, Texts, columns_of
from mtlib.own_data.reading import (
    Rows,
    Words,
    is_marked,
    label_feature,
    listed_words,
    named_labels,
    texts_and_labels,
)
from mtlib.own_data.suspects import suspects
from mtlib.rows.folding import Finder, folded_word, words_of
from mtlib.rows.forms import NOT_HIDDEN, kind_of
from mtlib.rows.labels import label_name

_MOST_PARTNERS = 3
_COMPANION = 0.75  # of the texts of a word: what stands in these beside it cannot take its place
_LEAST_SIMILAR = 0.5  # of the similarity of the nearest partner
_BACKGROUND = 5000  # texts among which words that predict nothing are looked for
_NEUTRAL_WORDS = 200
_LEAST_ROWS = 5  # of the background that hold a word that predicts nothing
_KEY = bytes(8)  # of the hash that chooses rows
_NEAR = 60  # characters on either side of a word in which its neighbours are looked for


# --- the words ---


def pool_of(
    rows: Rows,
    words: Words | None,
    partners: pandas.DataFrame | None,
) -> list[Suspect]:
    """Words to ask about and words to exchange them for, each once."""
    marks = None if words is None else _marks(words)
    tables = _tables(rows, words, partners)
    if unknown := _unknown(marks, tables):
        tables.append(suspects(rows, None, 1, words=unknown))
    pool: dict[str, Suspect] = {}
    for suspect in chain.from_iterable(_suspects_of(table, marks) for table in tables):
        pool.setdefault(suspect.folded, suspect)  # the first table that has it decides
    for word, marked in (marks or {}).items():
        given = Suspect(word, kind_of(word), EITHER, asked=True, marked=marked)
        pool.setdefault(word, given)
    exchangeable = [suspect for suspect in pool.values() if suspect.kind not in NOT_HIDDEN]
    if not exchangeable:
        raise UserError("no word of the rows predicts a label; name words to ask about.")
    return exchangeable


def _tables(
    rows: Rows,
    words: Words | None,
    partners: pandas.DataFrame | None,
) -> list[pandas.DataFrame]:
    """Tables of suspects: the words, if they bring their labels, and the partners."""
    tables = [suspects(rows) if partners is None else partners]
    if isinstance(words, pandas.DataFrame) and {"word", "label"} <= {*words}:
        tables.insert(0, words)
    return tables


def _unknown(
    marks: Mapping[str, bool] | None,
    tables: Iterable[pandas.DataFrame],
) -> list[str]:
    """The words to ask about that stand in none of the tables."""
    known = {folded_word(word) for table in tables for word in table["word"]}
    unknown = [word for word in marks or () if word not in known]
    return [word for word in unknown if kind_of(word) not in NOT_HIDDEN]


def _marks(words: Words) -> dict[str, bool]:
    """The words to ask about, folded, and whether a person marked them as misleading."""
    is_table = isinstance(words, pandas.DataFrame)
    if is_table and words.empty:
        raise UserError("words names no word; leave it out to ask about all suspects.")
    listed = map(folded_word, listed_words(words))
    if not is_table:
        return dict.fromkeys(listed, True)
    if "mask" in words:
        marks: dict[str, bool] = {}
        for word, mark in zip(listed, words["mask"], strict=True):  # one that predicts two labels
            marks[word] = is_marked(mark, f"words, {word!r},") or marks.get(word, False)
        return marks
    # a table of suspects is what a machine has found, and any other list is a person's
    return dict.fromkeys(listed, "z" not in words)


def _suspects_of(table: pandas.DataFrame, marks: Mapping[str, bool] | None) -> Iterator[Suspect]:
    """The words of a table of `suspects`, each with all labels that it predicts."""
    table = table.sort_values("z", ascending=False, kind="stable") if "z" in table else table
    for word, lines in table.groupby("word", sort=False):
        line = lines.iloc[0]
        folded = folded_word(word)
        yield Suspect(
            word,
            str(line.get("kind", kind_of(folded))),
            str(line.get("where", "text")).partition(",")[0],  # the surest place
            tuple(dict.fromkeys(map(label_name, lines["label"]))),
            asked=marks is None or folded in marks,
            marked=marks is not None and marks.get(folded, False),
        )


def rivals_of(suspect: Suspect, pool: Iterable[Suspect]) -> list[Suspect]:
    """Suspects of the same kind that predict other labels alone.

    For a word without labels these are all that have one.
    """
    others = _of_same_kind(suspect, pool)
    return _of_same_form(
        suspect, [other for other in others if not {*other.labels} & {*suspect.labels}]
    )


def allies_of(suspect: Suspect, pool: Iterable[Suspect]) -> list[Suspect]:
    """Other suspects of the same kind that predict the same label."""
    others = _of_same_kind(suspect, pool)
    return _of_same_form(suspect, [other for other in others if other.label == suspect.label])


def _of_same_kind(suspect: Suspect, pool: Iterable[Suspect]) -> Iterator[Suspect]:
    for other in pool:
        is_partner = other.labels and not other.is_class and other is not suspect
        if is_partner and other.kind == suspect.kind:
            yield other


def _of_same_form(suspect: Suspect, others: list[Suspect]) -> list[Suspect]:
    """Those of the same form, as a site for a site; if there are none, all."""
    alike = [other for other in others if other.form == suspect.form]
    return alike or others


# --- the texts in which they stand ---


@dataclass
class _Sample:
    """So many values with the smallest keys, in whichever order they come; each key once."""

    size: int
    values: dict[int, object] = field(default_factory=dict)  # up to twice as many

    def add(self, key: int, value: object) -> None:
        self.values.setdefault(key, value)
        if len(self.values) > 2 * self.size:
            self.values = {key: self.values[key] for key in self._smallest()}

    def in_order(self) -> list:
        return [self.values[key] for key in self._smallest()]

    def _smallest(self) -> list[int]:
        return sorted(self.values)[: self.size]


class Samples:
    """Texts in which each suspect stands, and texts of all rows."""

    def __init__(self, pool: Sequence[Suspect], size: int):
        self.finder = Finder([suspect.word for suspect in pool])
        self.by_word = {suspect.folded: suspect for suspect in pool}
        self.with_suspect = {suspect.folded: _Sample(size) for suspect in pool}
        self.all_rows = _Sample(_BACKGROUND)
        self.labels: set[object] = set()
        self.n_texts = 1

    def collect(self, rows: Rows) -> None:
        """Read all rows, once."""
        for texts, label in texts_and_labels(rows):
            self.n_texts = len(texts)
            found = [self.finder.found(text) for text in texts]
            key = self._key(texts)
            for word in set().union(*found):
                suspect = self.by_word[word]
                columns = columns_of(suspect, texts)
                if suspect.where == EITHER or all(word in found[column] for column in columns):
                    self.with_suspect[word].add(key, texts)
            self.all_rows.add(key, (texts, label))
            self.labels.add(label)

    def label_names(self, rows: Rows) -> set[str]:
        """The labels of all rows that have one, by name where the classes have names."""
        labels = named_labels(self.labels - {None}, label_feature(rows))
        return {*map(label_name, labels)}

    def texts_with(self, suspect: Suspect) -> list[Texts]:
        return self.with_suspect[suspect.folded].in_order()

    @property
    def background(self) -> list[tuple[Texts, object]]:
        return self.all_rows.in_order()

    def background_texts(self) -> list[Texts]:
        return [texts for texts, _ in self.background]

    def _key(self, texts: Texts) -> int:
        content = "\0".join(texts).encode("utf-8", "surrogatepass")
        return int.from_bytes(blake2b(content, digest_size=8, key=_KEY).digest())


# --- partners ---


@dataclass
class Exchange:
    """What a suspect is exchanged for, and the texts in which it stands.

    `rivals` are words of another label or, if there is none, words without a label; `allies` are
    those of the control, which may be none.
    """

    rivals: list[Suspect]
    allies: list[Suspect]
    texts: list[Texts]
    finder: Finder


class PartnerChooser:
    """Chooses partners by the neighbours that they have in the sampled texts.

    Args:
        pool: suspects.
        samples: texts with them.
        reads: whether the model reads a word, which else can take no place.
    """

    def __init__(self, pool: Sequence[Suspect], samples: Samples, reads: Callable[[str], bool]):
        self.pool = pool
        self.samples = samples
        self.reads = reads
        self.partners = [suspect for suspect in pool if reads(suspect.word)]
        self.contexts = {
            suspect.folded: contexts_of(suspect, samples.texts_with(suspect), samples.finder)
            for suspect in pool
        }

    @cached_property
    def neutral(self) -> list[Suspect]:
        """Words that predict nothing, whose contexts are counted too."""
        neutral = _neutral_words(self.samples.background, self.pool)
        neutral = [word for word in neutral if self.reads(word.word)]
        finder = Finder([word.word for word in neutral]) if neutral else None
        texts = self.samples.background_texts()
        for word in neutral:
            self.contexts[word.folded] = contexts_of(word, texts, finder)
        return neutral

    def exchange(self, suspect: Suspect) -> Exchange:
        texts = self.samples.texts_with(suspect)
        companions = self._companions(texts)
        pool = [other for other in self.partners if other.folded not in companions]
        rivals = self._nearest(suspect, rivals_of(suspect, pool))
        allies = self._nearest(suspect, allies_of(suspect, pool))
        if not rivals:
            rivals = self._nearest(suspect, self.neutral)
        return Exchange(rivals, allies, texts, self.samples.finder)

    def _companions(self, texts: Sequence[Texts]) -> set[str]:
        """The words of the pool that stand in most of the texts, as the rest of a phrase does."""
        n_texts: Counter = Counter()
        for row in texts:
            n_texts.update(set().union(*map(self.samples.finder.found, row)))
        return {word for word, n in n_texts.items() if n >= _COMPANION * len(texts)}

    def _nearest(self, suspect: Suspect, others: Iterable[Suspect]) -> list[Suspect]:
        """Those in the most similar contexts, without any that are far less similar than these."""
        context = self.contexts[suspect.folded]
        similarity = {other: cosine(context, self.contexts[other.folded]) for other in others}
        nearest = sorted(similarity, key=lambda other: (-similarity[other], other.folded))
        least = _LEAST_SIMILAR * max(similarity.values(), default=0.0)
        return [other for other in nearest[:_MOST_PARTNERS] if similarity[other] >= least]


def contexts_of(suspect: Suspect, texts: Iterable[Texts], finder: Finder) -> Counter:
    """How often each word stands directly before ("<") and behind (">") a suspect."""
    words = Finder()
    counts: Counter = Counter()
    for row in texts:
        for column in columns_of(suspect, row):
            text = row[column]
            for place in suspect.places(text, finder):
                before = words.places(text[max(0, place.start - _NEAR) : place.start])
                behind = words.places(text[place.end : place.end + _NEAR])
                counts["<", before[-1].folded if before else ""] += 1
                counts[">", behind[0].folded if behind else ""] += 1
    return counts


def cosine(first: Counter, second: Counter) -> float:
    """The cosine of two vectors of counts; 0 where one is empty."""
    product = sum(n * second[key] for key, n in first.items())
    squares = sum(n * n for n in first.values()) * sum(n * n for n in second.values())
    return product / math.sqrt(squares) if squares else 0.0


def _neutral_words(background: Sequence[tuple], pool: Iterable[Suspect]) -> list[Suspect]:
    """Frequent words that stand with each label about as often as chance would have it."""
    labels = Counter(label for _, label in background)
    rows_of: dict[str, Counter] = {}
    for texts, label in background:
        for word in set().union(*map(words_of, texts)):
            rows_of.setdefault(word, Counter())[label] += 1
    for suspect in pool:
        rows_of.pop(suspect.folded, None)
    frequent = sorted(rows_of, key=lambda word: (-rows_of[word].total(), word))
    neutral = [
        Suspect(word)
        for word in frequent
        if word.isalpha() and _predicts_nothing(rows_of[word], labels)
    ]
    return neutral[:_NEUTRAL_WORDS]


def _predicts_nothing(counts: Counter, labels: Counter) -> bool:
    """Whether each label has its share of a word's rows, give or take one standard deviation."""
    n = counts.total()
    if n < _LEAST_ROWS:
        return False
    for label, n_label in labels.items():
        base_rate = n_label / labels.total()
        if abs(counts[label] - base_rate * n) > math.sqrt(base_rate * (1 - base_rate) * n):
            return False
    return True

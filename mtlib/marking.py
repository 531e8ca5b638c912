"""Words and spans of a text among its tokens: which pieces make up a word, and columns that mark spans."""

import re
import unicodedata
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import count
from typing import NamedTuple

import torch
from datasets import Dataset
from torch import Tensor
from transformers.convert_slow_tokenizer import bytes_to_unicode

from mtlib.errors import UserError
from mtlib.folding import UNSPACED, WORD, Finder, fold, phrases_of, words_around
from mtlib.plm import SharedPLM
from mtlib.preparing import Prepared, Transform, require_columns, with_column
from mtlib.tokens import special_tokens, text_reader

Spans = (
    list[tuple[int, int]] | list[tuple[int, int, int]]
)  # first character, the one after the last; a number
_ROWS = 1000  # texts tokenised at a time
_is_unspaced = re.compile(f"[{UNSPACED}]").match
_BYTES = {
    character: byte for byte, character in bytes_to_unicode().items()
}  # of byte-level vocabularies
_INNER = bytes(range(0x80, 0xC0))  # never the first byte of a character
_MARKS = {
    "##": str.startswith,
    "Ġ": str.startswith,
    "▁": str.startswith,
    "@@": str.endswith,
    "</w>": str.endswith,
}


class MarkTokens(Transform):
    """Adds a column with the number of the span that each token belongs to, or 0.

    Spans are numbered in reading order from 1 on, unless they bring numbers of their own. Special tokens ([UNK] among
    them) belong to none. Counts the examples without a marked token. A class below it says which spans; it may read any
    dataset columns that it names.
    """

    reads = ("text", "text_pair")
    column: str  # the one that it adds

    def check(self, plm: SharedPLM) -> None:
        check_offsets(plm.tokenizer, self)

    @abstractmethod
    def spans(self, rows: Dataset) -> Iterator[tuple[Spans, Spans]]:
        """The spans of each row in its text and in its second text, by characters and in reading order."""

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        marks = []
        for row, encoded, spans in zip(
            examples, self._encoded(plm, examples), self.spans(examples), strict=True
        ):
            ids, offsets, part_of = encoded
            if list(ids) != list(row["input_ids"]):
                raise UserError(
                    f"the tokens of {row['text'][:60]!r} are not those of its text, so that spans of it cannot be "
                    f"found; {type(self).__name__} must come before what changes tokens."
                )
            fresh, texts = (
                count(1),
                (row["text"], row.get("text_pair") or ""),
            )  # numbers go on in the second text
            numbers = [
                span_numbers(text, of_text, fresh)
                for text, of_text in zip(texts, spans, strict=True)
            ]
            tokens = zip(offsets, part_of, strict=True)
            marks.append(
                [max(numbers[i][a:b], default=0) if i is not None else 0 for (a, b), i in tokens]
            )
        counts = {f"{self.column}_unmarked": sum(not any(row) for row in marks)}
        return Prepared(with_column(examples, self.column, marks), counts)

    def _encoded(self, plm: SharedPLM, examples: Dataset) -> Iterator[tuple]:
        """Tokens as `tokenise` has made them, their offsets, and which text each is part of (None: it is special)."""
        require_columns(examples, self, "text")
        check_offsets(plm.tokenizer, self)
        read, special = text_reader(plm.tokenizer), {*special_tokens(plm.tokenizer)}
        longest = max(
            map(len, examples["input_ids"]), default=0
        )  # where nothing was cut, this cuts nothing either
        options = {"truncation": True, "max_length": longest, "return_offsets_mapping": True}
        for first in range(0, len(examples), _ROWS):
            rows = examples[first : first + _ROWS]
            encoded = read(rows["text"], rows.get("text_pair"), **options)
            for i, ids in enumerate(encoded["input_ids"]):
                part_of = zip(ids, encoded.sequence_ids(i), strict=True)
                yield (
                    ids,
                    encoded["offset_mapping"][i],
                    [None if token in special else text for token, text in part_of],
                )


def check_offsets(tokenizer, transform: Transform) -> None:
    """Raise `UserError` where spans of a text cannot be found among its tokens."""
    if not tokenizer.is_fast:
        raise UserError(
            f"{type(tokenizer).__name__} does not say which characters a token stands for, which "
            f"{type(transform).__name__} has to know; take a model with a fast tokenizer, or a policy that reads no "
            "text: exact, whole_word, frequency_rare or frequency_frequent."
        )


def span_numbers(text: str, spans: Spans, fresh: Iterator[int]) -> list[int]:
    """The number of the span that each character of a text belongs to, by itself or from `fresh`; 0: it has none.

    White space at a span's ends does not count, since byte-level BPE and SentencePiece give the space before a word to
    its first piece. Where spans overlap, the later one wins.

    A token belongs to a span if they have a character in common, so every piece is found, those of a letter that
    several tokens share included.
    """
    numbers = [0] * len(text)
    for start, end, *own in spans:
        inner = text[start:end].strip()
        first = text.find(inner, start)
        numbers[first : first + len(inner)] = (own or [next(fresh)]) * len(inner)
    return numbers


class MarkWords(MarkTokens):
    """Adds `given_words`: the places where `GivenWords` stand in the texts, numbered.

    Warns of words that stand in none of the texts.

    Raises:
        UserError: none of the words stands in a text, or all are [UNK] for the model.
    """

    column = "given_words"

    def __init__(self, words: str | Iterable[str] | re.Pattern, match_case: bool = False):
        is_pattern = isinstance(words, re.Pattern)
        self.words = () if is_pattern else tuple(phrases_of(words))
        self.match_case = match_case
        self.finder = None if is_pattern else Finder(self.words, match_case)
        self.pattern = words if is_pattern else self.finder.pattern

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        prepared = super().__call__(plm, examples, seed)
        marked = map(any, prepared.examples[self.column])
        having = [mark for mark, has in zip(marked, self.check_found(examples), strict=True) if has]
        if unread := having.count(False):
            told = f"in {unread} of {len(having)} texts with given words none can be hidden: max_length cuts them off, "
            told += f"or the tokenizer of {plm.tokenizer.name_or_path!r} reads them as {plm.tokenizer.unk_token}."
            if unread == len(having):
                raise UserError(f"{told} Give a longer max_length, or a model of their language.")
            warnings.warn(told, stacklevel=2)
        return prepared

    def spans(self, rows: Dataset) -> Iterator[tuple[Spans, Spans]]:
        for row in rows:
            yield self.found(row["text"]), self.found(row.get("text_pair") or "")

    def found(self, text: str) -> Spans:
        """The words that are given, or all words of a text that a match of the regular expression touches."""
        if self.finder is not None:
            return [(place.start, place.end) for place in self.finder.places(text)]
        return [
            words_around(text, *match.span()) for match in self.pattern.finditer(text) if match[0]
        ]

    def check_found(self, examples: Dataset) -> list[bool]:
        """Which rows have a word. Warns of words that stand in no text, and raises `UserError` if none of them does."""
        columns = [examples[name] for name in self.reads if name in examples.column_names]
        found_in = [
            set().union(*map(self._found_words, texts)) for texts in zip(*columns, strict=True)
        ]
        found = set().union(*found_in)
        missing = [word for word in self.words if fold(word, self.match_case) not in found]
        if found and not missing:
            return [*map(bool, found_in)]
        texts = [text for column in columns for text in column]
        message = self._not_found(missing, texts)
        if not found:
            raise UserError(message)
        warnings.warn(message, stacklevel=3)
        return [*map(bool, found_in)]

    def _found_words(self, text: str) -> set[str]:
        """Which of the words stand in a text, folded, or what a regular expression matches there."""
        if self.finder is not None:
            return self.finder.found(text)
        return {match[0] for match in self.pattern.finditer(text) if match[0]}

    def _not_found(self, missing: list[str], texts: list[str]) -> str:
        """Which words stand in no text, and which ones like them do."""
        names = ", ".join(map(repr, missing)) or self.pattern.pattern
        message = f"not found in {len(texts)} texts: {names}."
        if not missing:
            return message
        in_texts = {fold(word, self.match_case) for text in texts for word in WORD.findall(text)}
        parts = {fold(part, self.match_case) for word in missing for part in word.split()}
        if near := {like for part in parts for like in get_close_matches(part, in_texts)}:
            message += f" Words like these stand there: {', '.join(sorted(near))}."
        return message


class WordMarks(NamedTuple):
    """How the pieces of a vocabulary make up words: `goes_on[first] + continues[second] >= 3` if two are of one word.

    WordPiece marks continuations (`##ing`), byte-level BPE and SentencePiece beginnings (`Ġ`, `▁`), subword-nmt and
    fastBPE what goes on (`@@`), the first BPE ends (`</w>`). In a script without spaces every piece is a word.
    """

    goes_on: Tensor  # (vocab,): 0 ends a word, 1 lets it go on, 2 is a mark alone, which belongs to what follows
    continues: (
        Tensor  # (vocab,): 0 begins a word, 1 is a word of a script without spaces, 2 continues one
    )


def word_marks(tokenizer) -> WordMarks:
    """The marks of a tokenizer's vocabulary.

    Raises:
        UserError: it has none.
    """
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    having = {mark: [stands(piece, mark) for piece in pieces] for mark, stands in _MARKS.items()}
    mark = max(
        having, key=lambda mark: sum(having[mark])
    )  # byte-level vocabularies have ordinary tokens like "##" too
    if not any(having[mark]):
        raise UserError(
            f"The tokenizer {type(tokenizer).__name__} marks neither where words begin (Ġ, ▁) nor where they go on "
            "(##, @@) or end (</w>), so whole words cannot be told apart; use ExactMasking."
        )
    goes_on, continues = [], []
    for piece, has in zip(pieces, having[mark], strict=True):
        first, last = _first_and_last(piece, mark)
        begins = has if mark in ("Ġ", "▁") else mark == "##" and not has
        ends = has if mark == "</w>" else mark == "@@" and not has
        goes_on.append(0 if ends or _is_unspaced(last) else 2 if piece == mark else 1)
        a_word = (
            _is_unspaced(first) and unicodedata.category(first)[0] != "M"
        )  # no vowel or tone of the letter before
        continues.append(0 if begins else 1 if a_word else 2)
    return WordMarks(torch.tensor(goes_on), torch.tensor(continues))


def _first_and_last(piece: str, mark: str) -> tuple[str, str]:
    """The first and the last character of a piece, without its mark; "" or "\ufffd" where they are not known."""
    if mark != "Ġ":
        text = piece.removeprefix(mark).removesuffix(mark)
        return text[:1], text[-1:]
    text = bytes(_BYTES[character] for character in piece.removeprefix(mark) if character in _BYTES)
    begun = (
        text.lstrip(_INNER) or text
    )  # without the rest of a character that the piece before has begun
    # the first bytes of a character tell its script; the last ones may stand in the next piece
    return (begun + b"\x80\x80").decode(errors="replace")[:1], text.decode(errors="replace")[-1:]

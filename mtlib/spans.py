"""Words and spans of a text among its tokens.

Which pieces make up a word, and columns that number the tokens of spans.
"""

import unicodedata
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from itertools import chain, count
from typing import NamedTuple

import torch
from datasets import Dataset
from torch import Tensor
from torch.nn.functional import pad
from transformers.convert_slow_tokenizer import bytes_to_unicode

from mtlib.errors import UserError
from mtlib.plm import SharedPLM
from mtlib.preparing import Prepared, Transform, require_columns, with_column
from mtlib.rows.folding import WORD, Finder, fold, folded_word, is_unspaced, phrases_of
from mtlib.tokens import special_tokens, text_reader

# first character, the one after the last, and perhaps a number
Spans = list[tuple[int, int]] | list[tuple[int, int, int]]
_ROWS = 1000  # texts tokenised at a time
_ONE_WORD = 3  # from here on two neighbours are of one word, see `WordMarks`
# of byte-level vocabularies
_BYTES = {character: byte for byte, character in bytes_to_unicode().items()}
_INNER = bytes(range(0x80, 0xC0))  # never the first byte of a character
_MARKS = {
    "##": str.startswith,
    "Ġ": str.startswith,
    "▁": str.startswith,
    "@@": str.endswith,
    "</w>": str.endswith,
}


class TokenSpans(Transform):
    """Adds a column with the number of the span that each token belongs to, or 0.

    Spans are numbered in reading order from 1 on, unless they bring numbers of their own. Special
    tokens ([UNK] among them) belong to none. Examples without a token in a span are counted. A
    class below it says which spans; it may read any dataset columns that it names.
    """

    reads = ("text", "text_pair")
    column: str  # the one that it adds

    def check(self, plm: SharedPLM) -> None:
        check_offsets(plm.tokenizer, self)

    @abstractmethod
    def spans(self, rows: Dataset) -> Iterator[tuple[Spans, Spans]]:
        """The spans of each row in its text and in its second text.

        They are given by characters, in reading order.
        """

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        return self.numbered(plm, examples)

    def numbered(self, plm: SharedPLM, examples: Dataset) -> Prepared:
        """The examples with the column, whether or not they have such a span."""
        numbers = []
        rows = zip(examples, self._encoded(plm, examples), self.spans(examples), strict=True)
        for row, (ids, offsets, text_of_token), spans in rows:
            if list(ids) != list(row["input_ids"]):
                raise UserError(
                    f"the tokens of {row['text'][:60]!r} are not those of its text, so that spans "
                    f"of it cannot be found; {type(self).__name__} must come before what changes "
                    "tokens."
                )
            texts = (row["text"], row.get("text_pair") or "")
            numbers.append(_token_numbers(texts, spans, offsets, text_of_token))
        counts = {f"{self.column}_unmarked": sum(not any(row) for row in numbers)}
        return Prepared(with_column(examples, self.column, numbers), counts)

    def _encoded(self, plm: SharedPLM, examples: Dataset) -> Iterator[tuple]:
        """Of each row: its tokens as `tokenise` has made them, their offsets, and their texts.

        A token of the first text has 0, one of the second 1, and a special token None.
        """
        require_columns(examples, self, "text")
        check_offsets(plm.tokenizer, self)
        reader = text_reader(plm.tokenizer)
        special = {*special_tokens(plm.tokenizer)}
        # where nothing was cut, this cuts nothing either
        longest = max(map(len, examples["input_ids"]), default=0)
        options = {"truncation": True, "max_length": longest, "return_offsets_mapping": True}
        for first in range(0, len(examples), _ROWS):
            rows = examples[first : first + _ROWS]
            encoded = reader(rows["text"], rows.get("text_pair"), **options)
            for row, ids in enumerate(encoded["input_ids"]):
                text_of_token = []
                for token, text in zip(ids, encoded.sequence_ids(row), strict=True):
                    text_of_token.append(None if token in special else text)
                yield ids, encoded["offset_mapping"][row], text_of_token


def check_offsets(tokenizer, transform: Transform) -> None:
    """Raise `UserError` where spans of a text cannot be found among its tokens."""
    if not tokenizer.is_fast:
        raise UserError(
            f"{type(tokenizer).__name__} does not say which characters a token stands for, which "
            f"{type(transform).__name__} has to know; take a model with a fast tokenizer, or a "
            "policy that reads no text: exact, whole_word, frequency_rare or frequency_frequent."
        )


def _token_numbers(
    texts: Sequence[str],
    spans: Sequence[Spans],
    offsets: Sequence[tuple[int, int]],
    text_of_token: Sequence[int | None],
) -> list[int]:
    """The number of the span that each token belongs to, or 0.

    Args:
        texts: the text of a row and its second one.
        spans: of each text.
        offsets: the characters that each token stands for.
        text_of_token: 0 or 1, the number of its text; None for a special token.
    """
    fresh = count(1)  # numbers go on in the second text
    by_character = [
        span_numbers(text, spans_of_text, fresh)
        for text, spans_of_text in zip(texts, spans, strict=True)
    ]
    by_token = []
    for (start, end), text in zip(offsets, text_of_token, strict=True):
        numbers = [] if text is None else by_character[text][start:end]
        by_token.append(max(numbers, default=0))
    return by_token


def span_numbers(text: str, spans: Spans, fresh: Iterator[int]) -> list[int]:
    """The number of the span that each character of a text belongs to; 0: it belongs to none.

    A span has the number that it brings, or the next one from `fresh`. White space at a span's ends
    does not count, since byte-level BPE and SentencePiece give the space before a word to its first
    piece. Where spans overlap, the later one wins.

    A token belongs to a span if they have a character in common, so every piece is found, those of
    a letter that several tokens share included.
    """
    numbers = [0] * len(text)
    for start, end, *given in spans:
        number = given[0] if given else next(fresh)
        inner = text[start:end].strip()
        first = text.find(inner, start)
        numbers[first : first + len(inner)] = [number] * len(inner)
    return numbers


class WordSpans(TokenSpans):
    """Adds `given_words`: the places where `GivenWords` stand in the texts, numbered.

    Warns of words that stand in none of the texts.

    Raises:
        UserError: none of the words stands in a text, or all are [UNK] for the model.
    """

    column = "given_words"

    def __init__(self, words: str | Iterable[str]):
        self.words = tuple(phrases_of(words))
        self.finder = Finder(self.words)

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        prepared = super().__call__(plm, examples, seed)
        can_be_hidden = map(any, prepared.examples[self.column])
        has_word = self.rows_with_words(examples)
        hidden = [can for can, has in zip(can_be_hidden, has_word, strict=True) if has]
        if n_without := hidden.count(False):
            message = (
                f"in {n_without} of {len(hidden)} texts with given words none can be hidden: "
                "max_length cuts them off, or the tokenizer of "
                f"{plm.tokenizer.name_or_path!r} reads them as {plm.tokenizer.unk_token}."
            )
            if n_without == len(hidden):
                raise UserError(
                    f"{message} Give a longer max_length, or a model of their language."
                )
            warnings.warn(message, stacklevel=2)
        return prepared

    def spans(self, rows: Dataset) -> Iterator[tuple[Spans, Spans]]:
        for row in rows:
            yield self.spans_in(row["text"]), self.spans_in(row.get("text_pair") or "")

    def spans_in(self, text: str) -> Spans:
        """Where the given words stand."""
        return [(place.start, place.end) for place in self.finder.places(text)]

    def rows_with_words(self, examples: Dataset) -> list[bool]:
        """Which rows have a word. Warns of words that stand in no text.

        Raises:
            UserError: none of the words stands in a text.
        """
        columns = [examples[name] for name in self.reads if name in examples.column_names]
        found_in = [
            set().union(*map(self.finder.found, texts)) for texts in zip(*columns, strict=True)
        ]
        found = set().union(*found_in)
        missing = [word for word in self.words if folded_word(word) not in found]
        if missing or not found:
            message = self._not_found(missing, [*chain(*columns)])
            if not found:
                raise UserError(message)
            warnings.warn(message, stacklevel=3)
        return [bool(words) for words in found_in]

    def _not_found(self, missing: list[str], texts: list[str]) -> str:
        """Which words stand in no text, and which ones like them do."""
        message = f"not found in {len(texts)} texts: {', '.join(map(repr, missing))}."
        like_them = _words_like(missing, texts)
        if not like_them:
            return message
        return f"{message} Words like these stand there: {', '.join(sorted(like_them))}."


def _words_like(missing: Iterable[str], texts: Iterable[str]) -> set[str]:
    """Words of the texts that are spelled nearly as those that are missing."""
    in_texts = {fold(word) for text in texts for word in WORD.findall(text)}
    parts = {fold(part) for word in missing for part in word.split()}
    return {like for part in parts for like in get_close_matches(part, in_texts)}


def mask_words(plm: SharedPLM, examples: Dataset, words: str | Iterable[str]) -> Dataset:
    """The examples with a mask in the place of each piece of the words, as "masks_left" trains.

    Args:
        plm: whose tokenizer made the examples.
        examples: tokenised, with the column `text` (and `text_pair`).
        words: as in `WordSpans`; they may stand in none of the texts.
    """
    if not len(examples):
        return examples
    spans = WordSpans(words)
    numbered = spans.numbered(plm, examples).examples
    masked = {"mask": plm.tokenizer.mask_token_id, "column": spans.column}
    hidden = numbered.map(_with_masks, fn_kwargs=masked, keep_in_memory=True)
    return hidden.remove_columns([spans.column])


def _with_masks(row: dict, mask: int, column: str) -> dict:
    pieces = zip(row["input_ids"], row[column], strict=True)
    return {"input_ids": [mask if number else token for token, number in pieces]}


# Not the tokenizer's `word_ids()`: a policy reads tokens alone, among them refilled ones, and of
# tokenizers that have no `word_ids`. Nor are their words the same: WordPiece's differ in scripts
# without spaces (kana, Thai: one word), byte-level BPE's also at punctuation ("don't", "film."),
# SentencePiece's in scripts without spaces and after an unknown piece.
class WordMarks(NamedTuple):
    """How the pieces of a vocabulary make up words.

    Two neighbours are of one word if `goes_on[first] + continues[second]` is 3 or 4.

    WordPiece marks continuations (`##ing`), byte-level BPE and SentencePiece beginnings (`Ġ`, `▁`),
    subword-nmt and fastBPE what goes on (`@@`), the first BPE ends (`</w>`). In a script without
    spaces every piece is a word.

    Args:
        goes_on: `(vocab,)`: 0 ends a word, 1 lets it go on, 2 is a mark alone, which belongs to
            what follows.
        continues: `(vocab,)`: 0 begins a word, 1 is a word of a script without spaces, 2 continues
            one.
    """

    goes_on: Tensor
    continues: Tensor

    def word_begins(self, input_ids: Tensor, maskable: Tensor) -> Tensor:
        """True where a word begins, bool `(batch, seq)`; after a special token one begins."""
        goes_on = self.goes_on.to(input_ids.device)[input_ids]
        continues = self.continues.to(input_ids.device)[input_ids]
        before = pad((goes_on * maskable)[:, :-1], (1, 0))  # (batch, seq)
        return maskable & (before + continues < _ONE_WORD)


def word_marks(tokenizer) -> WordMarks:
    """The marks of a tokenizer's vocabulary.

    Raises:
        UserError: it has none.
    """
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    mark = _mark_of(pieces)
    if mark is None:
        raise UserError(
            f"The tokenizer {type(tokenizer).__name__} marks neither where words begin (Ġ, ▁) nor "
            "where they go on (##, @@) or end (</w>), so whole words cannot be told apart; use "
            "ExactMasking."
        )
    goes_on = [_goes_on(piece, mark) for piece in pieces]
    continues = [_continues(piece, mark) for piece in pieces]
    return WordMarks(torch.tensor(goes_on), torch.tensor(continues))


def _mark_of(pieces: Sequence[str]) -> str | None:
    """The mark that most pieces have: byte-level vocabularies have tokens like "##" too."""
    counts = {
        mark: sum(has_mark(piece, mark) for piece in pieces) for mark, has_mark in _MARKS.items()
    }
    mark = max(counts, key=counts.__getitem__)
    return mark if counts[mark] else None


def _goes_on(piece: str, mark: str) -> int:
    has_mark = _MARKS[mark](piece, mark)
    ends_word = has_mark if mark == "</w>" else mark == "@@" and not has_mark
    _, last = _first_and_last(piece, mark)
    if ends_word or is_unspaced(last):
        return 0
    return 2 if piece == mark else 1


def _continues(piece: str, mark: str) -> int:
    has_mark = _MARKS[mark](piece, mark)
    begins_word = has_mark if mark in ("Ġ", "▁") else mark == "##" and not has_mark
    if begins_word:
        return 0
    first, _ = _first_and_last(piece, mark)
    if not is_unspaced(first) or unicodedata.category(first)[0] == "M":
        return 2  # a vowel or tone mark belongs to the letter before
    return 1


def _first_and_last(piece: str, mark: str) -> tuple[str, str]:
    """The first and the last character of a piece, without its mark.

    They are "" or "\ufffd" where they are not known.
    """
    if mark != "Ġ":
        text = piece.removeprefix(mark).removesuffix(mark)
        return text[:1], text[-1:]
    text = bytes(_BYTES[character] for character in piece.removeprefix(mark) if character in _BYTES)
    # without the rest of a character that the piece before has begun
    begun = text.lstrip(_INNER) or text
    # the first bytes of a character tell its script; the last ones may stand in the next piece
    first = (begun + b"\x80\x80").decode(errors="replace")[:1]
    last = text.decode(errors="replace")[-1:]
    return first, last

"""What masking policies read, computed once for a training set: a column with a number for every token."""

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import chain, count

from datasets import Dataset

from mtlib.errors import UserError
from mtlib.plm import SharedPLM
from mtlib.preparer import Prepared, Preparer, check_texts, with_column
from mtlib.settings import ENGLISH_PIPELINE

Spans = list[tuple[int, int]] | list[tuple[int, int, int]]  # first character, the one after the last; a number
WORD = re.compile(r"\w+(?:['’-]\w+)*")  # "don't" and "well-made" are one word
NUMERALS = ("CARDINAL", "ORDINAL", "PERCENT", "MONEY", "QUANTITY")  # labels of entities that are no names
_ROWS = 1000  # texts tokenised at a time


class MarkTokens(Preparer):
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
        special = set(plm.tokenizer.all_special_ids)
        marks = []
        for row, encoded, spans in zip(examples, self._encoded(plm, examples), self.spans(examples), strict=True):
            ids, offsets, sequence = encoded
            if list(ids) != list(row["input_ids"]):
                raise UserError(
                    f"the tokens of {row['text'][:60]!r} are not those of its text, so that spans of it cannot be "
                    f"found; {type(self).__name__} must come before what changes tokens."
                )
            marks.append(_marks(row, ids, offsets, sequence, spans, special))
        return Prepared(
            with_column(examples, self.column, marks),
            {f"{self.column}_unmarked": sum(not any(row) for row in marks)},
        )

    def _encoded(self, plm: SharedPLM, examples: Dataset) -> Iterator[tuple]:
        """Tokens, their offsets and the text that each belongs to, as `tokenise` has made them."""
        check_texts(examples, self)
        check_offsets(plm.tokenizer, self)
        longest = max(map(len, examples["input_ids"]), default=0)  # where nothing was cut, this cuts nothing either
        for first in range(0, len(examples), _ROWS):
            rows = examples[first : first + _ROWS]
            encoded = plm.tokenizer(
                rows["text"], rows.get("text_pair"), truncation=True, max_length=longest, split_special_tokens=True,
                return_offsets_mapping=True,
            )  # fmt: skip
            for i, ids in enumerate(encoded["input_ids"]):
                yield ids, encoded["offset_mapping"][i], encoded.sequence_ids(i)


def check_offsets(tokenizer, preparer: Preparer) -> None:
    """Raise `UserError` where spans of a text cannot be found among its tokens."""
    if not tokenizer.is_fast:
        raise UserError(
            f"{type(tokenizer).__name__} does not say which characters a token stands for, which "
            f"{type(preparer).__name__} has to know; take a model with a fast tokenizer, or a policy that reads no "
            "text: exact, whole_word, frequency_rare or frequency_frequent."
        )


def mark_spans(text: str, offsets: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int, int]]) -> list[int]:
    """The number of the span that each token belongs to; 0: it belongs to none.

    A token belongs to a span if they have a character in common. White space at a span's ends does not count, since
    byte-level BPE and SentencePiece give the space before a word to its first piece. So every piece of a word is found,
    those of a letter that several tokens share included. Where spans overlap, the later one wins.

    Args:
        text: the text that was tokenised.
        offsets: first character and the one after the last of each token (`return_offsets_mapping`).
        spans: the same of each span, and its number, above 0.
    """
    span_of = [0] * len(text)
    for start, end, number in spans:
        inner = text[start:end].strip()
        first = text.find(inner, start)
        span_of[first : first + len(inner)] = [number] * len(inner)
    return [max(span_of[start:end], default=0) for start, end in offsets]


def _marks(row: dict, ids, offsets, sequence, spans: tuple[Spans, Spans], special: set[int]) -> list[int]:
    """The number of each token's span: those of the second text go on where those of the first end."""
    number = count(1)
    numbered = [[(start, end, *(numbers or [next(number)])) for start, end, *numbers in of_text] for of_text in spans]
    first = mark_spans(row["text"], _of_text(offsets, sequence, 0), numbered[0])
    second = mark_spans(row.get("text_pair") or "", _of_text(offsets, sequence, 1), numbered[1])
    return [0 if token in special else a or b for token, a, b in zip(ids, first, second, strict=True)]


def _of_text(offsets, sequence, wanted: int) -> list[tuple[int, int]]:
    return [place if text == wanted else (0, 0) for place, text in zip(offsets, sequence, strict=True)]


class MarkSalientSpans(MarkTokens):
    """Named entities and dates (times included), found by a spaCy pipeline; numerals (`NUMERALS`) are left out.

    Args:
        pipeline: name of an installed pipeline with an entity recogniser or entity ruler, or the pipeline itself.
    """

    column = "salient_spans"

    def __init__(self, pipeline=ENGLISH_PIPELINE):
        self.pipeline = pipeline

    def check(self, plm: SharedPLM) -> None:
        super().check(plm)
        self._loaded()

    def spans(self, rows: Dataset) -> Iterator[tuple[Spans, Spans]]:
        pipeline = self._loaded()

        def entities(texts: Sequence[str]) -> Iterator[Spans]:
            for document in pipeline.pipe(texts):
                yield [
                    (entity.start_char, entity.end_char) for entity in document.ents if entity.label_ not in NUMERALS
                ]

        pairs = rows["text_pair"] if "text_pair" in rows.column_names else [""] * len(rows)
        return zip(entities(list(rows["text"])), entities(list(pairs)), strict=True)

    def _loaded(self):
        pipeline = self._of_name(self.pipeline) if isinstance(self.pipeline, str) else self.pipeline
        if not any("doc.ents" in pipeline.get_pipe_meta(name).assigns for name in pipeline.pipe_names):
            raise UserError(
                f"the spaCy pipeline {self.pipeline!r} finds no entities; give one with `ner` or `entity_ruler`."
            )
        return pipeline

    @staticmethod
    def _of_name(name: str):
        if find_spec("spacy") is None:
            raise UserError(
                "salient_spans finds named entities with spaCy, which is not installed; `pip install 'mtlib[policies]'`"
                f" brings it, and `python -m spacy download {name}` the pipeline."
            )
        import spacy

        if not spacy.util.is_package(name):
            installed = ", ".join(spacy.util.get_installed_models()) or "none"
            raise UserError(
                f"salient_spans needs the spaCy pipeline {name!r} (installed: {installed}); "
                f"`python -m spacy download {name}` brings it. Name an installed one, or in "
                "Python give MarkSalientSpans the pipeline itself, as spacy.load of a folder returns it."
            )
        return spacy.load(name)


class CountTokens(Preparer):
    """Adds `token_counts`: how often each token occurs in the training set."""

    def __call__(self, plm: SharedPLM, examples: Dataset, seed: int = 0) -> Prepared:
        counts = Counter(chain.from_iterable(examples["input_ids"]))
        rows = [[counts[token] for token in ids] for ids in examples["input_ids"]]
        return Prepared(with_column(examples, "token_counts", rows))

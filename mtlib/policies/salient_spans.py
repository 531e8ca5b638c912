"""A policy that masks a named entity of each text, found by spaCy."""

from collections.abc import Iterator
from dataclasses import dataclass

from datasets import Dataset
from torch import Tensor

from mtlib.errors import UserError
from mtlib.marking import MarkTokens, Spans
from mtlib.masking import CountedMasking, span_begins, uniform
from mtlib.plm import SharedPLM
from mtlib.preparing import Preparer
from mtlib.settings import ENGLISH_PIPELINE

NUMERALS = ("CARDINAL", "ORDINAL", "PERCENT", "MONEY", "QUANTITY")  # labels of entities that are no names


@dataclass(frozen=True)
class SalientSpanMasking(CountedMasking):
    """One named entity or date of each example (+SSM: Guu et al. 2020, Roberts et al. 2020), all equally likely.

    An example without one is masked at random. The column `salient_spans` numbers the spans of an example in reading
    order from 1 on: for each token the span that it belongs to, or 0.

    Args:
        rate: share of the tokens masked in an example without a span (as in `ExactMasking`); the length of a span is
            its own.
        pipeline: name of the installed spaCy pipeline that finds them.
    """

    pipeline: str = ENGLISH_PIPELINE

    columns = {"salient_spans": 0}

    def preparers(self) -> tuple[Preparer, ...]:
        return (MarkSalientSpans(self.pipeline),)

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        spans = batch["salient_spans"].masked_fill(~maskable, 0)  # (batch, seq)
        first = uniform(span_begins(spans), generator).argmin(dim=1, keepdim=True)  # (batch, 1): where one begins
        chosen = (spans > 0) & (spans == spans.gather(1, first))  # (batch, seq)
        without = maskable & ~(spans > 0).any(dim=1, keepdim=True)
        return chosen | self.choose(without, None, generator)


@dataclass(frozen=True)
class MarkSalientSpans(MarkTokens):
    """Named entities and dates (times included), found by a spaCy pipeline; numerals (`NUMERALS`) are left out."""

    pipeline: str = ENGLISH_PIPELINE  # name of an installed one with an entity recogniser or entity ruler

    column = "salient_spans"

    def check(self, plm: SharedPLM) -> None:
        super().check(plm)
        loaded(self.pipeline)

    def spans(self, rows: Dataset) -> Iterator[tuple[Spans, Spans]]:
        pairs = rows["text_pair"] if "text_pair" in rows.column_names else [""] * len(rows)
        read = loaded(self.pipeline).pipe
        for documents in zip(read(list(rows["text"])), read(list(pairs)), strict=True):
            yield tuple(
                [(entity.start_char, entity.end_char) for entity in document.ents if entity.label_ not in NUMERALS]
                for document in documents
            )


def loaded(name: str):
    """The installed spaCy pipeline of that name."""
    try:
        import spacy

        return spacy.load(name)
    except (ImportError, OSError) as error:
        raise UserError(
            f"salient_spans needs spaCy, which `pip install 'mtlib[policies]'` brings, and its pipeline {name!r}, "
            f"which `python -m spacy download {name}` brings ({error})."
        ) from error

"""A policy that masks a named entity of each text, found by spaCy."""

from collections.abc import Iterator
from dataclasses import dataclass

from datasets import Dataset
from torch import Tensor

from mtlib.errors import UserError
from mtlib.masking import CountedMasking, span_begins, uniform
from mtlib.plm import SharedPLM
from mtlib.preparing import Transform
from mtlib.settings import ENGLISH_PIPELINE
from mtlib.spans import Spans, TokenSpans

# labels of entities that are not names
NUMERALS = ("CARDINAL", "ORDINAL", "PERCENT", "MONEY", "QUANTITY")


@dataclass(frozen=True)
class SalientSpanMasking(CountedMasking):
    """One random named entity or date of each example (+SSM: Guu et al. 2020, Roberts et al. 2020).

    An example without one is masked at random. The column `salient_spans` has the number of the
    span that each token belongs to, in reading order from 1 on, and 0 for other tokens.

    Args:
        rate: share of the tokens masked in an example without a span, as in `ExactMasking`. A span
            is masked whole, whatever the rate.
        pipeline: name of the installed spaCy pipeline that finds the spans.
    """

    pipeline: str = ENGLISH_PIPELINE

    columns = {"salient_spans": 0}

    def transforms(self) -> tuple[Transform, ...]:
        return (SalientSpans(self.pipeline),)

    def __call__(self, batch, maskable, rng=None, plm=None) -> Tensor:
        spans = batch["salient_spans"].masked_fill(~maskable, 0)  # (batch, seq)
        # (batch, 1): the position at which the chosen span begins
        first = uniform(span_begins(spans), rng).argmin(dim=1, keepdim=True)
        chosen = (spans > 0) & (spans == spans.gather(1, first))  # (batch, seq)
        without = maskable & ~(spans > 0).any(dim=1, keepdim=True)
        return chosen | self.choose(without, None, rng)


@dataclass(frozen=True)
class SalientSpans(TokenSpans):
    """Marks named entities, dates and times, but no numerals (`NUMERALS`).

    Args:
        pipeline: name of an installed spaCy pipeline with an entity recogniser or entity ruler.
    """

    pipeline: str = ENGLISH_PIPELINE

    column = "salient_spans"

    def check(self, plm: SharedPLM) -> None:
        super().check(plm)
        load_pipeline(self.pipeline)

    def spans(self, rows: Dataset) -> Iterator[tuple[Spans, Spans]]:
        texts = list(rows["text"])
        text_pairs = [""] * len(texts)
        if "text_pair" in rows.column_names:
            text_pairs = list(rows["text_pair"])
        nlp = load_pipeline(self.pipeline)
        for document, document_pair in zip(nlp.pipe(texts), nlp.pipe(text_pairs), strict=True):
            yield entity_spans(document), entity_spans(document_pair)


def entity_spans(document) -> Spans:
    """The characters of a spaCy document's entities, numerals left out."""
    entities = [entity for entity in document.ents if entity.label_ not in NUMERALS]
    return [(entity.start_char, entity.end_char) for entity in entities]


def load_pipeline(name: str):
    """The installed spaCy pipeline with this name."""
    try:
        import spacy

        return spacy.load(name)
    except (ImportError, OSError) as error:
        raise UserError(
            f"salient_spans needs spaCy (`pip install spacy`) and its pipeline {name!r}, "
            f"which `python -m spacy download {name}` brings ({error})."
        ) from error

"""Policies that mask a span of its own length which the text brings along: a named entity."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from datasets import Dataset
from torch import Tensor

from mtlib.errors import UserError
from mtlib.masking import CountedMasking, MarkTokens, MaskingPolicy, Spans, uniform
from mtlib.plm import SharedPLM
from mtlib.settings import ENGLISH_PIPELINE, MASK_RATE, SHARE

NUMERALS = ("CARDINAL", "ORDINAL", "PERCENT", "MONEY", "QUANTITY")  # labels of entities that are no names


@dataclass(frozen=True)
class SalientSpanMasking(MaskingPolicy):
    """One named entity or date of each example (+SSM: Guu et al. 2020, Roberts et al. 2020), all equally likely.

    An example without one is masked at random. The column `salient_spans` numbers the spans of an example in reading
    order from 1 on: for each token the span that it belongs to, or 0.

    Args:
        rate: share of the tokens masked in an example without a span (as in `ExactMasking`); the length of a span is
            its own.
        pipeline: name of the installed spaCy pipeline that finds them.
    """

    rate: float = MASK_RATE
    pipeline: str = ENGLISH_PIPELINE

    columns = {"salient_spans": 0}  # noqa: RUF012  (never changed)
    prepared_by = "mtlib.policies.salient_spans:MarkSalientSpans"

    def __post_init__(self):
        SHARE.check("rate", self.rate)

    def preparer_options(self):
        return {"pipeline": self.pipeline}

    def __call__(self, batch, maskable, generator=None, plm=None) -> Tensor:
        spans = self.column(batch, "salient_spans").masked_fill(~maskable, 0)  # (batch, seq)
        before = torch.nn.functional.pad(spans.cummax(dim=1).values, (1, 0))[:, :-1]
        begins = spans > before  # (batch, seq): an [UNK] within a span does not begin it anew
        first = uniform(begins, generator).argmin(dim=1, keepdim=True)  # (batch, 1): a place in the chosen span
        chosen = (spans > 0) & (spans == spans.gather(1, first))  # (batch, seq)
        without = maskable & ~(spans > 0).any(dim=1, keepdim=True)
        return chosen | CountedMasking(self.rate).choose(without, None, generator)


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

"""Part-of-speech tags of words in context, by a linear probe on the bundled model's frozen states."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mtlib.marking import continues_word

WEIGHTS_FILE, SETTINGS_FILE = "probe.safetensors", "probe.json"
_BATCH = 32


class Span(NamedTuple):
    """Characters `start` to `end` of a text."""

    start: int
    end: int


class PosProbe:
    """tag = argmax_t (w_t · h + b_t), where h is the mean of a word's pieces in one layer of a frozen encoder.

    Tags are universal parts of speech, and for nouns, verbs, auxiliaries, adjectives and adverbs the Penn tag
    behind a stroke, which tells number, tense and degree: `NOUN/NNS`, `VERB/VBD`, `DET`. `PRON/PRP$` is a possessive.

    Args:
        trunk: the encoder that the probe was trained on, in evaluation mode.
        tokenizer: its fast tokenizer.
        weight: `(tags, hidden)`.
        bias: `(tags,)`.
        tags: names of the rows.
        layer: 0 is the embeddings, 1 the first layer's output.
    """

    def __init__(
        self, trunk: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, weight: Tensor, bias: Tensor,
        tags: Sequence[str], layer: int,
    ):  # fmt: skip
        self.trunk, self.tokenizer = trunk, tokenizer
        self.weight, self.bias = weight.float(), bias.float()
        self.tags, self.layer = tuple(tags), layer
        self._continues = continues_word(tokenizer)

    @classmethod
    def load(cls, folder: Path, trunk: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> "PosProbe":
        """The bundled probe is in `paths.MINI_POS_DIR`, beside the script that trains it."""
        settings, state = json.loads((folder / SETTINGS_FILE).read_text()), load_file(folder / WEIGHTS_FILE)
        return cls(trunk, tokenizer, state["weight"], state["bias"], settings["tags"], settings["layer"])

    def tag(self, texts: Sequence[str], places: Sequence[Span]) -> list[str]:
        """The tag of one word of each text, which must have one: that of the first piece inside the place."""
        return [tag for (tag,) in self.tag_all(texts, [[place] for place in places])]

    def tag_all(self, texts: Sequence[str], places: Sequence[Sequence[Span]]) -> list[list[str | None]]:
        """The tags of several words of each text, None for a place without a token."""
        states = self.states(texts, places)
        known = [state for of_text in states for state in of_text if state is not None]
        best = iter(self.scores(torch.stack(known)).argmax(dim=-1).tolist() if known else [])
        return [[None if state is None else self.tags[next(best)] for state in of_text] for of_text in states]

    def scores(self, states: Tensor) -> Tensor:
        """`(n, hidden)` -> `(n, tags)`."""
        return states @ self.weight.T + self.bias

    @torch.no_grad()
    def states(
        self, texts: Sequence[str], places: Sequence[Sequence[Span]], find: Callable | None = None
    ) -> list[list[Tensor | None]]:
        """Mean states of the pieces at each place, `(hidden,)`.

        Args:
            places: per text.
            find: `(pieces, continues, place)` -> the first piece and the one after the last, or None; default
                `whole_word`. A piece is None where no text stands, and `continues` says which go on with a word.
        """
        of_texts, find = [], find or whole_word
        for first in range(0, len(texts), _BATCH):
            batch = self.tokenizer(
                list(texts[first : first + _BATCH]), padding=True, padding_side="right", truncation=True,
                return_offsets_mapping=True, return_special_tokens_mask=True, return_tensors="pt",
            )  # fmt: skip
            offsets, special = batch.pop("offset_mapping").tolist(), batch.pop("special_tokens_mask").tolist()
            hidden = self.trunk(**batch, output_hidden_states=True).hidden_states[self.layer]  # (batch, seq, hidden)
            for row, wanted in enumerate(places[first : first + _BATCH]):
                pieces = [None if none else Span(*span) for span, none in zip(offsets[row], special[row], strict=True)]
                continues = self._continues[batch["input_ids"][row]].tolist()
                runs = [find(pieces, continues, place) for place in wanted]
                of_texts.append([hidden[row, slice(*run)].float().mean(dim=0) if run else None for run in runs])
        return of_texts


def whole_word(pieces: list[Span | None], continues: list[bool], place: Span) -> tuple[int, int] | None:
    """The word that the first piece at a place belongs to."""
    inside = pieces_at(pieces, place)
    if not inside:
        return None
    first, last = inside[0], inside[0] + 1
    while pieces[first - 1] is not None and continues[first]:
        first -= 1
    while last < len(pieces) and pieces[last] is not None and continues[last]:
        last += 1
    return first, last


def pieces_at(pieces: list[Span | None], place: Span) -> list[int]:
    """Those that have a character in common with a place."""
    return [i for i, piece in enumerate(pieces) if piece and piece.start < place[1] and place[0] < piece.end]

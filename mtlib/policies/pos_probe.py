"""Part-of-speech tags of words in context, by a linear probe on the bundled model's frozen states."""

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mtlib.contexts import forked_random_state
from mtlib.paths import MINI_MODEL_DIR, MINI_POS_DIR
from mtlib.plm import SharedPLM

WEIGHTS_FILE, SETTINGS_FILE = "probe.safetensors", "probe.json"
_BATCH = 32


class Piece(NamedTuple):
    """A token: its characters `start` to `end` of the text, and the number of its word; None: it is no text."""

    start: int
    end: int
    word: int | None


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

    @classmethod
    def bundled(cls) -> "PosProbe":
        """The probe in `paths.MINI_POS_DIR`, which lies beside the script that trains it, on the bundled model."""
        with forked_random_state(torch.device("cpu")):  # the classifier, which is not used, draws random weights
            plm = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2).eval()
        settings, state = json.loads((MINI_POS_DIR / SETTINGS_FILE).read_text()), load_file(MINI_POS_DIR / WEIGHTS_FILE)
        return cls(plm.trunk, plm.tokenizer, state["weight"], state["bias"], settings["tags"], settings["layer"])

    def tag(self, texts: Sequence[str], places: Sequence[Sequence[tuple[int, int]]]) -> list[list[str | None]]:
        """The tags of the words of each text at some places, None for a place without a token.

        Of each place, first character and the one after the last, the tag is that of its first piece's word.
        """
        states = self.states(texts, places)
        known = [state for of_text in states for state in of_text if state is not None]
        best = iter(self.scores(torch.stack(known)).argmax(dim=-1).tolist() if known else [])
        return [[None if state is None else self.tags[next(best)] for state in of_text] for of_text in states]

    def scores(self, states: Tensor) -> Tensor:
        """`(n, hidden)` -> `(n, tags)`."""
        return states @ self.weight.T + self.bias

    @torch.no_grad()
    def states(
        self, texts: Sequence[str], places: Sequence[Sequence[tuple[int, int]]], find: Callable | None = None
    ) -> list[list[Tensor | None]]:
        """Mean states of the pieces at each place, `(hidden,)`; None where there are none.

        `find` says which ones: `(pieces, place)` -> their numbers; default `whole_word`.
        """
        of_texts, find = [], find or whole_word
        for first in range(0, len(texts), _BATCH):
            batch = self.tokenizer(
                list(texts[first : first + _BATCH]), padding=True, padding_side="right", truncation=True,
                return_offsets_mapping=True, return_tensors="pt",
            )  # fmt: skip
            offsets = batch.pop("offset_mapping").tolist()
            hidden = self.trunk(**batch, output_hidden_states=True).hidden_states[self.layer]  # (batch, seq, hidden)
            for row, wanted in enumerate(places[first : first + _BATCH]):
                pieces = [Piece(*ends, word) for ends, word in zip(offsets[row], batch.word_ids(row), strict=True)]
                found = [find(pieces, place) for place in wanted]
                of_texts.append([hidden[row, numbers].float().mean(dim=0) if numbers else None for numbers in found])
        return of_texts


def whole_word(pieces: Sequence[Piece], place: tuple[int, int]) -> list[int]:
    """The numbers of all pieces of the word that the first piece at a place belongs to."""
    at = pieces_at(pieces, place)[:1]
    return [number for number, piece in enumerate(pieces) if at and piece.word == pieces[at[0]].word]


def pieces_at(pieces: Sequence[Piece], place: tuple[int, int]) -> list[int]:
    """The numbers of those that have a character in common with a place."""
    start, end = place
    return [i for i, piece in enumerate(pieces) if piece.word is not None and piece.start < end and start < piece.end]

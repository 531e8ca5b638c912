"""Part-of-speech tags of words in context, by a linear probe on the bundled model's states."""

import json
from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mtlib.contexts import forked_random_state
from mtlib.paths import MINI_MODEL_DIR, MINI_POS_DIR
from mtlib.plm import SharedPLM

WEIGHTS_FILE = "probe.safetensors"
SETTINGS_FILE = "probe.json"
_BATCH = 32

Span = tuple[int, int]  # the first character of a word, and the one after its last


class Piece(NamedTuple):
    """A token: its characters `start` to `end` of the text, and the number of its word.

    The number is None for special tokens and padding.
    """

    start: int
    end: int
    word: int | None


class PosProbe:
    """Tags words by a linear classifier of their states in one layer of a frozen encoder.

    tag = argmax_t (w_t · h + b_t), where h is the mean state of a word's pieces. Tags are
    universal parts of speech. Nouns, verbs, auxiliaries, adjectives and adverbs also have the Penn
    tag, which gives number, tense and degree: `NOUN/NNS`, `VERB/VBD`, `DET`. `PRON/PRP$` is a
    possessive.

    Args:
        trunk: the encoder that the probe was trained on, in evaluation mode.
        tokenizer: its fast tokenizer.
        weight: `(tags, hidden)`.
        bias: `(tags,)`.
        tags: names of the rows of `weight`.
        layer: 0 is the embeddings, 1 the first layer's output.
    """

    def __init__(
        self,
        trunk: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        weight: Tensor,
        bias: Tensor,
        tags: Sequence[str],
        layer: int,
    ):
        self.trunk = trunk
        self.tokenizer = tokenizer
        self.weight = weight.float()
        self.bias = bias.float()
        self.tags = tuple(tags)
        self.layer = layer

    @classmethod
    def bundled(cls) -> "PosProbe":
        """The probe in `paths.MINI_POS_DIR` on the bundled model.

        The script that trains it is in the same folder.
        """
        # the classifier is not used, but draws random weights
        with forked_random_state(torch.device("cpu")):
            plm = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2).eval()
        settings = json.loads((MINI_POS_DIR / SETTINGS_FILE).read_text())
        state = load_file(MINI_POS_DIR / WEIGHTS_FILE)
        return cls(
            plm.trunk,
            plm.tokenizer,
            state["weight"],
            state["bias"],
            settings["tags"],
            settings["layer"],
        )

    def tag(
        self,
        texts: Sequence[str],
        spans: Sequence[Sequence[Span]],
    ) -> list[list[str | None]]:
        """The tag of the word at each span of each text; None for a span without a token.

        Where a span covers more than one word, the first is tagged.
        """
        states = self.states(texts, spans)
        known = [state for state in chain.from_iterable(states) if state is not None]
        if not known:
            return [[None] * len(row) for row in states]
        best = iter(self.scores(torch.stack(known)).argmax(dim=-1).tolist())
        tags = []
        for row in states:
            tags.append([None if state is None else self.tags[next(best)] for state in row])
        return tags

    def scores(self, states: Tensor) -> Tensor:
        """`(n, hidden)` -> `(n, tags)`."""
        return states @ self.weight.T + self.bias

    @torch.no_grad()
    def states(
        self,
        texts: Sequence[str],
        spans: Sequence[Sequence[Span]],
        choose_pieces: Callable[[Sequence[Piece], Span], list[int]] | None = None,
    ) -> list[list[Tensor | None]]:
        """The mean state `(hidden,)` of the pieces at each span; None where there are none.

        `choose_pieces` is asked for their numbers, with all pieces of a text and a span. By default
        it is `whole_word`.
        """
        choose_pieces = choose_pieces or whole_word
        states = []
        for start in range(0, len(texts), _BATCH):
            batch = self.tokenizer(
                list(texts[start : start + _BATCH]),
                padding=True,
                padding_side="right",
                truncation=True,
                return_offsets_mapping=True,
                return_tensors="pt",
            )
            offsets = batch.pop("offset_mapping").tolist()
            output = self.trunk(**batch, output_hidden_states=True)
            hidden = output.hidden_states[self.layer]  # (batch, seq, hidden)
            for row, spans_of_text in enumerate(spans[start : start + _BATCH]):
                pieces = pieces_of(offsets[row], batch.word_ids(row))
                chosen = [choose_pieces(pieces, span) for span in spans_of_text]
                states.append([mean_state(hidden[row], numbers) for numbers in chosen])
        return states


def pieces_of(offsets: Sequence[Span], word_ids: Sequence[int | None]) -> list[Piece]:
    """The tokens of a text, from what a fast tokenizer says of each."""
    pairs = zip(offsets, word_ids, strict=True)
    return [Piece(start, end, word) for (start, end), word in pairs]


def mean_state(states: Tensor, numbers: list[int]) -> Tensor | None:
    """The mean of some rows of `states` `(seq, hidden)`; None for no rows."""
    return states[numbers].float().mean(dim=0) if numbers else None


def whole_word(pieces: Sequence[Piece], span: Span) -> list[int]:
    """The numbers of all pieces of the first word in a span."""
    found = pieces_at(pieces, span)
    if not found:
        return []
    word = pieces[found[0]].word
    return [number for number, piece in enumerate(pieces) if piece.word == word]


def pieces_at(pieces: Sequence[Piece], span: Span) -> list[int]:
    """The numbers of the pieces that have a character in common with a span."""
    start, end = span
    numbers = []
    for number, piece in enumerate(pieces):
        if piece.word is not None and piece.start < end and start < piece.end:
            numbers.append(number)
    return numbers

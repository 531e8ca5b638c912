"""Part-of-speech tags of single words in context, by a linear probe on the bundled model's frozen states."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from mtlib.errors import UserError
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
        if weight.shape != (len(tags), trunk.config.hidden_size) or bias.shape != (len(tags),):
            raise UserError(
                f"a probe of shape {tuple(weight.shape)} with {len(tags)} tags does not fit a model with hidden size "
                f"{trunk.config.hidden_size}; load it with the model it was trained on."
            )
        self.trunk, self.tokenizer = trunk, tokenizer
        self.weight, self.bias = weight.float(), bias.float()
        self.tags, self.layer = tuple(tags), layer
        self._continues = continues_word(tokenizer)

    @classmethod
    def load(cls, folder: str | Path, trunk: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> "PosProbe":
        """Read what `save` wrote (the bundled probe is in `paths.MINI_POS_DIR`)."""
        folder = Path(folder)
        if not (folder / SETTINGS_FILE).is_file() or not (folder / WEIGHTS_FILE).is_file():
            raise UserError(f"{folder} holds no probe; expected {WEIGHTS_FILE} and {SETTINGS_FILE}.")
        settings, state = json.loads((folder / SETTINGS_FILE).read_text()), load_file(folder / WEIGHTS_FILE)
        return cls(trunk, tokenizer, state["weight"], state["bias"], settings["tags"], settings["layer"])

    def save(self, folder: str | Path) -> None:
        """Weights as float16, tags and layer as JSON."""
        state = {"weight": self.weight.half().contiguous(), "bias": self.bias.half().contiguous()}
        save_file(state, Path(folder) / WEIGHTS_FILE, metadata={"format": "pt"})
        settings = {"tags": list(self.tags), "layer": self.layer}
        (Path(folder) / SETTINGS_FILE).write_text(json.dumps(settings, indent=1) + "\n")

    def tag(self, texts: Sequence[str], places: Sequence[Span]) -> list[str]:
        """The tag of one word of each text: the word that the first piece inside the place belongs to.

        Raises:
            UserError: a place without a token (empty, or behind the model's longest input).
        """
        if not texts:
            return []
        states = self.states(texts, [[place] for place in places], whole_words=True)
        for text, place, (state,) in zip(texts, places, states, strict=True):
            if state is None:
                raise UserError(f"no token at characters {place[0]} to {place[1]} of {text!r}; give a word's place.")
        stacked = torch.stack([state for (state,) in states])  # (n, hidden)
        return [self.tags[index] for index in self.scores(stacked).argmax(dim=-1).tolist()]

    def scores(self, states: Tensor) -> Tensor:
        """`(n, hidden)` -> `(n, tags)`."""
        return states @ self.weight.T + self.bias

    @torch.no_grad()
    def states(
        self, texts: Sequence[str], places: Sequence[Sequence[Span]], whole_words: bool = False
    ) -> list[list[Tensor | None]]:
        """Mean states of the pieces at each place, `(hidden,)`.

        Args:
            places: per text.
            whole_words: take the whole word that the first piece at the place belongs to. Otherwise the pieces must
                begin and end where the place does, and it is None where they do not.
        """
        of_texts = []
        for first in range(0, len(texts), _BATCH):
            batch = self.tokenizer(
                list(texts[first : first + _BATCH]), padding=True, padding_side="right", truncation=True,
                return_offsets_mapping=True, return_special_tokens_mask=True, return_tensors="pt",
            )  # fmt: skip
            offsets = batch.pop("offset_mapping").tolist()
            ordinary = (1 - batch.pop("special_tokens_mask")).bool().tolist()
            hidden = self.trunk(**batch, output_hidden_states=True).hidden_states[self.layer]  # (batch, seq, hidden)
            for row, wanted in enumerate(places[first : first + _BATCH]):
                ids = batch["input_ids"][row]
                pieces = [Span(*span) if real else None for span, real in zip(offsets[row], ordinary[row], strict=True)]
                choose = self._whole_word if whole_words else _exact
                chosen = [choose(pieces, ids, place) for place in wanted]
                of_texts.append([hidden[row, slice(*run)].float().mean(dim=0) if run else None for run in chosen])
        return of_texts

    def _whole_word(self, pieces: list[Span | None], ids: Tensor, place: Span) -> tuple[int, int] | None:
        inside = _overlapping(pieces, place)
        if not inside:
            return None
        first, last = inside[0], inside[0] + 1
        while pieces[first - 1] is not None and self._continues[ids[first]]:
            first -= 1
        while last < len(pieces) and pieces[last] is not None and self._continues[ids[last]]:
            last += 1
        return first, last


def _exact(pieces: list[Span | None], ids: Tensor, place: Span) -> tuple[int, int] | None:
    inside = _overlapping(pieces, place)
    if not inside or pieces[inside[0]].start != place[0] or pieces[inside[-1]].end != place[1]:
        return None
    return inside[0], inside[-1] + 1


def _overlapping(pieces: list[Span | None], place: Span) -> list[int]:
    return [i for i, piece in enumerate(pieces) if piece and piece.start < place[1] and place[0] < piece.end]

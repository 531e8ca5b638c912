"""Part-of-speech tags of words in context, by a linear probe on the bundled model's states."""

import json
from collections.abc import Callable, Sequence
from itertools import chain

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase

from mtlib.contexts import forked_random_state
from mtlib.paths import MINI_MODEL_DIR, MINI_POS_DIR
from mtlib.plm import SharedPLM

WEIGHTS_FILE = "probe.safetensors"
SETTINGS_FILE = "probe.json"
_BATCH = 32

Span = tuple[int, int]  # the first character of a word, and the one after its last


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
        choose_pieces: Callable[[BatchEncoding, int, Span], list[int]] | None = None,
    ) -> list[list[Tensor | None]]:
        """The mean state `(hidden,)` of the pieces at each span; None where there are none.

        `choose_pieces` is asked for their numbers, with a tokenised batch, the text's row in it and
        a span. By default it is `whole_word`.
        """
        choose_pieces = choose_pieces or whole_word
        states = []
        for start in range(0, len(texts), _BATCH):
            batch = self.tokenizer(
                list(texts[start : start + _BATCH]),
                padding=True,
                padding_side="right",
                truncation=True,
                return_tensors="pt",
            )
            output = self.trunk(**batch, output_hidden_states=True)
            hidden = output.hidden_states[self.layer]  # (batch, seq, hidden)
            for row, spans_of_text in enumerate(spans[start : start + _BATCH]):
                chosen = [choose_pieces(batch, row, span) for span in spans_of_text]
                states.append([mean_state(hidden[row], numbers) for numbers in chosen])
        return states


def mean_state(states: Tensor, numbers: list[int]) -> Tensor | None:
    """The mean of some rows of `states` `(seq, hidden)`; None for no rows."""
    return states[numbers].float().mean(dim=0) if numbers else None


def whole_word(batch: BatchEncoding, row: int, span: Span) -> list[int]:
    """The numbers of all pieces of the first word in a span."""
    for character in range(*span):
        word = batch.char_to_word(row, character)
        if word is not None:
            return [*range(*batch.word_to_tokens(row, word))]
    return []

"""Class probabilities of texts, by any sequence classifier that transformers reads."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BatchEncoding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from mtlib.checkpoints import load_config, load_model, load_pretrained, longest_input
from mtlib.contexts import evaluating
from mtlib.encoding import DEFAULT_LENGTH, Collator, batches_by_length
from mtlib.errors import UserError
from mtlib.own_data.exchanges import Place, Texts
from mtlib.plm import SharedPLM
from mtlib.rows.folding import fold
from mtlib.tokens import text_reader

_BATCH = 64  # texts that are read together
_BLANK = "▁"  # SentencePiece's, before a word
_NUMBERED = "LABEL_"  # how transformers names classes that nobody has named


@dataclass
class Classifier:
    """Class probabilities of texts, by any model of transformers.

    Args:
        model: a `*ForSequenceClassification`.
        tokenizer: the model's.
        labels: the names of its classes.
        length: texts are cut to so many tokens.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    labels: list[str]
    length: int

    @classmethod
    def of(
        cls,
        model: str | Path | SharedPLM,
        labels: Sequence[str] | None,
        max_length: int | None,
    ) -> "Classifier":
        if isinstance(model, SharedPLM):
            network, tokenizer = model.classifier, model.tokenizer
        else:
            name = str(model)
            tokenizer = load_pretrained(AutoTokenizer, name)
            config = load_config(name, {}, {})
            model = network = load_model(AutoModelForSequenceClassification, name, config, {})
        if not tokenizer.is_fast:
            raise UserError(
                f"{type(tokenizer).__name__} does not say which characters a token stands for; "
                "take a model with a fast tokenizer."
            )
        if torch.cuda.is_available():
            model.to("cuda")
        if tokenizer.pad_token is None:  # GPT-2's
            tokenizer.pad_token = tokenizer.eos_token
            network.config.pad_token_id = tokenizer.pad_token_id
        names = [network.config.id2label[number] for number in range(network.config.num_labels)]
        if labels is not None:
            _check_number(labels, names)
            names = list(labels)
        length = max_length or max(DEFAULT_LENGTH, getattr(network.config, "trained_length", 0))
        length = min(length, longest_input(network, tokenizer))
        return cls(network, tokenizer, names, length)

    def __post_init__(self):
        self.reader = text_reader(self.tokenizer)
        self.collate = Collator(self.tokenizer)
        self.inputs = signature(self.model.forward).parameters.keys()

    @property
    def has_names(self) -> bool:
        """Whether somebody has named its classes."""
        return not all(name.startswith(_NUMBERED) for name in self.labels)

    def encode(self, texts: Sequence[Texts]) -> Dataset:
        """The model's inputs of each row."""
        return Dataset.from_dict(dict(self._encoded(texts)))

    def reads(self, texts: Sequence[Texts], places: Sequence[Iterable[Place]]) -> list[bool]:
        """Of each row, whether it reads a character of these places: not cut off, nor [UNK]."""
        encoded = self._encoded(texts)
        unread = {self.tokenizer.unk_token_id, self.tokenizer.convert_tokens_to_ids(_BLANK)}
        are_read = []
        for row, places_of_row in enumerate(places):
            tokens = {
                encoded.char_to_token(row, sign, column)
                for column, start, end in places_of_row
                for sign in range(start, end)
            }
            numbers = {encoded["input_ids"][row][token] for token in tokens - {None}}
            are_read.append(bool(numbers - unread))
        return are_read

    def reads_word(self, word: str) -> bool:
        """Whether any of it is another token than [UNK]."""
        return self.reads([(word,)], [[Place(0, 0, len(word))]])[0]

    def _encoded(self, texts: Sequence[Texts]) -> BatchEncoding:
        columns = [list(column) for column in zip(*texts, strict=True)]
        return self.reader(*columns, truncation=True, max_length=self.length)

    @torch.inference_mode()
    def probabilities(self, examples: Dataset) -> np.ndarray:
        """`(n, num_labels)` of encoded texts."""
        probabilities = np.empty((len(examples), len(self.labels)))
        batches = batches_by_length(examples, self.collate, self.model.device, _BATCH)
        with evaluating(self.model):
            for rows, batch in batches:
                inputs = {name: batch[name] for name in batch if name in self.inputs}
                logits = self.model(**inputs, return_dict=True).logits  # (batch, num_labels)
                probabilities[rows] = logits.float().softmax(-1).cpu().numpy()
        return probabilities


def _check_number(labels: Sequence[str], names: Sequence[str]) -> None:
    if len(labels) != len(names):
        raise UserError(
            f"labels is {', '.join(labels)}; expected {len(names)} names, one for each class of "
            f"the model ({', '.join(names)})."
        )


def class_numbers(labels: Iterable[str], classifier: Classifier) -> dict[str, int]:
    """The number of the model's class for each label of the rows.

    Names may differ in case, unless two classes differ in nothing else. The numbers 0, 1, 2 are
    those of classes without names.
    """
    by_name = {name: number for number, name in enumerate(classifier.labels)}
    if not classifier.has_names:
        by_name |= {str(number): number for number in range(len(classifier.labels))}
    numbers = {label: _number_of(label, by_name) for label in sorted(labels)}
    unknown = [label for label, number in numbers.items() if number is None]
    if unknown:
        raise _unknown(unknown[0], classifier)
    return numbers


def _unknown(label: str, classifier: Classifier) -> UserError:
    return UserError(
        f"the rows have the label {label!r}, and the model's are {', '.join(classifier.labels)}; "
        "give the names of its classes as `labels` (`--labels`), in the order of their numbers."
    )


def _number_of(label: str, by_name: Mapping[str, int]) -> int | None:
    """The number of the class that is called so, or of the only one that differs in case alone."""
    if label in by_name:
        return by_name[label]
    alike = [number for name, number in by_name.items() if fold(name) == fold(label)]
    return alike[0] if len(alike) == 1 else None

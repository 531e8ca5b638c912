"""What a run reads: its sets and its model, and the identity that follows from them."""

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mtlib.data.identity import file_sha256
from mtlib.data.sources import CAD_TRAIN, is_testbed, load_described
from mtlib.data.tasks import TASKS, Task
from mtlib.errors import UserError
from mtlib.policies import OWN_LENGTH
from mtlib.runs import records
from mtlib.runs.config import RunConfig

if TYPE_CHECKING:
    from datasets import Dataset

HELD_OUT = "held_out"  # among the sets of a run, and in its metrics
# of a local model: the weights, the configuration and the tokenizer
_MODEL_FILES = (
    "*.safetensors",
    "masked_lm/*.safetensors",
    "config.json",
    "tokenizer*.json",
    "special_tokens_map.json",
    "vocab.*",
    "merges.txt",
    "*.model",
)


@dataclass(frozen=True)
class Inputs:
    """What a run reads, and what it is known by.

    Args:
        config: resolved, and its task.
        model_sha256: of the files of a local model; None for one from the hub.
        descriptions: of the training set (as "train"), of the evaluation sets, and of the set
            whose spans a policy learns to mask (as `records.TRAIN_SPANS`); see
            `sources.load_described`.
        whole_sets: the rows of the same sets.
        precisions: those in which a record of this run will do; all where that was left to the
            device.
    """

    config: RunConfig
    task: Task
    model_sha256: str | None
    descriptions: dict[str, dict]
    whole_sets: "dict[str, Dataset]"
    precisions: tuple[str, ...]

    @cached_property
    def public(self) -> dict:
        """The configuration as a record has it."""
        return self.config.public()

    @cached_property
    def identity(self) -> str:
        return self._identity(self.config.precision)

    @cached_property
    def identities(self) -> tuple[str, ...]:
        """Those of the records that will do."""
        return tuple(map(self._identity, self.precisions))

    def _identity(self, precision: str) -> str:
        public = self.public | {"precision": precision}
        return records.identity(public, self.model_sha256, records.decisive_data(self.descriptions))

    @cached_property
    def training(self) -> str:
        """The identity of its training, which runs that are scored on other sets share."""
        return records.training_identity(self.public, self.model_sha256, self.descriptions)

    @property
    def scored(self) -> tuple[str, ...]:
        """The names of the sets that the model is scored on."""
        held_out = (HELD_OUT,) if HELD_OUT in self.descriptions else ()
        return (*self.config.sets, *held_out)

    def record_path(self, out: Path) -> Path:
        """Where `run` writes, or has written, the record."""
        config = self.config
        model = Path(self.public["model"]).name.lower().replace("_", "-")
        name = f"{config.task}-{config.method}-{model}-seed{config.seed}-{self.identity[:10]}"
        return out / f"{name}.json"

    def shipped_record(self) -> dict | None:
        """The shipped record of this run, if there is one.

        It may be from another machine and by other code.
        """
        shipped = records.shipped_records()
        return next(filter(None, map(shipped.get, self.identities)), None)

    @cached_property
    def datasets(self) -> "dict[str, Dataset]":
        """The sets as the run reads them.

        What is held out and what is not drawn is no training example.
        """
        datasets = dict(self.whole_sets)
        if self.config.held_out:
            train = datasets["train"]
            rows, held_out = hold_out(train["text"], self.config.held_out)
            if not rows:
                raise UserError(
                    f"held_out is {self.config.held_out}, and each of {len(train)} training "
                    "examples shares a sentence with them; give fewer."
                )
            datasets[HELD_OUT] = train.select(held_out)
            datasets["train"] = train.select(rows)
        if self.config.train_size is not None:
            train = datasets["train"]
            _check_train_size(self.config.train_size, len(train), "what is not held out")
            draw = self.config.seed if self.config.redraw else 0
            rows = drawn_rows(len(train), self.config.train_size, draw)
            datasets["train"] = train.select(rows)
        return datasets


def read_inputs(config: RunConfig) -> Inputs:
    """What a run reads, without running it."""
    precisions = ("bf16", "fp16", "float32") if config.precision == "auto" else (config.precision,)
    config = config.resolved()
    task = TASKS[config.task]
    descriptions, whole_sets = {}, {}
    for name, (set_name, split) in _sets_to_read(config, task).items():
        whole_sets[name], descriptions[name] = load_described(set_name, config.source, split)
    if config.train_size is not None:
        train = descriptions["train"]
        _check_train_size(config.train_size, train["rows"], train["set"])
        descriptions["train"] |= {"used_rows": config.train_size}
    if config.held_out:  # a part of the training file
        descriptions[HELD_OUT] = descriptions["train"] | {"used_rows": config.held_out}
    model = model_sha256(Path(config.model_path))
    return Inputs(config, task, model, descriptions, whole_sets, precisions)


def _sets_to_read(config: RunConfig, task: Task) -> dict[str, tuple[str, str | None]]:
    """The set and its split for each name that a run gives a set."""
    wanted = {"train": (task.train_set(config.source), None)}
    wanted |= {name: (name, config.splits.get(name)) for name in config.sets}
    if config.values().get("masking") in OWN_LENGTH and not is_testbed(config.source):
        wanted[records.TRAIN_SPANS] = (CAD_TRAIN, None)
    return wanted


def _check_train_size(train_size: int, total: int, of_what: str) -> None:
    if train_size > total:
        raise UserError(
            f"train_size is {train_size}, but {of_what} has {total} examples; give at most so many."
        )


def hold_out(texts: Sequence[str], size: int) -> tuple[list[int], list[int]]:
    """Rows to train on, and `size` rows to choose settings on that share no sentence with them.

    SST-2's training phrases are parts of longer ones. A text that is part of no other counts as a
    sentence; sentences are drawn at random until `size` texts are parts of drawn ones alone. No
    part of a drawn sentence is trained on.
    """
    sentences, sentences_with = _sentences(texts)
    parts = defaultdict(list)
    for row, found in enumerate(sentences_with):
        for sentence in found:
            parts[sentence].append(row)
    drawn = set()
    held_out = []
    for index in np.random.default_rng(0).permutation(len(sentences)):
        sentence = sentences[index]
        drawn.add(sentence)
        held_out += [row for row in parts[sentence] if sentences_with[row] <= drawn]
        if len(held_out) >= size:
            train = [row for row, found in enumerate(sentences_with) if not found & drawn]
            return train, sorted(held_out[:size])
    raise UserError(
        f"held_out is {size}, but there are {len(texts)} training examples; give fewer."
    )


def _sentences(texts: Sequence[str]) -> tuple[list[int], list[set[int]]]:
    """The rows of the sentences, longest first, and for every text those of which it is a part."""
    words = [text.split() for text in texts]
    sentences = []
    with_phrase: dict[str, set[int]] = {}  # every run of words in a sentence: the sentences with it
    for row in sorted(range(len(texts)), key=lambda row: -len(words[row])):
        if " ".join(words[row]) in with_phrase:
            continue
        sentences.append(row)
        for start, end in itertools.combinations(range(len(words[row]) + 1), 2):
            with_phrase.setdefault(" ".join(words[row][start:end]), set()).add(row)
    return sentences, [with_phrase.get(" ".join(text), set()) for text in words]


def drawn_rows(total: int, size: int | None, draw: int = 0) -> list[int]:
    """Which of `total` rows a run with `train_size` trains on, in their order; None: all.

    Args:
        draw: 0 for every seed, or the seed of a run with `redraw`.
    """
    return sorted(np.random.default_rng(draw).permutation(total)[:size].tolist())


def model_sha256(folder: Path) -> str | None:
    """Of all files of a local model that decide its answers; None for a hub model."""
    if not folder.is_dir():
        return None
    files = sorted(
        {path for pattern in _MODEL_FILES for path in folder.glob(pattern) if path.is_file()}
    )
    return hashlib.sha256(b"".join(bytes.fromhex(file_sha256(path)) for path in files)).hexdigest()

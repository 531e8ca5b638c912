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
_MODEL_FILES = ("*.safetensors", "config.json", "tokenizer*.json", "vocab.*", "merges.txt", "*.model",
                "special_tokens_map.json", "masked_lm/*.safetensors")  # fmt: skip


@dataclass(frozen=True)
class Inputs:
    """What a run reads, and what it is known by.

    Args:
        config: resolved, and its task.
        model_sha256: of the files of a local model; None for one from the hub.
        sets: descriptions of the training set (as "train"), of the evaluation sets, and of the set whose spans a policy
            learns to mask (as `records.TRAIN_SPANS`); see `sources.describe`.
        rows: of the same sets, whole.
        precisions: those in which a record of this run will do; both where that was left to the device.
    """

    config: RunConfig
    task: Task
    model_sha256: str | None
    sets: dict[str, dict]
    rows: "dict[str, Dataset]"
    precisions: tuple[str, ...]

    @cached_property
    def public(self) -> dict:
        """The configuration as a record has it."""
        return self.config.public()

    @cached_property
    def identity(self) -> str:
        return self._identity(self.config.precision)

    def _identity(self, precision: str) -> str:
        public = self.public | {"precision": precision}
        return records.identity(public, self.model_sha256, records.decisive_data(self.sets))

    def record_path(self, out: Path) -> Path:
        """Where `run` writes, or has written, the record."""
        config = self.config
        model = Path(self.public["model"]).name.lower().replace("_", "-")
        return (
            out
            / f"{config.task}-{config.method}-{model}-seed{config.seed}-{self.identity[:10]}.json"
        )

    def shipped_record(self) -> dict | None:
        """The shipped record of this run, if there is one; it may be from another machine and by other code."""
        found = (
            records.shipped_records().get(self._identity(precision))
            for precision in self.precisions
        )
        return next(filter(None, found), None)

    @cached_property
    def datasets(self) -> "dict[str, Dataset]":
        """The sets as the run reads them: what is held out and what is not drawn is no training example."""
        config, train, kept_out = self.config, self.rows["train"], {}
        if config.held_out:
            rows, held_out = hold_out(train["text"], config.held_out)
            kept_out, train = {HELD_OUT: train.select(held_out)}, train.select(rows)
        if config.train_size is not None:
            train = train.select(drawn_rows(len(train), config.train_size))
        return self.rows | {"train": train} | kept_out


def read_inputs(config: RunConfig) -> Inputs:
    """What a run reads, without running it."""
    precisions = ("bf16", "fp16", "float32") if config.precision == "auto" else (config.precision,)
    config, task = config.resolved(), TASKS[config.task]
    wanted = {"train": (task.train_set(config.source), None)}
    wanted |= {name: (name, config.splits.get(name)) for name in config.sets}
    if config.values().get("masking") in OWN_LENGTH and not is_testbed(config.source):
        wanted[records.TRAIN_SPANS] = (CAD_TRAIN, None)
    read = {
        name: load_described(set_name, config.source, split)
        for name, (set_name, split) in wanted.items()
    }
    rows, sets = ({name: of[part] for name, of in read.items()} for part in (0, 1))
    if config.train_size is not None:
        total = sets["train"]["rows"]
        if config.train_size > total:
            raise UserError(
                f"train_size is {config.train_size}, but {sets['train']['set']} has {total} examples; give at most so "
                "many."
            )
        sets["train"] |= {"used_rows": config.train_size}
    if config.held_out:
        sets[HELD_OUT] = sets["train"]  # of which it is a part
    return Inputs(config, task, model_sha256(Path(config.model_path)), sets, rows, precisions)


def hold_out(texts: Sequence[str], size: int) -> tuple[list[int], list[int]]:
    """Rows to train on, and `size` rows to choose settings on that share no sentence with them.

    SST-2's training phrases are parts of longer ones. A text that is part of no other counts as a sentence; sentences
    are drawn at random until `size` texts are parts of drawn ones alone. No part of a drawn sentence is trained on.
    """
    words = [text.split() for text in texts]
    sentences_of: dict[
        str, set[int]
    ] = {}  # every run of words in a sentence: the sentences with it
    sentences = []
    for row in sorted(range(len(texts)), key=lambda row: -len(words[row])):
        if " ".join(words[row]) not in sentences_of:
            sentences.append(row)
            for start, end in itertools.combinations(range(len(words[row]) + 1), 2):
                sentences_of.setdefault(" ".join(words[row][start:end]), set()).add(row)
    whole = [sentences_of.get(" ".join(text), set()) for text in words]
    parts = defaultdict(list)
    for row, found in enumerate(whole):
        for sentence in found:
            parts[sentence].append(row)
    drawn, held_out = set(), []
    for index in np.random.default_rng(0).permutation(len(sentences)):
        drawn.add(sentences[index])
        held_out += [row for row in parts[sentences[index]] if whole[row] <= drawn]
        if len(held_out) >= size:
            train = [row for row, found in enumerate(whole) if not found & drawn]
            return train, sorted(held_out[:size])
    raise UserError(
        f"held_out is {size}, but there are {len(texts)} training examples; give fewer."
    )


def drawn_rows(total: int, size: int | None) -> list[int]:
    """Which of `total` rows a run with `train_size` trains on, in their order; the same for every seed. None: all."""
    return sorted(np.random.default_rng(0).permutation(total)[:size].tolist())


def model_sha256(folder: Path) -> str | None:
    """Of all files of a local model that decide its answers; None for a hub model."""
    if not folder.is_dir():
        return None
    files = sorted(
        {path for pattern in _MODEL_FILES for path in folder.glob(pattern) if path.is_file()}
    )
    return hashlib.sha256(b"".join(bytes.fromhex(file_sha256(path)) for path in files)).hexdigest()

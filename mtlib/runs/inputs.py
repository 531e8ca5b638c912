"""What a run reads: its sets and its model, and the identity that follows from them."""

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from datasets import Dataset

from mtlib.data.sources import is_testbed, load_described
from mtlib.data.tasks import get_task
from mtlib.data.training_pairs import CAD_TRAIN, described_pairs
from mtlib.errors import UserError
from mtlib.runs import records
from mtlib.runs.config import RunConfig
from mtlib.settings import OWN_LENGTH

HELD_OUT = "held_out"  # among the sets of a run, and in its metrics
# of a local model: the weights, the configuration and the tokenizer
_MODEL_FILES = ("*.safetensors", "config.json", "tokenizer*.json", "vocab.*", "merges.txt", "*.model",
                "special_tokens_map.json", "masked_lm/*.safetensors")  # fmt: skip


@dataclass(frozen=True)
class Inputs:
    """What decides a run's numbers besides its configuration.

    Args:
        model_sha256: of the files of a local model; None for one from the hub.
        sets: descriptions of the training set (as "train"), of the evaluation sets, and of the set whose spans a policy
            learns to mask (as `records.TRAIN_SPANS`); see `sources.describe`.
    """

    model_sha256: str | None
    sets: dict[str, dict]


class DescribedSet(NamedTuple):
    dataset: Dataset
    description: dict


def read_sets(config: RunConfig) -> dict[str, DescribedSet]:
    """All sets of a resolved run, by the names that they have in `Inputs`."""
    sets = {name: DescribedSet(*_read(key)) for name, key in _set_keys(config).items()}
    train, description = sets["train"]
    _note_train_size(config, description)
    if config.held_out:
        rows, held_out = hold_out(train["text"], config.held_out)
        sets[HELD_OUT], train = DescribedSet(train.select(held_out), description), train.select(rows)
    if config.train_size is not None:
        train = train.select(drawn_rows(len(train), config.train_size))
    sets["train"] = DescribedSet(train, description)
    return sets


def hold_out(texts: Sequence[str], size: int) -> tuple[list[int], list[int]]:
    """Rows to train on, and `size` rows to choose settings on that share no sentence with them.

    SST-2's training phrases are parts of longer ones. A text that is part of no other counts as a sentence; sentences
    are drawn at random until `size` texts are parts of drawn ones alone. No part of a drawn sentence is trained on.
    """
    words = [text.split() for text in texts]
    sentences_of: dict[str, set[int]] = {}  # every run of words in a sentence: the sentences with it
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
    raise UserError(f"held_out is {size}, but there are {len(texts)} training examples; give fewer.")


def drawn_rows(total: int, size: int | None) -> list[int]:
    """Which of `total` rows a run with `train_size` trains on, in their order; the same for every seed. None: all."""
    return sorted(np.random.default_rng(0).permutation(total)[:size].tolist())


def read_inputs(config: RunConfig, cache: dict | None = None) -> Inputs:
    """The inputs of a run, without running it; `cache`, given to many calls, has each set and model read once."""
    config, cache = config.resolved(), {} if cache is None else cache
    if config.model_path not in cache:
        cache[config.model_path] = model_sha256(config)
    sets = {}
    for name, key in _set_keys(config).items():
        if key not in cache:
            cache[key] = _read(key)[1]
        sets[name] = dict(cache[key])
    _note_train_size(config, sets["train"])
    return Inputs(cache[config.model_path], sets)


def run_identity(config: RunConfig, inputs: Inputs) -> str:
    """The identity of a resolved run (`records.identity`)."""
    return records.identity(config.public(), inputs.model_sha256, records.decisive_data(inputs.sets))


def record_path(config: RunConfig, out: Path, inputs: Inputs | None = None) -> Path:
    """Where `run` writes, or has written, the record; the data and the model are read to tell."""
    config = config.resolved()
    name = run_identity(config, read_inputs(config) if inputs is None else inputs)[:10]
    model = Path(config.public()["model"]).name.lower().replace("_", "-")
    return out / f"{config.task}-{config.method}-{model}-seed{config.seed}-{name}.json"


def shipped_record(config: RunConfig, inputs: Inputs) -> dict | None:
    """The record of this run that comes with the project, if there is one.

    Where the precision is left to the device, a record in either precision will do: it may come from another machine.
    """
    precisions = ("bf16", "float32") if config.precision == "auto" else (config.precision,)
    for precision in precisions:
        wanted = run_identity(config.changed(precision=precision).resolved(), inputs)
        if wanted in records.shipped_records():
            return records.shipped_records()[wanted]
    return None


def model_sha256(config: RunConfig) -> str | None:
    """Of all files of a local model that decide its answers; None for a hub model."""
    folder = Path(config.model_path)
    if not folder.is_dir():
        return None
    digest = hashlib.sha256()
    for path in sorted({path for pattern in _MODEL_FILES for path in folder.glob(pattern)}):
        if path.is_file():
            with open(path, "rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _set_keys(config: RunConfig) -> dict[str, tuple[str, str, str | None]]:
    """Set, source and split of everything that a run reads."""
    keys = {"train": (get_task(config.task).train_set(config.source), config.source, None)}
    keys |= {name: (name, config.source, config.splits.get(name)) for name in config.sets}
    if reads_spans(config):
        keys[records.TRAIN_SPANS] = (CAD_TRAIN, config.source, None)
    return keys


def reads_spans(config: RunConfig) -> bool:
    """Whether its policy learns from a set besides the training set."""
    return config.values().get("masking") in OWN_LENGTH and not is_testbed(config.source)


def _read(key: tuple[str, str, str | None]) -> tuple[Dataset, dict]:
    set_name, source, _ = key
    return described_pairs(source) if set_name == CAD_TRAIN else load_described(*key)


def _note_train_size(config: RunConfig, description: dict) -> None:
    if config.train_size is None:
        return
    if config.train_size > description["rows"]:
        raise UserError(
            f"train_size is {config.train_size}, but {description['set']} has {description['rows']} examples; give at "
            "most so many."
        )
    description["used_rows"] = config.train_size

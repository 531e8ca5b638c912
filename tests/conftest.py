"""Tiny models made from configurations, so that no test needs a download."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    BertConfig,
    PreTrainedTokenizerFast,
    set_seed,
)

from mtlib.data import sources
from mtlib.paths import SETTINGS_FILE
from mtlib.plm import SharedPLM, mlm_positions_of
from mtlib.runs.config import RunConfig, configure

# fmt: off
WORDS = [
    "the", "a", "film", "story", "plot", "is", "was", "very", "not", "good", "bad", "great",
    "awful", "boring", "funny", "and", "of", "to", "##ly", "##ing", "##s", "slow", "warm",
]
# fmt: on
BERT_SPECIALS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_SPECIALS = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
SENTENCES = ["the film is very good", "the plot was slow and boring", "a warm story", "not funny"]


def make_tokenizer(
    specials: dict[str, str] = BERT_SPECIALS,
    double_separator: bool = False,
    words: Sequence[str] = WORDS,
) -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer; with `ROBERTA_SPECIALS` its ids are RoBERTa's (0 <s>, 1 <pad>, 2
    </s>).
    """
    vocabulary = {token: index for index, token in enumerate([*specials.values(), *words])}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token=specials["unk"]))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    first, last = specials["cls"], specials["sep"]
    between = f"{last} {last}" if double_separator else last
    backend.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}",
        pair=f"{first} $A {between} $B:1 {last}:1",
        special_tokens=[(first, vocabulary[first]), (last, vocabulary[last])],
    )
    names = {f"{name}_token": token for name, token in specials.items()}
    inputs = ["input_ids", "attention_mask"] + ([] if double_separator else ["token_type_ids"])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, model_input_names=inputs, model_max_length=64, **names
    )


def tiny_bert_config(**changes) -> BertConfig:
    settings = {
        "vocab_size": len(WORDS) + 5,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 64,
        "num_labels": 2,
    }
    return BertConfig(**settings | changes)


def make_plm(config=None, tokenizer=None, shared: bool = True, seed: int = 0) -> SharedPLM:
    set_seed(seed)
    config = config or tiny_bert_config()
    classifier = AutoModelForSequenceClassification.from_config(config)
    return SharedPLM(
        classifier, AutoModelForMaskedLM.from_config(config), tokenizer or make_tokenizer(), shared
    )


def make_batch(plm: SharedPLM, texts=SENTENCES, labels=None) -> dict[str, torch.Tensor]:
    batch = dict(plm.tokenizer(texts, padding=True, return_tensors="pt"))
    batch["labels"] = torch.tensor(
        labels if labels is not None else [i % 2 for i in range(len(texts))]
    )
    return batch


def at_masks(plm: SharedPLM, batch: dict, mask: torch.Tensor) -> torch.Tensor:
    """Masked-LM logits at the masked places, `(n_masked, vocab)`, in reading order."""
    logits = plm.fill_masks(
        {name: value for name, value in batch.items() if name != "mlm_positions"}, mask
    ).mlm_logits
    return logits[mlm_positions_of(mask)[1].bool()]


@pytest.fixture
def plm() -> SharedPLM:
    return make_plm()


@pytest.fixture
def still_plm() -> SharedPLM:
    """Without dropout, so that two passes give the same numbers."""
    return make_plm(tiny_bert_config(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))


# --- a tiny testbed and a tiny model for whole runs ---

GOOD = ["good", "great", "funny", "warm"]
BAD = ["bad", "awful", "boring", "slow"]


def sentences(n: int, start: int = 0) -> list[dict]:
    rows = []
    for i in range(start, start + n):
        label = i % 2
        opinions = GOOD if label else BAD
        topic = "film" if i % 3 else "plot"
        text = f"the {topic} is {opinions[i // 2 % 4]}"
        rows.append({"text": text, "label": label, "uid": str(i), "group": ""})
    return rows


def write_testbed(folder: Path, train: int = 64) -> Path:
    """A folder in the layout of the testbed, with a few sentences for each set."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = sentences(16)
    for i, row in enumerate(pairs):
        half = "edited" if i % 2 else "original"
        row["group"] = f"{i // 2}:{half}"
    sets = {
        "testbed_sentiment_train": sentences(train),
        "testbed_sentiment": sentences(20, 100),
        "testbed_contrast": pairs,
        "testbed_counterfactual": pairs,
    }
    (folder / SETTINGS_FILE).write_text('{"strength": 0.25, "seed": 1}')
    for name, rows in sets.items():
        lines = [json.dumps(row) + "\n" for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture
def testbed(tmp_path, monkeypatch) -> Path:
    """The tiny testbed in place of the bundled one."""
    folder = write_testbed(tmp_path / "testbed")
    monkeypatch.setattr(sources, "TESTBED_DIR", folder)
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    """A folder with a tiny masked language model."""
    folder = tmp_path_factory.mktemp("model") / "tiny-bert"
    plm = make_plm()
    plm.mlm.save_pretrained(folder)
    plm.tokenizer.save_pretrained(folder)
    return folder


def config(model, **changes) -> RunConfig:
    """A run of Mask-tuning on the tiny testbed that takes a few seconds."""
    settings = {
        "task": "sentiment",
        "method": "mask_tuning",
        "model": str(model),
        "max_length": 64,
        "learning_rate": 3e-3,
        "epochs": 2,
    }
    return configure(**settings | changes)

"""Tiny models made from configurations, so that no test needs a download."""

import copy
import gc
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AlbertConfig,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    BartConfig,
    BertConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    IBertConfig,
    ModernBertConfig,
    MPNetConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
    set_seed,
)
from typer.core import TyperCommand
from typer.main import get_command
from typer.testing import CliRunner

from mtlib import cli
from mtlib.cli import training
from mtlib.data import sources
from mtlib.objectives import ObjectiveOutput
from mtlib.paths import SETTINGS_FILE
from mtlib.plm import SharedPLM, mlm_positions_of
from mtlib.runs.config import RunConfig, configure
from mtlib.runs.records import decisive_data, identity
from mtlib.trainer import (
    ObjectiveArguments,
    ObjectiveTrainer,
    denominators_of,
    share_of_step,
    totals_of,
)

# fmt: off
WORDS = [
    "the", "a", "film", "story", "plot", "is", "was", "very", "not", "good", "bad", "great",
    "awful", "boring", "funny", "and", "of", "to", "##ly", "##ing", "##s", "slow", "warm",
]
# fmt: on
BERT_SPECIALS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
ROBERTA_SPECIALS = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
SENTENCES = ["the film is very good", "the plot was slow and boring", "a warm story", "not funny"]


def pytest_collection_finish():
    """Spare what was imported from garbage collection.

    Every training collects all garbage, which among a million imported objects takes a second.
    """
    gc.freeze()


def make_tokenizer(
    specials: dict[str, str] = BERT_SPECIALS,
    double_separator: bool = False,
    words: Sequence[str] = WORDS,
) -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer; with `ROBERTA_SPECIALS` 0 is <s>, 1 <pad>, 2 </s>, as RoBERTa's."""
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


# --- tiny models of every architecture ---

SIZE = {
    "vocab_size": len(WORDS) + 5,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
FORM = SIZE | {"intermediate_size": 32, "max_position_embeddings": 66}
ROBERTA_IDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
PAIR_OF_SPECIALS = (ROBERTA_SPECIALS, True)
ARCHITECTURES = {
    "bert": (tiny_bert_config(), (BERT_SPECIALS, False)),
    "roberta": (RobertaConfig(**FORM, **ROBERTA_IDS), PAIR_OF_SPECIALS),
    "albert": (AlbertConfig(**FORM, embedding_size=8, pad_token_id=0), (BERT_SPECIALS, False)),
    "distilbert": (
        DistilBertConfig(
            vocab_size=SIZE["vocab_size"], dim=16, hidden_dim=32, n_layers=2, n_heads=2
        ),
        (BERT_SPECIALS, False),
    ),
    "electra": (ElectraConfig(**FORM, embedding_size=8), (BERT_SPECIALS, False)),
    "deberta_v2": (DebertaV2Config(**FORM), (BERT_SPECIALS, False)),
    "ibert": (IBertConfig(**FORM, **ROBERTA_IDS), PAIR_OF_SPECIALS),
    "mpnet": (MPNetConfig(**FORM, **ROBERTA_IDS), PAIR_OF_SPECIALS),
    "modernbert": (
        ModernBertConfig(
            **FORM,
            pad_token_id=0,
            cls_token_id=2,
            sep_token_id=3,
            bos_token_id=2,
            eos_token_id=3,
            reference_compile=False,
        ),
        (BERT_SPECIALS, True),
    ),
    "bart": (
        BartConfig(
            vocab_size=SIZE["vocab_size"],
            d_model=16,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=32,
            decoder_ffn_dim=32,
            max_position_embeddings=64,
            decoder_start_token_id=2,
            forced_eos_token_id=2,
            num_labels=2,
            **ROBERTA_IDS,
        ),
        PAIR_OF_SPECIALS,
    ),
}


def architecture(name: str, shared: bool = True) -> SharedPLM:
    config, (specials, double) = ARCHITECTURES[name]
    config = copy.deepcopy(config)  # which a model may change
    return make_plm(config, make_tokenizer(specials, double), shared)


def batch_of(lengths: list[int], pad_to: int = 0, left: bool = False, seed: int = 0) -> dict:
    """[CLS] words [SEP] padded to the longest, or to `pad_to`."""
    tokenizer, first_word = make_tokenizer(), 5  # ids below are special
    generator = torch.Generator().manual_seed(seed)
    width = max(pad_to, max(lengths) + 2)
    ids = torch.zeros(len(lengths), width, dtype=torch.long)
    attention = torch.zeros_like(ids)
    for row, n in enumerate(lengths):
        words = torch.randint(first_word, len(tokenizer), (n,), generator=generator).tolist()
        text = torch.tensor([tokenizer.cls_token_id, *words, tokenizer.sep_token_id])
        place = slice(width - n - 2, width) if left else slice(0, n + 2)
        ids[row, place], attention[row, place] = text, 1
    return {"input_ids": ids, "attention_mask": attention}


# --- trainings of a few steps ---

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
PLAIN_WORDS = [word for word in WORDS if not word.startswith("##")]


def examples(n: int, length: bool = True) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    rows = []
    for i in range(n):
        words = torch.randint(len(PLAIN_WORDS), (3 + i % 7,), generator=generator).tolist()
        row = dict(make_tokenizer()(" ".join(PLAIN_WORDS[w] for w in words)))
        rows.append(row | {"labels": i % 2} | ({"length": len(row["input_ids"])} if length else {}))
    return Dataset.from_list(rows)


def arguments(folder, **changes) -> ObjectiveArguments:
    settings = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "max_steps": 6,
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
    }
    return ObjectiveArguments(**settings | changes)


def train(folder, objective, plm=None, data=None, resume=None, **changes) -> ObjectiveTrainer:
    plm = plm or make_plm(tiny_bert_config(**NO_DROPOUT))
    trainer = ObjectiveTrainer(
        plm, objective, arguments(folder, **changes), examples(48) if data is None else data
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def history(trainer, *names) -> list[tuple]:
    names = names or ("loss", "grad_norm")
    return [
        tuple(entry[name] for name in names)
        for entry in trainer.state.log_history
        if "loss" in entry
    ]


def slices_of(objective, plm, batch, *rows) -> list[ObjectiveOutput]:
    """What a trainer makes of a prepared batch that is cut into these rows."""
    slices = [{name: value[part] for name, value in batch.items()} for part in rows]
    sizes = [denominators_of(objective, part) for part in slices]
    totals = totals_of(sizes, torch.device("cpu"))
    outputs = [objective(plm, part) for part in slices]
    return [share_of_step(*pair, totals) for pair in zip(outputs, sizes, strict=True)]


# --- trees for parsing ---

TREES = {
    "the film was slowly boring": ([2, 5, 5, 5, 0], ["det", "nsubj", "cop", "advmod", "root"]),
    "a great story of the plot": (
        [3, 3, 0, 6, 6, 3],
        ["det", "amod", "root", "case", "det", "nmod:of"],
    ),
    "not funny": ([2, 0], ["advmod", "root"]),
}
# "good", "very good" and so on: 1 to 16 words
GROWING = {
    " ".join(["very"] * n + ["good"]): ([n + 1] * n + [0], ["advmod"] * n + ["root"])
    for n in range(16)
}


def conllu(trees=TREES) -> str:
    blocks = []
    for text, (heads, relations) in trees.items():
        rows = zip(text.split(), heads, relations, strict=True)
        lines = [
            f"{i}\t{word}\t_\tX\t_\t_\t{head}\t{of}\t_\t_"
            for i, (word, head, of) in enumerate(rows, 1)
        ]
        blocks.append("\n".join([f"# text = {text}", *lines]) + "\n")
    return "\n".join(blocks)


# --- commands, pages and records ---

ROOT = Path(__file__).resolve().parents[1]


def call(*arguments) -> str:
    result = CliRunner().invoke(cli.app, list(map(str, arguments)))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def commands() -> dict[str, TyperCommand]:
    top = get_command(cli.app).commands
    return (
        top
        | {f"data {name}": command for name, command in top["data"].commands.items()}
        | get_command(training.app).commands  # whose options are made from settings
    )


def read(page: str | Path) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def code_blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", read(page), flags=re.S)


def record_identity(record: Mapping) -> str:
    """The identity of a record by what stands in it.

    (The first records did not name their model's files.)
    """
    return identity(
        record["config"], record.get("model", {}).get("files_sha256"), decisive_data(record["data"])
    )

"""What is timed: texts as long as SST-2's, models, and trainings that write and print nothing."""

from datasets import Dataset, disable_progress_bars
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    PrinterCallback,
    set_seed,
)
from transformers.utils import logging

from mtlib.contexts import precision
from mtlib.data.sources import load
from mtlib.encoding import tokenise
from mtlib.objectives import Objective
from mtlib.paths import MINI_MODEL_DIR
from mtlib.plm import SharedPLM
from mtlib.trainer import ObjectiveArguments, ObjectiveTrainer

# words in SST-2's 67,349 training phrases: the middles of eleven equal parts
SST2_WORDS = (1, 2, 3, 4, 5, 7, 9, 11, 14, 19, 27)
TRAINING = {
    "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True, "report_to": "none",
    "num_train_epochs": 1, "per_device_train_batch_size": 16, "seed": 0,
}  # fmt: skip


def phrase_rows(n: int) -> Dataset:
    """Testbed sentences, each with itself behind it, cut to the lengths of SST-2's phrases."""
    rows = load("testbed_sentiment_train")
    rows = rows.select([i % len(rows) for i in range(n)])
    words = [SST2_WORDS[i % len(SST2_WORDS)] for i in range(n)]
    texts = [" ".join((text.split() * 2)[:count]) for text, count in zip(rows["text"], words, strict=True)]
    return rows.remove_columns("text").add_column("text", texts)


def phrases(n: int) -> Dataset:
    return tokenise(phrase_rows(n), AutoTokenizer.from_pretrained(MINI_MODEL_DIR))


def mini_plm() -> SharedPLM:
    set_seed(0)
    return SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2)


def random_plm(tokenizer, layers: int, hidden: int, vocabulary: int, heads: int | None = None, **changes) -> SharedPLM:
    set_seed(0)
    config = BertConfig(
        vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads or hidden // 64,
        **{"intermediate_size": 4 * hidden} | changes,
    )  # fmt: skip
    models = AutoModelForSequenceClassification.from_config(config), AutoModelForMaskedLM.from_config(config)
    return SharedPLM(*models, tokenizer)


def make_trainer(plm: SharedPLM, objective: Objective, examples: Dataset, folder: str, **settings) -> ObjectiveTrainer:
    arguments = ObjectiveArguments(folder, **TRAINING | precision() | settings)
    trainer = ObjectiveTrainer(plm, objective, arguments, examples)
    trainer.remove_callback(PrinterCallback)
    return trainer


def be_quiet() -> None:
    disable_progress_bars()
    logging.disable_progress_bar()

"""The benchmarks: what is compared with what, and the bound on the ratio."""

import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace

import torch
from datasets import Dataset
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PrinterCallback,
    Trainer,
    TrainingArguments,
    pipeline,
    set_seed,
)

from mtlib.bench.clock import in_process, seconds, step_seconds
from mtlib.bench.ratios import Benchmark
from mtlib.bench.workloads import TRAINING, make_trainer, mini_plm, phrase_rows, phrases, random_plm
from mtlib.contexts import precision
from mtlib.data.sources import load
from mtlib.encoding import predict, tokenise
from mtlib.errors import UserError
from mtlib.masking import ExactMasking
from mtlib.method import Refill
from mtlib.objectives import FineTuning, MaskTuning, Objective, masked_lm_loss
from mtlib.paths import MINI_MODEL_DIR
from mtlib.plm import SharedPLM


def step(quick: bool):
    """One optimiser step on the same batch, losses and clipping included."""
    examples = phrases(16)

    def timed(objective: Objective) -> Callable[[], float]:
        return lambda: statistics.median(step_seconds(mini_plm(), objective, examples, max_steps=20))

    return timed(MaskTuning()), timed(FineTuning())


def epoch(quick: bool):
    """A training as one runs it: ours (grouped by length, bf16 where the CPU has it), and run_glue.py's at batch 16."""
    rows = phrase_rows(320 if quick else 960)

    def ours() -> float:
        examples = tokenise(rows, AutoTokenizer.from_pretrained(MINI_MODEL_DIR))
        with tempfile.TemporaryDirectory() as folder:
            return seconds(make_trainer(mini_plm(), MaskTuning(), examples, folder).train)

    def stock() -> float:
        set_seed(0)
        tokenizer = AutoTokenizer.from_pretrained(MINI_MODEL_DIR)
        # in the checkpoint's own float16, which from_pretrained would take, a CPU is many times slower
        model = AutoModelForSequenceClassification.from_pretrained(MINI_MODEL_DIR, num_labels=2, dtype=torch.float32)
        data = rows.map(
            lambda part: tokenizer(part["text"], padding="max_length", max_length=128, truncation=True),
            batched=True, keep_in_memory=True, remove_columns=["text", "uid", "group"],
        ).rename_column("label", "labels")  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            return seconds(_stock_trainer(model, folder, train_dataset=data).train)

    return ours, stock


def head(quick: bool):
    """Forward and backward of L_MLM with BERT-base's vocabulary: the head at the masked places, and everywhere."""
    tokenizer = AutoTokenizer.from_pretrained(MINI_MODEL_DIR)
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    plm = random_plm(tokenizer, layers=4, hidden=384, vocabulary=30_522, heads=12, **no_dropout).train()
    ids = torch.randint(1000, len(tokenizer), (32, 32))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    mask = ExactMasking(0.05)(ids, torch.ones_like(ids, dtype=torch.bool), torch.Generator().manual_seed(0))

    def ours():
        return masked_lm_loss(plm.masked_lm_logits(batch, mask), ids[mask])

    def full():
        labels = ids.masked_fill(~mask, -100)
        return plm.mlm(ids.masked_fill(mask, tokenizer.mask_token_id), batch["attention_mask"], labels=labels).loss

    gap = abs(ours().item() - full().item())
    if gap > 1e-5:
        raise UserError(f"the two losses differ by {gap:.1e}; expected 1e-5 or less: this is a bug, please report it.")

    def timed(loss: Callable[[], torch.Tensor]) -> Callable[[], float]:
        def steps() -> float:
            plm.zero_grad()
            return seconds(lambda: [loss().backward() for _ in range(5)])

        return steps

    return timed(ours), timed(full)


def refilling(quick: bool):
    """Sentences masked and refilled per second: `Refill` against transformers' fill-mask pipeline in batches."""
    plm = mini_plm()
    rows = phrase_rows(256 if quick else 1024)
    refill = Refill(ExactMasking(0.05))
    fill_mask = pipeline("fill-mask", model=str(MINI_MODEL_DIR), device=plm.device, dtype=torch.float32)
    masked = []
    for text in rows["text"]:
        words = text.split()
        words[len(words) // 2] = plm.tokenizer.mask_token
        masked.append(" ".join(words))

    def ours() -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision()["bf16"]):
            return seconds(lambda: refill(plm, tokenise(rows, plm.tokenizer), seed=0))  # the pipeline tokenises too

    return ours, lambda: seconds(lambda: fill_mask(Dataset.from_dict({"t": masked})["t"][:], batch_size=64))


def evaluation(quick: bool):
    """Class logits of HANS-like pairs (`testbed_overlap`): ours against Trainer.predict with padding to 128."""
    data = load("testbed_overlap").select(range(256 if quick else 1024))
    plm = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=3)
    padded = data.map(
        lambda part: plm.tokenizer(
            part["text"], part["text_pair"], padding="max_length", max_length=128, truncation=True
        ),
        batched=True, keep_in_memory=True, remove_columns=data.column_names,
    )  # fmt: skip

    def stock() -> float:
        with tempfile.TemporaryDirectory() as folder:
            return seconds(lambda: _stock_trainer(plm.classifier, folder).predict(padded))

    return lambda: seconds(lambda: predict(plm, data)), stock


def memory(quick: bool):
    """Peak resident memory of a training process with many examples and with few."""
    many, few = (8_000, 1_000) if quick else (67_000, 4_000)
    return lambda: in_process(_train_some, many)[1], lambda: in_process(_train_some, few)[1]


def scale(quick: bool):
    """Seconds per example, tokenising included, on a tiny model, so that it is the handling of data that shows."""
    many, few = (8_000, 1_000) if quick else (64_000, 4_000)
    return (
        lambda: in_process(_train_all, many)[0] / many,
        lambda: in_process(_train_all, few)[0] / few,
    )


def start(quick: bool):
    """Seconds until `python -m mtlib --help` answers; the other side is one second."""
    command = [sys.executable, "-m", "mtlib", "--help"]
    return lambda: seconds(lambda: subprocess.run(command, check=True, capture_output=True)), lambda: 1.0


BENCHMARKS = (
    Benchmark("step", "one Mask-tuning step", "one fine-tuning step, same batch", 2.1, True, step, repeats=9),
    Benchmark(
        "epoch", "one epoch of Mask-tuning, SST-2-like lengths",
        "one epoch of stock fine-tuning, padded to 128, float32", 0.5, True, epoch,
    ),
    Benchmark(
        "head", "masked-LM head at the masked places (5 %)", "full-vocabulary logits, 30,522 tokens; same loss", 1.5,
        False, head, repeats=9,
    ),
    Benchmark("refill", "refilling sentences", 'pipeline("fill-mask"), batches of 64', 20, False, refilling),
    Benchmark("evaluation", "predicting HANS-like pairs", "Trainer.predict, padded to 128", 3, False, evaluation),
    Benchmark("memory", "peak memory, 67,000 training examples", "4,000 training examples", 1.1, True, memory, 3),
    Benchmark("scale", "time per example, 64,000 examples", "4,000 examples", 1.05, True, scale, repeats=3),
    Benchmark("start", "python -m mtlib --help", "one second", 1.0, True, start),
)  # fmt: skip
QUICK = tuple(
    replace(
        benchmark, repeats=min(3, benchmark.repeats),
        what=re.sub(r"6[47],000", "8,000", benchmark.what), against=benchmark.against.replace("4,000", "1,000"),
    )
    for benchmark in BENCHMARKS
)  # fmt: skip


def _stock_trainer(model: PreTrainedModel, folder: str, **data) -> Trainer:
    arguments = TrainingArguments(folder, per_device_eval_batch_size=64, use_cpu=precision()["use_cpu"], **TRAINING)
    trainer = Trainer(model, arguments, **data)
    trainer.remove_callback(PrinterCallback)
    return trainer


def _train_some(n: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        make_trainer(mini_plm(), MaskTuning(), phrases(n), folder, max_steps=20).train()


def _train_all(n: int) -> None:
    tokenizer = AutoTokenizer.from_pretrained(MINI_MODEL_DIR)
    plm = random_plm(tokenizer, layers=1, hidden=32, vocabulary=len(tokenizer), heads=2, intermediate_size=64)
    settings = {"bf16": False, "per_device_train_batch_size": 64}
    with tempfile.TemporaryDirectory() as folder:
        make_trainer(plm, MaskTuning(), phrases(n), folder, **settings).train()

"""How fast things are: `python -m mtlib bench`.

`run` gives ratios of two things done in turn in one process: absolute times belong to a machine, a ratio says something
about the code. `throughput` says what one device does in a second.
"""

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from mtlib.contexts import precision, precision_name
from mtlib.data.sources import load
from mtlib.encoding import Collator, tokenise
from mtlib.objectives import FineTuning, MaskTuning, Objective
from mtlib.paths import MINI_MODEL_DIR
from mtlib.plm import SharedPLM
from mtlib.runs.environment import quiet_libraries
from mtlib.settings import check_choice
from mtlib.suspect_words import suspects, words_of
from mtlib.trainer import ObjectiveArguments, ObjectiveTrainer

# words in SST-2's 67,349 training phrases: the middles of eleven equal parts
SST2_WORDS = (1, 2, 3, 4, 5, 7, 9, 11, 14, 19, 27)
SHAPES = {"bert-base": (12, 768, 30_522), "mini": (4, 384, 10_000)}  # layers, hidden size, vocabulary
SIZES = ((16, 16), (32, 32), (32, 128))  # sequences of a batch, tokens of a sequence
# dense bf16 peak in TFLOP/s by part of the device's name, from the makers' data sheets
_PEAK_TFLOPS = {"H200": 989.0, "H100": 989.0, "A100": 312.0, "L4": 121.0}
_TRAINING = {
    "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True, "report_to": "none",
    "num_train_epochs": 1, "per_device_train_batch_size": 16, "seed": 0,
}  # fmt: skip


def run(names: Sequence[str] = (), quick: bool = False) -> Iterator[dict]:
    """Measure, one benchmark after the other: a row for each.

    Args:
        names: of `BENCHMARKS`; all by default.
        quick: fewer repeats and smaller data, for a first look.
    """
    for name in names:
        check_choice("benchmark", name, BENCHMARKS)
    quiet_libraries()
    for name in names or BENCHMARKS:
        what, against, make = BENCHMARKS[name]
        yield {"name": name, "what": what, "against": against, **compare(*make(quick), 3 if quick else 7)}


def compare(ours: Callable[[], float], theirs: Callable[[], float], repeats: int) -> dict[str, float]:
    """Two functions that return seconds, in turn, after one round that does not count.

    Returns:
        `ratio` of the medians of their seconds, `low` and `high` the quartiles of the ratios of neighbours in time.
    """
    ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(repeats)]
    low, _, high = statistics.quantiles([mine / other for mine, other in pairs], n=4)
    mine, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    numbers = {"ratio": mine / other, "low": low, "high": high, "seconds": mine, "seconds_against": other}
    return {name: round(number, 4) for name, number in numbers.items()}


def throughput(shape: str = "bert-base", sizes: Sequence[tuple[int, int]] = SIZES, steps: int = 30) -> Iterator[dict]:
    """Both methods on random weights and tokens, in bf16 where there is.

    Args:
        shape: of `SHAPES`.
        sizes: pairs of sequences in a batch and tokens in a sequence.
        steps: of each training; the first third warms up and does not count.

    Yields:
        A row per size, method and mode: of `MODES`, "graphs" on a GPU alone, "stock" for fine-tuning alone.
        `utilisation` is model FLOPs by the device's peak, None where that is unknown.
    """
    check_choice("shape", shape, SHAPES)
    quiet_libraries()
    gpu = torch.cuda.is_available()
    peak = next((tf for name, tf in _PEAK_TFLOPS.items() if gpu and name in torch.cuda.get_device_name()), None)
    methods, speeds = {"fine_tuning": FineTuning, "mask_tuning": MaskTuning}, {}
    for (batch_size, length), mode, method in itertools.product(sizes, MODES, methods):
        if (mode == "graphs" and not gpu) or (mode == "stock" and method != "fine_tuning"):
            continue
        if gpu:
            torch.cuda.reset_peak_memory_stats()
        plm, examples = _random_plm(*SHAPES[shape]), _random_examples(batch_size * steps, length)
        seconds = MODES[mode](plm, methods[method](), examples, per_device_train_batch_size=batch_size)
        speeds[method] = batch_size / statistics.median(seconds[steps // 3 :])  # one hiccup must not count
        yield {
            "size": f"{batch_size} x {length}",
            "mode": mode,
            "method": method,
            "sequences_per_second": round(speeds[method], 1),
            "tokens_per_second": round(speeds[method] * length),
            "ratio_to_fine_tuning": round(speeds["fine_tuning"] / speeds[method], 2),
            "utilisation": peak and round(model_flops(method, shape, length) * speeds[method] / (1e12 * peak), 3),
            "peak_memory_mb": round(torch.cuda.max_memory_allocated() / 2**20) if gpu else None,
        }  # fmt: skip


def model_flops(method: str, shape: str, length: float) -> float:
    """Floating-point operations of one example's forward and backward passes: "fine_tuning" or "mask_tuning".

    6 per weight of the layers and token, and 12 x layers x hidden x length per token for the attention; Mask-tuning has
    two such passes, and its head's vocabulary product at 5 % of the tokens. Other parts are small and left out.
    """
    layers, hidden, vocabulary = SHAPES[shape]
    one_pass = (6 * 12 * layers * hidden**2 + 12 * layers * hidden * length) * length
    return one_pass if method == "fine_tuning" else 2 * one_pass + 6 * vocabulary * hidden * 0.05 * length


def phrases(n: int) -> Dataset:
    """Testbed sentences, each with itself behind it, cut to the lengths of SST-2's phrases."""
    rows = load("testbed_sentiment_train")
    rows = rows.select([i % len(rows) for i in range(n)])
    words = [SST2_WORDS[i % len(SST2_WORDS)] for i in range(n)]
    texts = [" ".join((text.split() * 2)[:count]) for text, count in zip(rows["text"], words, strict=True)]
    return rows.remove_columns("text").add_column("text", texts)


def _step(quick: bool):
    """One optimiser step on the same batch, losses and clipping included."""
    examples = tokenise(phrases(16), AutoTokenizer.from_pretrained(MINI_MODEL_DIR))

    def timed(objective: Objective) -> Callable[[], float]:
        return lambda: statistics.median(_step_seconds(_mini_plm(), objective, examples, max_steps=6 if quick else 20))

    return timed(MaskTuning()), timed(FineTuning())


def _epoch(quick: bool):
    """A training as one runs it: ours (grouped by length, bf16 where the CPU has it), and run_glue.py's at batch 16."""
    rows, tokenizer = phrases(32 if quick else 960), AutoTokenizer.from_pretrained(MINI_MODEL_DIR)
    padded = rows.map(
        lambda part: tokenizer(part["text"], padding="max_length", max_length=128, truncation=True),
        batched=True, keep_in_memory=True, remove_columns=["text", "uid", "group"],
    ).rename_column("label", "labels")  # fmt: skip

    def ours() -> float:
        with tempfile.TemporaryDirectory() as folder:
            return _seconds(_trainer(_mini_plm(), MaskTuning(), tokenise(rows, tokenizer), folder).train)

    def stock() -> float:
        set_seed(0)
        # in the checkpoint's own float16, which from_pretrained would take, a CPU is many times slower
        model = AutoModelForSequenceClassification.from_pretrained(MINI_MODEL_DIR, num_labels=2, dtype=torch.float32)
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(folder, use_cpu=precision()["use_cpu"], **_TRAINING)
            trainer = Trainer(model, arguments, train_dataset=padded)
            trainer.remove_callback(PrinterCallback)
            return _seconds(trainer.train)

    return ours, stock


def _suspects(quick: bool):
    """Of a file's rows, a hundred thousand unless it is quick."""
    rows = phrases(5_000 if quick else 100_000).to_pandas()

    def split() -> None:
        for text in rows["text"]:
            words_of(text)

    return lambda: _seconds(partial(suspects, rows)), lambda: _seconds(split)


# what is compared with what; the function gives two that return seconds
BENCHMARKS = {
    "step": ("one Mask-tuning step", "one fine-tuning step, same batch", _step),
    "suspects": ("suspect words of 100,000 phrases (quick: 5,000)", "splitting them into words", _suspects),
    "epoch": ("an epoch of Mask-tuning, SST-2's lengths", "stock fine-tuning, padded to 128, float32", _epoch),
}


def _random_examples(n: int, length: int) -> Dataset:
    ids = torch.randint(1000, 10_000, (n, length), generator=torch.Generator().manual_seed(0)).tolist()
    rows = {"input_ids": ids, "attention_mask": [[1] * length] * n, "labels": [i % 2 for i in range(n)]}
    return Dataset.from_dict(rows | {"length": [length] * n})


def _mini_plm() -> SharedPLM:
    set_seed(0)
    return SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2)


def _random_plm(layers: int, hidden: int, vocabulary: int) -> SharedPLM:
    set_seed(0)
    config = BertConfig(
        vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
    )  # fmt: skip
    models = AutoModelForSequenceClassification.from_config(config), AutoModelForMaskedLM.from_config(config)
    return SharedPLM(*models, AutoTokenizer.from_pretrained(MINI_MODEL_DIR))


def _trainer(plm: SharedPLM, objective: Objective, examples: Dataset, folder: str, **settings) -> ObjectiveTrainer:
    trainer = ObjectiveTrainer(
        plm, objective, ObjectiveArguments(folder, **_TRAINING | precision() | settings), examples
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _step_seconds(plm: SharedPLM, objective: Objective, examples: Dataset, **settings) -> list[float]:
    """Of each step of a training but the last, from its start to the next one's, the device's queue emptied."""
    with tempfile.TemporaryDirectory() as folder:
        return _timed(_trainer(plm, objective, examples, folder, **settings))


def _stock_step_seconds(plm: SharedPLM, objective: Objective, examples: Dataset, **settings) -> list[float]:
    """The same of transformers' own Trainer, compiled where there is a GPU."""
    with tempfile.TemporaryDirectory() as folder:
        compiled = {"torch_compile": torch.cuda.is_available()}
        arguments = TrainingArguments(folder, **_TRAINING | precision() | compiled | settings)
        trainer = Trainer(plm.classifier, arguments, train_dataset=examples.remove_columns("length"))
        trainer.remove_callback(PrinterCallback)
        return _timed(trainer)


def _loop_step_seconds(
    plm: SharedPLM, objective: Objective, examples: Dataset, per_device_train_batch_size: int
) -> list[float]:
    """The same of a plain PyTorch loop."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    plm.to(device).train()
    collate = Collator(plm.tokenizer, objective.columns)
    batches = DataLoader(examples, per_device_train_batch_size, collate_fn=collate, pin_memory=device.type == "cuda")
    optimizer = torch.optim.AdamW(plm.parameters(), fused=True)
    half = torch.float16 if precision()["fp16"] else torch.bfloat16
    scaler = torch.amp.GradScaler(device.type, enabled=precision()["fp16"])
    starts = []
    for batch in batches:
        starts.append(_now())
        batch = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
        with torch.autocast(device.type, half, enabled=precision_name() != "float32"):
            loss = plm(objective, batch).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(plm.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return _differences(starts)


# ways of doing a step
MODES: dict[str, Callable[..., list[float]]] = {
    "graphs": _step_seconds,
    "eager": partial(_step_seconds, cuda_graphs=False),
    "loop": _loop_step_seconds,
    "stock": _stock_step_seconds,
}


def _timed(trainer: Trainer) -> list[float]:
    starts = []

    class Clock(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            starts.append(_now())

    trainer.add_callback(Clock())
    trainer.train()
    return _differences(starts)


def _differences(starts: Sequence[float]) -> list[float]:
    return [later - sooner for sooner, later in itertools.pairwise(starts)]


def _seconds(work: Callable) -> float:
    started = _now()
    work()
    return _now() - started


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()

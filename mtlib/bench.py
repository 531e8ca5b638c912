"""How fast things are: `python -m mtlib bench`.

`step` gives a ratio of two things done in turn in one process: an absolute time belongs to a
machine, a ratio says something about the code. `throughput` says what one device does in a second.
"""

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
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
from mtlib.trainer import ObjectiveArguments, ObjectiveTrainer

# words in SST-2's 67,349 training phrases: the middles of eleven equal parts
SST2_WORDS = (1, 2, 3, 4, 5, 7, 9, 11, 14, 19, 27)
SHAPES = {"bert-base": (12, 768, 30_522), "mini": (4, 384, 10_000)}  # layers, hidden, vocabulary
SIZES = ((16, 16), (32, 32), (32, 128))  # sequences of a batch, tokens of a sequence
_TRAINING = {
    "save_strategy": "no",
    "logging_strategy": "no",
    "disable_tqdm": True,
    "report_to": "none",
    "num_train_epochs": 1,
    "per_device_train_batch_size": 16,
    "seed": 0,
}


def step(quick: bool = False) -> dict:
    """One step of Mask-tuning beside one of fine-tuning, losses and clipping included.

    Args:
        quick: fewer steps and repeats, for a first look.

    Returns:
        What is compared with what, and what `compare` returns.
    """
    quiet_libraries()
    examples = tokenise(phrases(16), AutoTokenizer.from_pretrained(MINI_MODEL_DIR))
    steps = 6 if quick else 20

    def seconds(objective: Objective) -> float:
        return statistics.median(_step_seconds(_mini_plm(), objective, examples, max_steps=steps))

    ours = partial(seconds, MaskTuning())
    theirs = partial(seconds, FineTuning())
    compared = {"what": "one Mask-tuning step", "against": "one fine-tuning step, same batch"}
    return compared | compare(ours, theirs, repeats=3 if quick else 7)


def compare(
    ours: Callable[[], float],
    theirs: Callable[[], float],
    repeats: int,
) -> dict[str, float]:
    """Call two functions that return seconds in turn, after one round that does not count.

    Returns:
        `ratio` is the ratio of their median seconds; `low` and `high` are the quartiles of the
        ratios of neighbours in time.
    """
    ours()
    theirs()
    pairs = [(ours(), theirs()) for _ in range(repeats)]
    low, _, high = statistics.quantiles([mine / other for mine, other in pairs], n=4)
    mine = statistics.median(mine for mine, _ in pairs)
    other = statistics.median(other for _, other in pairs)
    numbers = {
        "ratio": mine / other,
        "low": low,
        "high": high,
        "seconds": mine,
        "seconds_against": other,
    }
    return {name: round(number, 4) for name, number in numbers.items()}


def throughput(
    shape: str = "bert-base",
    sizes: Sequence[tuple[int, int]] = SIZES,
    steps: int = 30,
) -> Iterator[dict]:
    """Measure fine-tuning and Mask-tuning on random weights and tokens, in bf16 where possible.

    Args:
        shape: a key of `SHAPES`.
        sizes: pairs of (sequences in a batch, tokens in a sequence).
        steps: of each training; the first third warms up and does not count.

    Yields:
        A row for each size, mode and method. Modes are the keys of `MODES`, "graphs" only on a GPU
        and "stock" only for fine-tuning.
    """
    check_choice("shape", shape, SHAPES)
    quiet_libraries()
    for size in sizes:
        for mode in MODES:
            if mode == "graphs" and not torch.cuda.is_available():
                continue
            yield from _throughput_of_mode(mode, shape, size, steps)


def _throughput_of_mode(mode: str, shape: str, size: tuple[int, int], steps: int) -> Iterator[dict]:
    objectives = {"fine_tuning": FineTuning, "mask_tuning": MaskTuning}
    if mode == "stock":
        del objectives["mask_tuning"]
    batch_size, length = size
    speeds = {}
    for method, objective in objectives.items():
        plm = _random_plm(*SHAPES[shape])
        examples = _random_examples(batch_size * steps, length)
        seconds = MODES[mode](plm, objective(), examples, per_device_train_batch_size=batch_size)
        # the median, so that a single slow step does not count
        speed = batch_size / statistics.median(seconds[steps // 3 :])
        speeds[method] = speed
        yield {
            "size": f"{batch_size} x {length}",
            "mode": mode,
            "method": method,
            "sequences_per_second": round(speed, 1),
            "ratio_to_fine_tuning": round(speeds["fine_tuning"] / speed, 2),
        }


def phrases(n: int) -> Dataset:
    """Testbed sentences, each repeated twice and cut to the length of one of SST-2's phrases."""
    rows = load("testbed_sentiment_train")
    rows = rows.select([i % len(rows) for i in range(n)])
    texts = []
    for text, n_words in zip(rows["text"], itertools.cycle(SST2_WORDS), strict=False):
        texts.append(" ".join((text.split() * 2)[:n_words]))
    return rows.remove_columns("text").add_column("text", texts)


def _random_examples(n: int, length: int) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    rows = {
        "input_ids": torch.randint(1000, 10_000, (n, length), generator=generator).tolist(),
        "attention_mask": [[1] * length] * n,
        "labels": [i % 2 for i in range(n)],
        "length": [length] * n,
    }
    return Dataset.from_dict(rows)


def _mini_plm() -> SharedPLM:
    set_seed(0)
    return SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2)


def _random_plm(layers: int, hidden: int, vocabulary: int) -> SharedPLM:
    set_seed(0)
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
    )
    classifier = AutoModelForSequenceClassification.from_config(config)
    masked_lm = AutoModelForMaskedLM.from_config(config)
    return SharedPLM(classifier, masked_lm, AutoTokenizer.from_pretrained(MINI_MODEL_DIR))


def _trainer(
    plm: SharedPLM,
    objective: Objective,
    examples: Dataset,
    folder: str,
    **settings,
) -> ObjectiveTrainer:
    arguments = ObjectiveArguments(folder, **_TRAINING | precision() | settings)
    return _quiet(ObjectiveTrainer(plm, objective, arguments, examples))


def _quiet(trainer: Trainer) -> Trainer:
    trainer.remove_callback(PrinterCallback)
    return trainer


def _step_seconds(
    plm: SharedPLM,
    objective: Objective,
    examples: Dataset,
    **settings,
) -> list[float]:
    """The seconds of each step of a training but the last, until the device has finished it."""
    with tempfile.TemporaryDirectory() as folder:
        return _timed(_trainer(plm, objective, examples, folder, **settings))


def _stock_step_seconds(
    plm: SharedPLM,
    objective: Objective,
    examples: Dataset,
    **settings,
) -> list[float]:
    """The same for the Trainer of transformers, compiled where there is a GPU."""
    with tempfile.TemporaryDirectory() as folder:
        settings = _TRAINING | precision() | settings
        settings["torch_compile"] = torch.cuda.is_available()
        arguments = TrainingArguments(folder, **settings)
        examples = examples.remove_columns("length")
        return _timed(_quiet(Trainer(plm.classifier, arguments, train_dataset=examples)))


def _loop_step_seconds(
    plm: SharedPLM,
    objective: Objective,
    examples: Dataset,
    per_device_train_batch_size: int,
) -> list[float]:
    """The same for a plain PyTorch loop."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    plm.to(device).train()
    batches = DataLoader(
        examples,
        per_device_train_batch_size,
        collate_fn=Collator(plm.tokenizer, objective.columns),
        pin_memory=device.type == "cuda",
    )
    optimizer = torch.optim.AdamW(plm.parameters(), fused=True)
    use_fp16 = precision()["fp16"]
    half = torch.float16 if use_fp16 else torch.bfloat16
    use_half = precision_name() != "float32"
    scaler = torch.amp.GradScaler(device.type, enabled=use_fp16)
    starts = []
    for batch in batches:
        starts.append(_now())
        batch = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
        with torch.autocast(device.type, half, enabled=use_half):
            loss = plm(objective, batch).loss
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(plm.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return np.diff(starts).tolist()


# ways to train; each function returns the seconds of the steps
MODES: dict[str, Callable[..., list[float]]] = {
    "graphs": _step_seconds,
    "eager": partial(_step_seconds, cuda_graphs=False),
    "loop": _loop_step_seconds,
    "stock": _stock_step_seconds,
}


class _Clock(TrainerCallback):
    """Notes when each step begins."""

    def __init__(self):
        self.starts = []

    def on_step_begin(self, args, state, control, **kwargs):
        self.starts.append(_now())


def _timed(trainer: Trainer) -> list[float]:
    clock = _Clock()
    trainer.add_callback(clock)
    trainer.train()
    return np.diff(clock.starts).tolist()


def _now() -> float:
    """The time at which the device has finished all work that was given to it."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()

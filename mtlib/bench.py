"""How fast things are, as ratios measured side by side in one process: `python -m mtlib bench`.

Absolute times belong to a machine; a ratio of two things measured in turn, on the same data, says something about the
code. Each benchmark gives a pair of callables that return seconds (or MB); they take turns, and the ratio is that of
their medians.
"""

import itertools
import multiprocessing
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import torch
from datasets import Dataset, disable_progress_bars
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    pipeline,
    set_seed,
)
from transformers.utils import logging

from mtlib.data.encoding import predict, tokenise
from mtlib.data.sources import load
from mtlib.errors import UserError
from mtlib.masking import ExactMasking
from mtlib.objectives import FineTuning, MaskTuning, Objective, masked_lm_loss
from mtlib.paths import MINI_MODEL_DIR
from mtlib.plm import SharedPLM
from mtlib.runs import environment
from mtlib.stages import Refill
from mtlib.trainer import ObjectiveArguments, ObjectiveTrainer, precision

# words in SST-2's 67,349 training phrases: the middles of eleven equal parts
_SST2_WORDS = (1, 2, 3, 4, 5, 7, 9, 11, 14, 19, 27)


@dataclass(frozen=True)
class Benchmark:
    """A row of the table. `wanted` is the bound on the ratio, and `most` is True where it is an upper bound."""

    name: str
    what: str
    against: str
    wanted: float
    most: bool
    make: Callable[[bool], tuple[Callable[[], float], Callable[[], float]]]
    repeats: int = 5


@dataclass(frozen=True)
class Measured:
    """`ratio` of the two medians, `low` and `high` the quartiles of the ratios of neighbours in time."""

    name: str
    what: str
    against: str
    ratio: float
    low: float
    high: float
    wanted: str
    met: bool
    ours: float
    theirs: float
    unit: str
    repeats: int
    commit: str | None


def run(
    names: Sequence[str] = (),
    quick: bool = False,
    report: Callable[[Measured], None] = print,
    before: dict | None = None,
) -> dict:
    """Measure, one benchmark after the other, and return what `data/results/bench_cpu.json` holds.

    Args:
        names: which ones; all by default.
        quick: fewer repeats and smaller data, for a first look.
        report: called with each result.
        before: what an earlier call returned; its results are kept for benchmarks that are not measured now.
    """
    by_name = {benchmark.name: benchmark for benchmark in (QUICK if quick else BENCHMARKS)}
    for name in names:
        if name not in by_name:
            raise UserError(f"no benchmark {name!r}; expected one of {', '.join(by_name)}.")
    here = environment.describe()
    commit = here.pop("commit")
    if before is not None and (before.get("environment"), before.get("quick")) != (here, quick):
        raise UserError(
            "these results come from another machine, other versions or another --quick; give another file."
        )
    _be_quiet()
    measured = {entry["name"]: entry for entry in (before or {}).get("measured", ())}
    for name in names or by_name:
        result = measure(by_name[name], quick, commit)
        measured[name] = asdict(result)
        report(result)
    return {"environment": here, "quick": quick, "measured": [measured[name] for name in by_name if name in measured]}


def markdown(results: dict) -> str:
    """The table, in data/results/README.md, of what `run` returned."""
    lines = ["| what | against | ratio (quartiles) | wanted | met |", "| --- | --- | ---: | ---: | --- |"]
    for entry in results["measured"]:
        sense = "x the time" if entry["wanted"].endswith("less") else "x faster"
        if entry["unit"] == "MB":
            sense = "x the memory"
        lines.append(
            f"| {entry['what']} | {entry['against']} | {entry['ratio']:.2f} {sense} ({entry['low']:.2f} to "
            f"{entry['high']:.2f}) | {entry['wanted']} | {'yes' if entry['met'] else 'no'} |"
        )
    return "\n".join(lines)


def measure(benchmark: Benchmark, quick: bool, commit: str | None = None) -> Measured:
    """Both sides in turn, after one round that does not count."""
    ours, theirs = benchmark.make(quick)
    ours(), theirs()
    pairs = [(ours(), theirs()) for _ in range(benchmark.repeats)]
    # "or less" is told as ours / theirs, "or more" (times faster) as theirs / ours
    ratios = sorted(a / b if benchmark.most else b / a for a, b in pairs)
    mine, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratio = mine / other if benchmark.most else other / mine
    low, _, high = statistics.quantiles(ratios, n=4)
    bound = f"{benchmark.wanted:g} or {'less' if benchmark.most else 'more'}"
    met = ratio <= benchmark.wanted if benchmark.most else ratio >= benchmark.wanted
    unit = "MB" if benchmark.name == "memory" else "s"
    return Measured(
        benchmark.name, benchmark.what, benchmark.against, round(ratio, 3), round(low, 3), round(high, 3), bound, met,
        round(mine, 4), round(other, 4), unit, benchmark.repeats, commit,
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------------- benchmarks


def _step(quick: bool):
    """One optimiser step on the same batch, losses and clipping included."""
    examples = _phrases(16)

    def timed(objective: Objective) -> Callable[[], float]:
        return lambda: statistics.median(_step_seconds(_mini(), objective, examples, max_steps=20))

    return timed(MaskTuning()), timed(FineTuning())


def _epoch(quick: bool):
    """A training as one runs it: ours (grouped by length, bf16 where the CPU has it), and run_glue.py's at batch 16."""
    rows = _phrase_rows(320 if quick else 960)

    def ours() -> float:
        examples = tokenise(rows, AutoTokenizer.from_pretrained(MINI_MODEL_DIR))
        with tempfile.TemporaryDirectory() as folder:
            return _seconds(_trainer(_mini(), MaskTuning(), examples, folder).train)

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
            trainer = Trainer(model, TrainingArguments(folder, **_quiet(), **_on_cpu()), train_dataset=data)
            trainer.remove_callback(PrinterCallback)
            return _seconds(trainer.train)

    return ours, stock


def _head(quick: bool):
    """Forward and backward of L_MLM with BERT-base's vocabulary: the head at the masked places, and everywhere."""
    tokenizer = AutoTokenizer.from_pretrained(MINI_MODEL_DIR)
    no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    plm = _random_plm(tokenizer, layers=4, hidden=384, vocabulary=30_522, heads=12, **no_dropout).train()
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
            return _seconds(lambda: [loss().backward() for _ in range(5)])

        return steps

    return timed(ours), timed(full)


def _refilling(quick: bool):
    """Sentences masked and refilled per second: `Refill` against transformers' fill-mask pipeline in batches."""
    plm = _mini()
    rows = _phrase_rows(256 if quick else 1024)
    refill = Refill(ExactMasking(0.05))
    fill_mask = pipeline("fill-mask", model=str(MINI_MODEL_DIR), device=plm.device, dtype=torch.float32)
    masked = []
    for text in rows["text"]:
        words = text.split()
        words[len(words) // 2] = plm.tokenizer.mask_token
        masked.append(" ".join(words))

    def ours() -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision()["bf16"]):
            return _seconds(lambda: refill(plm, tokenise(rows, plm.tokenizer), seed=0))  # the pipeline tokenises too

    return ours, lambda: _seconds(lambda: fill_mask(Dataset.from_dict({"t": masked})["t"][:], batch_size=64))


def _evaluation(quick: bool):
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
            arguments = TrainingArguments(folder, per_device_eval_batch_size=64, **_quiet(), **_on_cpu())
            return _seconds(lambda: Trainer(plm.classifier, arguments).predict(padded))

    return lambda: _seconds(lambda: predict(plm, data)), stock


def _memory(quick: bool):
    """Peak resident memory of a training process with many examples and with few."""
    many, few = (8_000, 1_000) if quick else (67_000, 4_000)
    return lambda: _in_process(_train_some, many)[1], lambda: _in_process(_train_some, few)[1]


def _scale(quick: bool):
    """Seconds per example, tokenising included, on a tiny model, so that it is the handling of data that shows."""
    many, few = (8_000, 1_000) if quick else (64_000, 4_000)
    return (
        lambda: _in_process(_train_all, many)[0] / many,
        lambda: _in_process(_train_all, few)[0] / few,
    )


def _start(quick: bool):
    """Seconds until `python -m mtlib --help` answers; the other side is one second."""
    command = [sys.executable, "-m", "mtlib", "--help"]
    return lambda: _seconds(lambda: subprocess.run(command, check=True, capture_output=True)), lambda: 1.0


BENCHMARKS = (
    Benchmark("step", "one Mask-tuning step", "one fine-tuning step, same batch", 2.1, True, _step, repeats=9),
    Benchmark(
        "epoch", "one epoch of Mask-tuning, SST-2-like lengths",
        "one epoch of stock fine-tuning, padded to 128, float32", 0.5, True, _epoch,
    ),
    Benchmark(
        "head", "masked-LM head at the masked places (5 %)", "full-vocabulary logits, 30,522 tokens; same loss", 1.5,
        False, _head, repeats=9,
    ),
    Benchmark("refill", "refilling sentences", 'pipeline("fill-mask"), batches of 64', 20, False, _refilling),
    Benchmark("evaluation", "predicting HANS-like pairs", "Trainer.predict, padded to 128", 3, False, _evaluation),
    Benchmark("memory", "peak memory, 67,000 training examples", "4,000 training examples", 1.1, True, _memory, 3),
    Benchmark("scale", "time per example, 64,000 examples", "4,000 examples", 1.05, True, _scale, repeats=3),
    Benchmark("start", "python -m mtlib --help", "one second", 1.0, True, _start),
)  # fmt: skip
QUICK = tuple(
    replace(
        benchmark, repeats=min(3, benchmark.repeats),
        what=re.sub(r"6[47],000", "8,000", benchmark.what), against=benchmark.against.replace("4,000", "1,000"),
    )
    for benchmark in BENCHMARKS
)  # fmt: skip


# --------------------------------------------------------------------------------------------------------- throughput

# dense bf16 peak in TFLOP/s by part of the device's name, from the makers' data sheets
_PEAK_TFLOPS = {"H200": 989.0, "H100": 989.0, "A100": 312.0, "L4": 121.0}
SHAPES = {"bert-base": (12, 768, 30_522), "mini": (4, 384, 10_000)}  # layers, hidden size, vocabulary


def throughput(shape: str = "bert-base", batch_size: int = 32, steps: int = 30) -> list[dict]:
    """Both methods on random weights and tokens, at lengths of 32, 128 and mixed, in bf16 where there is.

    Returns:
        A row per length and method. `utilisation` is model FLOPs by the device's peak, None where that is unknown.
    """
    if shape not in SHAPES:
        raise UserError(f"no shape {shape!r}; expected one of {', '.join(SHAPES)}.")
    tokenizer, gpu = AutoTokenizer.from_pretrained(MINI_MODEL_DIR), torch.cuda.is_available()
    peak = next((tf for name, tf in _PEAK_TFLOPS.items() if gpu and name in torch.cuda.get_device_name()), None)
    rows, speeds = [], {}
    for length in ("32", "128", "mixed"):
        examples = _random_examples(batch_size * steps, length, len(tokenizer))
        for method, objective in (("fine_tuning", FineTuning()), ("mask_tuning", MaskTuning())):
            if gpu:
                torch.cuda.reset_peak_memory_stats()
            plm = _random_plm(tokenizer, *SHAPES[shape])
            step_seconds = _step_seconds(plm, objective, examples, per_device_train_batch_size=batch_size)
            per_step = statistics.mean(step_seconds[steps // 3 :])  # the first third warms up
            speeds[method] = batch_size / per_step
            mean_length = statistics.mean(examples["length"])
            tflops = model_flops(method, shape, mean_length) * batch_size / per_step / 1e12
            rows.append({
                "method": method,
                "length": length,
                "sequences_per_second": round(speeds[method], 1),
                "ratio_to_fine_tuning": round(speeds["fine_tuning"] / speeds[method], 2),
                "tflops": round(tflops, 3),
                "utilisation": peak and round(tflops / peak, 3),
                "peak_memory_mb": round(torch.cuda.max_memory_allocated() / 2**20) if gpu else None,
            })  # fmt: skip
    return rows


def _random_examples(n: int, length: str, vocabulary: int) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(8, 129, (n,), generator=generator) if length == "mixed" else torch.full((n,), int(length))
    ids = [torch.randint(1000, vocabulary, (count,), generator=generator).tolist() for count in lengths.tolist()]
    return Dataset.from_dict({
        "input_ids": ids, "attention_mask": [[1] * len(row) for row in ids], "labels": [i % 2 for i in range(n)],
        "length": lengths.tolist(),
    })  # fmt: skip


def model_flops(method: str, shape: str, length: float) -> float:
    """Floating-point operations of one example's forward and backward passes: "fine_tuning" or "mask_tuning".

    6 per weight of the layers and token, and 12 x layers x hidden x length per token for the attention; Mask-tuning has
    two such passes, and its head's vocabulary product at 5 % of the tokens. Other parts are small and left out.
    """
    layers, hidden, vocabulary = SHAPES[shape]
    one_pass = (6 * 12 * layers * hidden**2 + 12 * layers * hidden * length) * length
    return one_pass if method == "fine_tuning" else 2 * one_pass + 6 * vocabulary * hidden * 0.05 * length


# ------------------------------------------------------------------------------------------------------------ profile

# what torch's profiler calls the operations that take a share worth naming
_KINDS = {
    "matrix products": ("aten::mm", "aten::addmm", "aten::bmm"),
    "random numbers of dropout": ("aten::bernoulli_",),
    "copies between number formats": ("aten::copy_",),
    "optimiser": ("aten::_fused_adamw_",),
}


def profile(quick: bool = False) -> dict[str, dict[str, float]]:
    """Per cent of the processor's time in a training step, by method and kind of operation; 16 SST-2-like phrases.

    Self time of torch's profiler over 40 steps (quick: 2), on as many threads as torch has (`OMP_NUM_THREADS`).
    """
    _be_quiet()
    examples, shares = _phrases(16), {}
    for method, objective in (("fine_tuning", FineTuning()), ("mask_tuning", MaskTuning())):
        with tempfile.TemporaryDirectory() as folder:
            trainer = _trainer(_mini(), objective, examples, folder, max_steps=2 if quick else 40)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
                trainer.train()
        times = {event.key: event.self_cpu_time_total for event in profiler.key_averages()}
        by_kind = {kind: sum(times.get(name, 0) for name in names) for kind, names in _KINDS.items()}
        by_kind["everything else"] = sum(times.values()) - sum(by_kind.values())
        shares[method] = {kind: 100 * time / sum(times.values()) for kind, time in by_kind.items()}
    return shares


# ------------------------------------------------------------------------------------------------------------ helpers


def _phrase_rows(n: int) -> Dataset:
    """Testbed sentences, each with itself behind it, cut to the lengths of SST-2's phrases."""
    rows = load("testbed_sentiment_train")
    rows = rows.select([i % len(rows) for i in range(n)])
    words = [_SST2_WORDS[i % len(_SST2_WORDS)] for i in range(n)]
    texts = [" ".join((text.split() * 2)[:count]) for text, count in zip(rows["text"], words, strict=True)]
    return rows.remove_columns("text").add_column("text", texts)


def _phrases(n: int) -> Dataset:
    return tokenise(_phrase_rows(n), AutoTokenizer.from_pretrained(MINI_MODEL_DIR))


def _quiet() -> dict:
    return {
        "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True, "report_to": "none",
        "num_train_epochs": 1, "per_device_train_batch_size": 16, "seed": 0,
    }  # fmt: skip


def _on_cpu() -> dict:
    return {"use_cpu": precision()["use_cpu"]}


def _mini() -> SharedPLM:
    set_seed(0)
    return SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2)


def _random_plm(tokenizer, layers: int, hidden: int, vocabulary: int, heads: int | None = None, **changes) -> SharedPLM:
    set_seed(0)
    config = BertConfig(
        vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads or hidden // 64,
        **{"intermediate_size": 4 * hidden} | changes,
    )  # fmt: skip
    models = AutoModelForSequenceClassification.from_config(config), AutoModelForMaskedLM.from_config(config)
    return SharedPLM(*models, tokenizer)


def _trainer(plm: SharedPLM, objective: Objective, examples: Dataset, folder: str, **settings) -> ObjectiveTrainer:
    arguments = ObjectiveArguments(folder, **_quiet() | precision() | settings)
    trainer = ObjectiveTrainer(plm, objective, arguments, examples)
    trainer.remove_callback(PrinterCallback)
    return trainer


def _step_seconds(plm: SharedPLM, objective: Objective, examples: Dataset, **settings) -> list[float]:
    """Of each step of a training but the last, from its start to the next one's, the device's queue emptied."""
    starts = []

    class Clock(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            starts.append(_now())

    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(plm, objective, examples, folder, **settings)
        trainer.add_callback(Clock())
        trainer.train()
    return [later - sooner for sooner, later in itertools.pairwise(starts)]


def _seconds(work: Callable) -> float:
    started = _now()
    work()
    return _now() - started


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def _be_quiet() -> None:
    disable_progress_bars()
    logging.disable_progress_bar()


def _in_process(work: Callable[[int], None], n: int) -> tuple[float, float]:
    """(seconds, peak MB) of `work(n)` in a fresh process, whose imports are not timed."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seconds_and_memory = pool.apply(_alone, (work, n))
        pool.close()  # leaving the block would kill the process, and its semaphores would be reported as leaked
        pool.join()
    return seconds_and_memory


def _alone(work: Callable[[int], None], n: int) -> tuple[float, float]:
    _be_quiet()
    return _seconds(lambda: work(n)), environment.peak_memory_mb()


def _train_some(n: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _trainer(_mini(), MaskTuning(), _phrases(n), folder, max_steps=20).train()


def _train_all(n: int) -> None:
    tokenizer = AutoTokenizer.from_pretrained(MINI_MODEL_DIR)
    plm = _random_plm(tokenizer, layers=1, hidden=32, vocabulary=len(tokenizer), heads=2, intermediate_size=64)
    settings = {"bf16": False, "per_device_train_batch_size": 64}
    with tempfile.TemporaryDirectory() as folder:
        _trainer(plm, MaskTuning(), _phrases(n), folder, **settings).train()

"""Sequences per second of one device, and the share of its peak that they take."""

import statistics

import torch
from datasets import Dataset
from transformers import AutoTokenizer

from mtlib.bench.clock import step_seconds
from mtlib.bench.workloads import random_plm
from mtlib.errors import UserError
from mtlib.objectives import FineTuning, MaskTuning
from mtlib.paths import MINI_MODEL_DIR

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
            plm = random_plm(tokenizer, *SHAPES[shape])
            durations = step_seconds(plm, objective, examples, per_device_train_batch_size=batch_size)
            per_step = statistics.median(durations[steps // 3 :])  # the first third warms up; one hiccup must not count
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


def model_flops(method: str, shape: str, length: float) -> float:
    """Floating-point operations of one example's forward and backward passes: "fine_tuning" or "mask_tuning".

    6 per weight of the layers and token, and 12 x layers x hidden x length per token for the attention; Mask-tuning has
    two such passes, and its head's vocabulary product at 5 % of the tokens. Other parts are small and left out.
    """
    layers, hidden, vocabulary = SHAPES[shape]
    one_pass = (6 * 12 * layers * hidden**2 + 12 * layers * hidden * length) * length
    return one_pass if method == "fine_tuning" else 2 * one_pass + 6 * vocabulary * hidden * 0.05 * length


def _random_examples(n: int, length: str, vocabulary: int) -> Dataset:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(8, 129, (n,), generator=generator) if length == "mixed" else torch.full((n,), int(length))
    ids = [torch.randint(1000, vocabulary, (count,), generator=generator).tolist() for count in lengths.tolist()]
    return Dataset.from_dict({
        "input_ids": ids, "attention_mask": [[1] * len(row) for row in ids], "labels": [i % 2 for i in range(n)],
        "length": lengths.tolist(),
    })  # fmt: skip

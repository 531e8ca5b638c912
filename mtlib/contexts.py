"""The device's precision, and blocks with another state: evaluation mode, gradients, seeds."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode (no dropout) inside the block; afterwards the mode that the model had."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


@contextmanager
def gradients_if(enabled: bool) -> Iterator[None]:
    """Gradients inside the block only if `enabled`, and if they are enabled outside of it.

    After a block without gradients, autocast's cache of cast weights is cleared: torch before 2.11
    would reuse casts that were made without a graph, and the passes after the block would train
    nothing (pytorch#158232).
    """
    try:
        with torch.set_grad_enabled(torch.is_grad_enabled() and enabled):
            yield
    finally:
        if not enabled:
            torch.clear_autocast_cache()


@contextmanager
def forked_random_state(device: torch.device, seed: int | None = None) -> Iterator[None]:
    """A block after which torch's global generators are as before; it may start with a seed."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        if seed is not None:
            torch.manual_seed(seed)
        yield


def precision() -> dict[str, bool]:
    """`{"bf16": ..., "fp16": ..., "use_cpu": ...}`: what this machine trains in.

    bf16 where the device computes in it, else fp16 on a GPU (a T4) and float32 on a CPU.
    """
    if torch.cuda.is_available():
        bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
        return {"bf16": bf16, "fp16": not bf16, "use_cpu": False}
    return {"bf16": torch.cpu._is_avx512_bf16_supported(), "fp16": False, "use_cpu": True}


def precision_name() -> str:
    """ "bf16", "fp16" or "float32": what `precision` says."""
    found = precision()
    if found["bf16"]:
        return "bf16"
    return "fp16" if found["fp16"] else "float32"

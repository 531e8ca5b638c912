"""Where the processor's time in a training step goes."""

import tempfile

import torch

from mtlib.bench.workloads import be_quiet, make_trainer, mini_plm, phrases
from mtlib.objectives import FineTuning, MaskTuning

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
    be_quiet()
    examples, shares = phrases(16), {}
    for method, objective in (("fine_tuning", FineTuning()), ("mask_tuning", MaskTuning())):
        with tempfile.TemporaryDirectory() as folder:
            trainer = make_trainer(mini_plm(), objective, examples, folder, max_steps=2 if quick else 40)
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
                trainer.train()
        times = {event.key: event.self_cpu_time_total for event in profiler.key_averages()}
        by_kind = {kind: sum(times.get(name, 0) for name in names) for kind, names in _KINDS.items()}
        by_kind["everything else"] = sum(times.values()) - sum(by_kind.values())
        shares[method] = {kind: 100 * time / sum(times.values()) for kind, time in by_kind.items()}
    return shares

"""What surrounds a run: versions, the machine, its memory, and who reads what is printed."""

import contextlib
import gc
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Literal

import torch
from datasets import disable_progress_bars
from transformers.utils import logging

import mtlib
from mtlib.runs.code import code_sha256, commit, processor

try:
    import resource
except ImportError:  # Windows counts memory otherwise
    resource = None

RECORDED = ("torch", "transformers", "datasets", "accelerate", "tokenizers", "numpy")


def describe() -> dict:
    """Versions, device, commit and code, as they go into a run record."""
    gpu = torch.cuda.is_available()
    return {
        "mtlib": mtlib.__version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in RECORDED},
        "platform": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name() if gpu else processor(),
        "devices": torch.cuda.device_count() if gpu else torch.get_num_threads(),
        "commit": commit(),
        "code_sha256": code_sha256(),
    }


def quiet_libraries() -> None:
    """No progress bars of datasets and transformers: ours says how a training goes."""
    disable_progress_bars()
    logging.disable_progress_bar()
    # it remarks on file systems whose times it does not trust; checkpoints are told apart by number
    logging.get_logger("transformers.trainer_utils").setLevel(logging.ERROR)


def audience() -> Literal["person", "notebook", "log"]:
    """Who sees what is printed.

    A person at a terminal or an open notebook, a notebook run by a program, or a log. papermill,
    nbconvert and `jupyter execute` run the kernel that a person has open, but tell it that nobody
    answers.
    """
    kernel = None
    if "IPython" in sys.modules:
        kernel = getattr(sys.modules["IPython"].get_ipython(), "kernel", None)
    if kernel is not None:
        return "person" if getattr(kernel, "_allow_stdin", False) else "notebook"
    return "person" if sys.stderr.isatty() else "log"


def reset_peak_memory() -> None:
    """Let `peak_memory_mb` count from here on: a process may do one run after the other."""
    gc.collect()  # the model of an earlier run
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    else:
        with contextlib.suppress(OSError):  # on Linux alone
            Path("/proc/self/clear_refs").write_text("5")


def peak_memory_mb() -> float:
    """Most memory this process has held since `reset_peak_memory`, in MB.

    Of the GPU if it uses one, else resident.
    """
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    with contextlib.suppress(OSError):  # ru_maxrss would be the parent's where that was larger
        return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 2**10
    if resource is None:
        import psutil  # comes with accelerate

        return psutil.Process().memory_info().peak_wset / 2**20
    unit = 1 if sys.platform == "darwin" else 2**10  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20

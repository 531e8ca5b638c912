"""What a result depends on besides its configuration, and whether this machine can run the project."""

import os
import platform
import resource
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

import mtlib
from mtlib.paths import MINI_MODEL_DIR

RECORDED = ("torch", "transformers", "datasets", "accelerate", "tokenizers", "numpy")


def describe() -> dict:
    """Versions, device and commit, as they go into a run record."""
    import torch

    gpu = torch.cuda.is_available()
    return {
        "mtlib": mtlib.__version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in RECORDED},
        "platform": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name() if gpu else _processor(),
        "devices": torch.cuda.device_count() if gpu else torch.get_num_threads(),
        "commit": commit(),
    }


def commit() -> str | None:
    """The commit of the checkout mtlib runs from, with "+changes" where tracked files differ from it."""
    root = Path(mtlib.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    describe_head = ["git", "-C", str(root), "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes"]
    try:
        return subprocess.run(describe_head, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def in_notebook() -> bool:
    """True inside a Jupyter kernel, whoever runs it."""
    return _kernel() is not None


def is_interactive() -> bool:
    """True in a notebook that a person has open: only there may a cell ask for input.

    papermill, nbconvert and `jupyter execute` run the same kernel, but tell it that nobody answers.
    """
    return getattr(_kernel(), "_allow_stdin", False)


def _kernel():
    return getattr(sys.modules["IPython"].get_ipython(), "kernel", None) if "IPython" in sys.modules else None


def device_note() -> str:
    """Where training will run, and what to do if that is not what one expects: advice, never an error."""
    import torch

    from mtlib.trainer import precision

    kind = "bf16" if precision()["bf16"] else "float32"
    if torch.cuda.is_available():
        return f"GPU: {torch.cuda.get_device_name()}, {kind}."
    return (
        f"CPU, {torch.get_num_threads()} threads, {kind}: right for the profiles `smoke` and `cpu`. For `gpu` and "
        "`paper` take a machine with a GPU (on Colab: Runtime > Change runtime type > T4 GPU)."
    )


@dataclass(frozen=True)
class Check:
    """One line of `python -m mtlib doctor`. `ok` is None for what is worth knowing but not required."""

    name: str
    ok: bool | None
    detail: str


def checks() -> list[Check]:
    """Every requirement of the package, then the machine."""
    there = (MINI_MODEL_DIR / "model.safetensors").is_file()
    model = Check("bundled model", there, "data/models/mini" if there else f"missing: {MINI_MODEL_DIR}")
    return [Check("python", None, platform.python_version()), *_requirements(), model, _device(), _hub()]


def _requirements() -> list[Check]:
    try:
        return [_requirement(Requirement(line)) for line in metadata.requires("mtlib")]
    except metadata.PackageNotFoundError:
        return [Check("mtlib", False, "not installed: run `make test` or `pip install -e .` in the checkout")]


def _requirement(requirement: Requirement) -> Check:
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        if requirement.marker is None:
            return Check(requirement.name, False, "not installed")
        extra = str(requirement.marker).split()[-1]  # mtlib has no other markers
        return Check(requirement.name, None, f"not installed (only for {extra})")
    ok = requirement.specifier.contains(version, prereleases=True)
    return Check(requirement.name, ok, f"{version} (needs {requirement.specifier})")


def _device() -> Check:
    try:
        return Check("device", None, device_note())
    except ImportError as error:
        return Check("device", False, f"{error}; install the requirements marked FAIL")


def _hub() -> Check:
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        return Check("hub", None, "HF_HUB_OFFLINE is set; bundled data and folders work")
    from huggingface_hub import constants

    try:
        urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=5).close()
        return Check("hub", None, f"{constants.ENDPOINT} answers")
    except OSError as error:
        return Check("hub", None, f"{constants.ENDPOINT}: {error}; bundled data and folders work")


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def peak_memory_mb() -> float:
    """Most memory this process has held so far, in MB: of the GPU where it uses one, else resident."""
    import torch

    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 2**20
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would be the parent's where that was larger, for it outlives fork and exec
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 2**10
    unit = 1 if sys.platform == "darwin" else 2**10  # bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20

"""What a result depends on besides its configuration, and whether this machine can run the project."""

import os
import platform
import resource
import subprocess
import sys
import urllib.error
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
    try:
        head = _git(root, "rev-parse", "HEAD")
        return head + ("+changes" if _git(root, "status", "--porcelain", "--untracked-files=no") else "")
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
    found: str


def checks() -> list[Check]:
    """Every requirement of the package, then the machine."""
    return [*_requirements(), _bundled_model(), *_machine(), _hub()]


def _requirements() -> list[Check]:
    wanted, python = Requirement("python>=3.11"), platform.python_version()
    found = [Check("python", wanted.specifier.contains(python), f"{python} (needs {wanted.specifier})")]
    try:
        lines = metadata.requires("mtlib") or []
    except metadata.PackageNotFoundError:
        return [*found, Check("mtlib", False, "not installed: run `make test` or `pip install -e .` in the checkout")]
    for line in lines:
        requirement = Requirement(line)
        optional = requirement.marker is not None and "extra" in str(requirement.marker)
        if requirement.marker is not None and not optional and not requirement.marker.evaluate():
            continue
        try:
            version = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            needed_for = f" (only for {str(requirement.marker).split()[-1]})" if optional else ""
            found.append(Check(requirement.name, None if optional else False, f"not installed{needed_for}"))
            continue
        ok = requirement.specifier.contains(version, prereleases=True)
        found.append(Check(requirement.name, ok, f"{version} (needs {requirement.specifier})"))
    return found


def _bundled_model() -> Check:
    there = (MINI_MODEL_DIR / "model.safetensors").is_file()
    return Check("bundled model", there, "data/models/mini" if there else f"missing: {MINI_MODEL_DIR}")


def _machine() -> list[Check]:
    try:
        import torch

        from mtlib.trainer import precision
    except ImportError as error:
        return [Check("import", False, f"{error}; install the requirements marked FAIL")]
    lines = [Check("cores", None, str(os.cpu_count()))]
    if torch.cuda.is_available():
        memory = torch.cuda.get_device_properties(0).total_memory / 2**30
        lines.append(Check("GPU", None, f"{torch.cuda.get_device_name()}, {memory:.0f} GiB"))
    else:
        lines.append(Check("GPU", None, "none: the CPU will do"))
    return [*lines, Check("bf16", None, "yes" if precision()["bf16"] else "no: float32 is used")]


def _hub() -> Check:
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        return Check("hub", None, "HF_HUB_OFFLINE is set; bundled data and folders work")
    from huggingface_hub import constants

    try:
        with urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=5):
            return Check("hub", None, f"{constants.ENDPOINT} answers")
    except urllib.error.HTTPError as error:
        return Check("hub", None, f"{constants.ENDPOINT} answers with {error.code}")
    except OSError as error:
        reason = getattr(error, "reason", error)
        return Check("hub", None, f"{constants.ENDPOINT} does not answer ({reason}); bundled data and folders work")


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()


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

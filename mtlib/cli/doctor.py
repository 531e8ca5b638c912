"""`doctor`: the versions that a bug report should name, and whether they fit.

Nothing heavy is imported.
"""

import os
import platform
import subprocess

import typer

from mtlib import __version__
from mtlib.cli.terminal import print_line
from mtlib.requirements import misfits, version_of
from mtlib.runs.code import commit, processor

PACKAGES = ("torch", "transformers", "datasets")


def doctor() -> None:
    """Versions, and whether this machine can run everything.

    Exit code 1 if a package that mtlib needs is missing or has another version.

    Examples:
        python -m mtlib doctor
    """
    found = environment()
    problems = misfits()
    for name, value in found.items():
        print_line(f"{name}: {'none' if value is None else value}")
    for problem in problems or ["All packages fit."]:
        print_line(problem)
    if found["GPU"] is None:
        print_line(
            "Right for the testbed and the notebooks. For real data take a machine with a GPU "
            "(on Colab: Runtime > Change runtime type > T4 GPU)."
        )
    if problems:
        raise typer.Exit(1)


def environment() -> dict[str, str | int | None]:
    """What decides how mtlib runs here; None for what is not there."""
    return {
        "mtlib": __version__,
        "commit": commit(),
        "Python": platform.python_version(),
        **{name: version_of(name) for name in PACKAGES},
        "OS": platform.platform(),
        "processor": processor(),
        "threads": _threads(),
        "GPU": _gpu(),
    }


def _threads() -> int:
    """Processors that this process may use, or as many as OpenMP is told to."""
    number = os.environ.get("OMP_NUM_THREADS", "")
    if number.isdecimal():
        return int(number)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _gpu() -> str | None:
    """NVIDIA's cards by name, as its driver tells them."""
    names = _output(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"])
    return ", ".join(names.splitlines()) if names else None


def _output(command: list[str]) -> str | None:
    """What a command prints; None where it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()

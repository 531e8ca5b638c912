"""Whether this machine can run the project, and what is missing if not."""

import os
import platform
import urllib.request
from dataclasses import dataclass
from importlib import metadata

from packaging.requirements import Requirement

from mtlib.paths import MINI_MODEL_DIR


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


def device_note() -> str:
    """Where training will run, and what to do if that is not what one expects: advice, never an error."""
    import torch

    from mtlib.contexts import precision

    kind = "bf16" if precision()["bf16"] else "float32"
    if torch.cuda.is_available():
        return f"GPU: {torch.cuda.get_device_name()}, {kind}."
    return (
        f"CPU, {torch.get_num_threads()} threads, {kind}: right for the profiles `smoke` and `cpu`. For `gpu` and "
        "`paper` take a machine with a GPU (on Colab: Runtime > Change runtime type > T4 GPU)."
    )


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

"""What mtlib needs of the packages that are installed, and a sentence where one does not fit.

The packages' metadata are read: nothing is imported that may be broken, and pip is not needed.
"""

import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

DISTRIBUTION = "mask-tuning"


def version_of(name: str) -> str | None:
    """The version of an installed package; None for one that is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def misfits() -> list[str]:
    """A sentence for each package that is missing, or has a version that mtlib does not take.

    Packages of the extras (notebooks, cluster and so on) may be missing.
    """
    sentences = []
    for requirement in map(Requirement, _declared()):
        optional = requirement.marker is not None and not requirement.marker.evaluate({"extra": ""})
        wanted = f"{requirement.name}{requirement.specifier}"
        version = version_of(requirement.name)
        if version is None:
            if not optional:
                sentences.append(_sentence(wanted, "it is not installed"))
        elif not requirement.specifier.contains(version, prereleases=True):
            sentences.append(_sentence(wanted, f"{requirement.name} {version} is installed"))
    return sentences


def _sentence(wanted: str, found: str) -> str:
    return f"mtlib needs {wanted}, but {found}; pip install '{wanted}'."


def _declared() -> list[str]:
    """The requirements of the checkout, or of the installed package."""
    pyproject = Path(__file__).parents[1] / "pyproject.toml"
    if pyproject.is_file():
        project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
        extras = project["optional-dependencies"].items()
        optional = [f"{line}; extra == '{extra}'" for extra, lines in extras for line in lines]
        return project["dependencies"] + optional
    try:
        return metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []

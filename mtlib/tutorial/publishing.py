"""What goes back into the checkout: the outputs of a run, and the address in the notebooks' install cells."""

import tomllib
from pathlib import Path

import nbformat

from mtlib.errors import UserError
from mtlib.paths import NOTEBOOK_DIR
from mtlib.tutorial.runner import source_sha256, tags_of

# First code cell of every notebook, with the project's address once it has one; a test holds them equal
_INSTALL_CELL = """\
# On Colab: installs mtlib (about a minute). Anywhere else this cell does nothing.
import sys

repository = "{address}"  # the project's address, from [project.urls] in pyproject.toml
if "google.colab" in sys.modules:
    repository = repository or input("Which repository is this notebook from? Its address (https://...): ")
    %pip install -q "mtlib[notebooks] @ git+{{repository}}\""""


_KEPT = ("cellView", "jupyter", "tags")  # of a cell's metadata; the rest is of the run, such as papermill's timings


def publish(executed: Path, target: Path, seconds: float) -> None:
    """Put an executed copy in place of its source: outputs, and in the metadata what they were made from.

    Widget state goes: GitHub does not render a notebook whose state is incomplete.
    """
    notebook = nbformat.read(executed, as_version=4)
    if any("injected-parameters" in tags_of(cell) for cell in notebook.cells):
        raise UserError(f"{target.name} was run with changed parameters; only a default run is published.")
    made_from = {"source_sha256": source_sha256(notebook), "cpu_seconds": round(seconds)}
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
        "mtlib": notebook.metadata.get("mtlib", {}) | made_from,
    }
    for cell in notebook.cells:
        cell.metadata = {name: cell.metadata[name] for name in _KEPT if cell.metadata.get(name)}
        if "install" in tags_of(cell):
            cell.source = install_cell(repository())
    nbformat.write(notebook, target)


def install_cell(address: str) -> str:
    """The code of a notebook's `install` cell. With address "" it asks for the address when it is run on Colab."""
    return _INSTALL_CELL.format(address=address)


def repository() -> str:
    """The project's address, from [project.urls] of the checkout's pyproject.toml; "" while it has none."""
    project = tomllib.loads((NOTEBOOK_DIR.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Repository", "")

"""What goes back into the checkout: a run's outputs, the notebooks' install cells, the README's table of notebooks."""

import tomllib
from pathlib import Path

import nbformat

from mtlib.errors import UserError
from mtlib.paths import NOTEBOOK_DIR
from mtlib.tutorial import page_tables
from mtlib.tutorial.runner import find, has_tag, is_injected, source_sha256

# First code cell of every notebook, with the project's address once it has one; a test holds them equal
_INSTALL_CELL = """\
# On Colab: installs mtlib (about a minute). Anywhere else this cell does nothing.
import sys

repository = ""  # the project's address, from [project.urls] in pyproject.toml
if "google.colab" in sys.modules:
    repository = repository or input("Which repository is this notebook from? Its address (https://...): ")
    %pip install -q "mtlib[notebooks] @ git+{repository}"
"""


def publish(executed: Path, target: Path, seconds: float) -> None:
    """Put an executed copy in place of its source: outputs, and in the metadata what they were made from.

    Widget state goes (GitHub does not render a notebook whose state is incomplete), and so does whatever belongs to
    the run alone: papermill's timings and paths.
    """
    notebook = nbformat.read(executed, as_version=4)
    if any(is_injected(cell) for cell in notebook.cells):
        raise UserError(f"{target.name} was run with changed parameters; only a default run is published.")
    notebook.metadata.pop("papermill", None)
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}
    made_from = {"source_sha256": source_sha256(notebook), "cpu_seconds": round(seconds)}
    notebook.metadata["mtlib"] = notebook.metadata.get("mtlib", {}) | made_from
    for cell in notebook.cells:
        cell.metadata.pop("papermill", None)
        cell.metadata.pop("execution", None)
        if cell.metadata.get("tags") == []:
            del cell.metadata["tags"]
    nbformat.write(notebook, target)


def repository() -> str:
    """The project's address, from [project.urls] of the checkout's pyproject.toml; "" while it has none."""
    project = tomllib.loads((NOTEBOOK_DIR.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project.get("urls", {}).get("Repository", "")


def install_cell(address: str) -> str:
    """The code of a notebook's `install` cell. With address "" it asks for the address when it is run on Colab."""
    return _INSTALL_CELL.rstrip("\n").replace('repository = ""', f'repository = "{address}"')


def update_install_cells() -> list[str]:
    """Give the address as it is now to the install cell of every notebook. Returns the names of those changed."""
    changed = []
    for path in find():
        notebook, text = nbformat.read(path, as_version=4), install_cell(repository())
        cells = [cell for cell in notebook.cells if has_tag(cell, "install") and cell.source != text]
        for cell in cells:
            cell.source = text
        if cells:
            nbformat.write(notebook, path)
            changed.append(path.stem)
    return changed


def update_readme() -> None:
    """Put the table of the notebooks as they are now into the README."""
    page = NOTEBOOK_DIR.parent / "README.md"
    if not page_tables.fill(page, {"notebooks": table()}):
        raise UserError(f"{page} has lost its `<!-- made: notebooks -->`; put it back, with `<!-- end -->` below it.")


def table() -> str:
    """The README's notebook table, from the notebooks themselves."""
    lines = ["| notebook | what it answers | minutes |", "| --- | --- | ---: |"]
    for path in find():
        about = nbformat.read(path, as_version=4).metadata.get("mtlib", {})
        minutes = f"{about['cpu_seconds'] / 60:.1f}" if "cpu_seconds" in about else "not run"
        lines.append(f"| [{path.stem}](notebooks/{path.name}) | {about.get('learn', '')} | {minutes} |")
    return "\n".join(lines)

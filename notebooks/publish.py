"""Store the outputs of executed notebooks beside this file, and the project's address in them.

    python -m mtlib notebooks && python -m notebooks.publish        # what `make publish` does
    python -m mtlib notebooks 03 && python -m notebooks.publish 03

The executed copies lie in build/notebooks. One is refused whose code is not that of the notebook,
or that was given parameters or did not run to its end.
"""

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import nbformat

from mtlib.errors import UserError
from mtlib.tutorial.runner import find, tags_of
from notebooks import address

EXECUTED = address.ROOT / "build" / "notebooks"
# what is kept of a cell's metadata; the rest belongs to one run, such as timings
_KEPT = ("cellView", "jupyter", "slideshow", "tags")


def main(names: Sequence[str]) -> None:
    for path in find(names):
        publish(EXECUTED / path.name, path)
        print(f"published: {path.name}")
    address.main()


def publish(executed: Path, target: Path) -> None:
    """Replace a notebook by its executed copy.

    The metadata get a hash of the code that made the outputs.

    Raises:
        UserError: the copy is not there, or is not one of this notebook as it stands.
    """
    if not executed.exists():
        raise UserError(
            f"{executed} does not exist; run `python -m mtlib notebooks {target.stem}`."
        )
    notebook = nbformat.read(executed, as_version=4)
    if reason := _not_to_be_published(notebook, nbformat.read(target, as_version=4)):
        raise UserError(f"{executed} {reason}; run `python -m mtlib notebooks {target.stem}`.")
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
        "mtlib": {"source_sha256": source_sha256(notebook)},
    }
    for cell in notebook.cells:
        cell.metadata = {name: cell.metadata[name] for name in _KEPT if cell.metadata.get(name)}
    nbformat.write(notebook, target)


def _not_to_be_published(executed, source) -> str:
    """What is wrong with an executed copy; "" where nothing is."""
    if source_sha256(executed) != source_sha256(source):
        return "was made by other code"
    if executed.metadata.papermill.parameters:
        return "was run with parameters"
    code_cells = [cell for cell in executed.cells if cell.cell_type == "code"]
    outputs = [output for cell in code_cells for output in cell.outputs]
    failed = any(output.output_type == "error" for output in outputs)
    if failed or any(cell.execution_count is None for cell in code_cells):
        return "was not run to its end"
    return ""


def source_sha256(notebook) -> str:
    """A hash of a notebook's code: outputs whose code has another hash are out of date.

    Injected parameters and the install cell, which does nothing outside Colab, are left out.
    """
    ignored = {"injected-parameters", "install"}
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    code = [cell.source for cell in cells if not ignored & tags_of(cell)]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        sys.exit(f"error: {error}")

"""What the tests read from a notebook."""

import base64

from mtlib.tutorial.runner import tags_of


def code_cells(notebook) -> list:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tagged(notebook, tag: str) -> list:
    return [cell for cell in notebook.cells if tag in tags_of(cell)]


def printed(cell) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


def images(notebook) -> list[tuple[bytes, dict]]:
    """Every image in the outputs, with its metadata."""
    found = []
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                content = base64.b64decode(output.data["image/png"])
                found.append((content, output.metadata.get("image/png", {})))
    return found

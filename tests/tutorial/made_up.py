"""Small notebooks for the tests of what runs, publishes and grades them."""

from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

PARAMETERS = """\
n: int = 1  # a whole number
rate: float = 0.1  # a share
flag: bool = True  # yes or no
name: str = "x"  # a word
csv: str = ""  # a file"""
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def write(
    folder: Path, stem: str, *sources: str, parameters: str = PARAMETERS, expected: str = ""
) -> Path:
    """A notebook of a title, parameters, a cell for each source, and one tagged `expected`."""
    path = folder / f"{stem}.ipynb"
    cells = [
        new_markdown_cell("# Title"),
        new_code_cell(parameters, metadata={"tags": ["parameters"]}),
        *(new_code_cell(source) for source in sources),
    ]
    if expected:
        cells.append(new_code_cell(expected, metadata={"tags": ["expected"]}))
    metadata = KERNEL | {"widgets": {"state": {}}}
    nbformat.write(new_notebook(cells=cells, metadata=metadata), path)
    return path

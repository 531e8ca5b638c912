"""Slides from a notebook with stored outputs: what it says and shows, without code and exercises.

python -m mtlib.tutorial.slides notebooks/03_mask_tuning.ipynb build/slides
"""

import re
import sys
from pathlib import Path

import nbformat

from mtlib.errors import UserError
from mtlib.paths import make_writable
from mtlib.tutorial.export import offline

_NOT_SHOWN = re.compile(r"(\*\*Exercise \d+\*\* \(|\*\*You need\*\*).*", flags=re.S)
_OPTIONAL = re.compile(r"#+ .*\(optional\)$", flags=re.M)
_LEFT_OUT = {"install", "parameters", "exercise", "check", "solution"}


def slides(notebook):
    """The notebook cut into slides: one for each heading, one for each picture or table, one for each set of questions.

    Raises:
        UserError: the notebook has no outputs, so there would be nothing to see.
    """
    if not any(cell.get("outputs") for cell in notebook.cells):
        raise UserError("this notebook has no stored outputs; run it first, for example with `make tutorial`.")
    cells, optional = [], False
    for cell in notebook.cells:
        if cell.source.startswith("#") and cell.cell_type == "markdown":
            optional = bool(_OPTIONAL.match(cell.source))
        if optional or _LEFT_OUT & {*cell.metadata.get("tags", [])}:
            continue
        if cell.cell_type == "markdown":
            if source := offline(_NOT_SHOWN.sub("", cell.source).strip()):
                cells.append(_typed({**cell, "source": source}, "slide" if source.startswith("#") else "subslide"))
        elif any("data" in output for output in cell.outputs):
            for number, outputs in enumerate(_one_by_one(cell.outputs)):
                part = {**cell, "id": f"{cell.id}-{number}", "outputs": outputs}
                cells.append(_typed(part, "subslide"))
    return nbformat.from_dict({**notebook, "cells": cells})


def write(path: Path, folder: Path) -> Path:
    """`NAME.slides.html` in `folder`. The page loads reveal.js from the web; without a network it reads as one page."""
    from nbconvert import SlidesExporter

    exporter = SlidesExporter(exclude_input=True, exclude_input_prompt=True, exclude_output_prompt=True)
    exporter.reveal_scroll = True
    make_writable(folder)
    text, _ = exporter.from_notebook_node(slides(nbformat.read(path, as_version=4)))
    page = folder / f"{path.stem}.slides.html"
    page.write_text(text, encoding="utf-8")
    return page


def _one_by_one(outputs: list) -> list[list]:
    """The outputs cut before each picture and table but the first; what is printed above the first stays with it."""
    parts = [[]]
    for output in outputs:
        if {"image/png", "text/html"} & {*output.get("data", [])} and any("data" in shown for shown in parts[-1]):
            parts.append([])
        parts[-1].append(output)
    return parts


def _typed(cell: dict, slide_type: str):
    metadata = {**cell["metadata"], "slideshow": {"slide_type": slide_type}}
    return nbformat.from_dict({**cell, "metadata": metadata})


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), Path(sys.argv[2])))

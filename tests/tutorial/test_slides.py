"""Slides hold what a notebook says and shows, and neither code nor exercises."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from mtlib.errors import UserError
from mtlib.tutorial.slides import slides, write


def shown(source: str, text: str, *tags: str):
    output = new_output("execute_result", {"text/html": f"<p>{text}</p>", "text/plain": text}, execution_count=1)
    return new_code_cell(source, outputs=[output], metadata={"tags": list(tags)})


def picture(alt: str):
    return new_output("display_data", {"image/png": "aGk=", "text/plain": alt})


NOTEBOOK = new_notebook(
    cells=[
        new_markdown_cell("# 03 · Title\n\n**Answer** Yes, see [04](04_b.ipynb).\n\n**You need** time."),
        shown("secret_code()", "the picture"),
        new_code_cell("quiet()"),
        new_markdown_cell("**To think about** Why?\n\n**Exercise 1** (easy, 5 minutes). Compute."),
        new_markdown_cell("**Exercise 2** (hard, 5 minutes). Compute."),
        shown("share = ...", "an answer", "exercise"),
        shown("# @title Solution", "the solution", "solution"),
        new_markdown_cell("## 1 Section\n\n$$L = 1$$"),
        new_code_cell(
            "two()", outputs=[picture("one"), new_output("stream", text="a"), picture("two"), picture("two's table")]
        ),
        new_markdown_cell("**What to take away** This."),
        new_markdown_cell("## 2 More (optional)"),
        new_markdown_cell("More."),
    ]
)


def test_what_becomes_a_slide():
    made = slides(NOTEBOOK)
    formula = next(cell.source for cell in made.cells if cell.source.startswith("## 1"))
    assert [(cell.metadata.slideshow.slide_type, cell.source) for cell in made.cells] == [
        ("slide", "# 03 · Title\n\n**Answer** Yes, see 04."),
        ("subslide", "secret_code()"),
        ("subslide", "**To think about** Why?"),
        ("slide", formula),
        ("subslide", "two()"),
        ("subslide", "two()"),
        ("subslide", "two()"),
        ("subslide", "**What to take away** This."),
    ]
    assert formula.startswith("## 1 Section\n\n<img src=") and 'alt="L = 1"' in formula
    assert [len(cell.outputs) for cell in made.cells if cell.source == "two()"] == [2, 1, 1]
    assert len({cell.id for cell in made.cells}) == len(made.cells)


def test_page_without_code(tmp_path):
    nbformat.write(NOTEBOOK, tmp_path / "03_a.ipynb")
    page = write(tmp_path / "03_a.ipynb", tmp_path / "out").read_text()
    assert "the picture" in page and "secret_code" not in page and "the solution" not in page


def test_nothing_to_see_is_an_error(tmp_path):
    with pytest.raises(UserError, match="no stored outputs"):
        slides(new_notebook(cells=[new_markdown_cell("# 03"), new_code_cell("a = 1")]))

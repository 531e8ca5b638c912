"""A page opens without a network; slides hold what a notebook says and shows, and no code."""

import re

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from mtlib.tutorial.pages import as_html, as_slides


def shown(source: str, text: str, *tags: str):
    output = new_output("execute_result", {"text/html": f"<p>{text}</p>", "text/plain": text}, execution_count=1)
    return new_code_cell(source, outputs=[output], metadata={"tags": list(tags)})


PICTURE = new_output("display_data", {"image/png": "aGk="}, metadata={"image/png": {"alt": "a picture of it"}})
NOTEBOOK = new_notebook(
    cells=[
        new_markdown_cell("# 03 · Title\n\nSee [04](04_b.ipynb#part) and [01](01_a.ipynb), [data](../data/README.md)."),
        shown("secret_code()", "the table"),
        new_code_cell("quiet()"),
        new_markdown_cell("## 1 Section\n\n$$L = 1$$"),
        new_code_cell("draw()", outputs=[PICTURE]),
        shown("share = ...", "an answer", "exercise"),
        shown("# @title Solution", "the solution", "solution"),
    ]
)


def test_a_page_needs_no_network_and_folds_solutions():
    before = nbformat.writes(NOTEBOOK)
    page = as_html(NOTEBOOK, "03_a")
    assert "<title>03_a</title>" in page and "<script" not in page and "secret_code" in page
    assert len(re.findall(r"<details[^>]*><summary>Solution</summary>", page)) == 1
    assert 'alt="L = 1"' in page and "$$" not in page and 'alt="a picture of it"' in page
    assert re.findall(r'href="([^"#:]+)"', page) == ["01_a.html"], "other files do not lie beside it"
    assert nbformat.writes(NOTEBOOK) == before


def test_slides_have_no_code():
    page = as_slides(NOTEBOOK)
    assert "the table" in page and "secret_code" not in page
    assert "the solution" not in page and "an answer" not in page
    slides = re.findall(r"<section>", page)
    assert len(slides) == 2 + 4, "two headings; each heading, table and picture by itself"

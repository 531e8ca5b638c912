"""Pages of notebooks stand alone: figures of the project are inside."""

import base64

from nbformat.v4 import new_markdown_cell, new_notebook

from mtlib.paths import FIGURE_DIR
from mtlib.tutorial.pages import as_html


def test_a_formula_that_cannot_be_drawn_is_shown_as_it_is_written():
    text = r"$$\begin{aligned} a &= b \end{aligned}$$"
    page = as_html(new_notebook(cells=[new_markdown_cell(text)]), "01_one")
    assert r"<code>\begin{aligned} a &amp;= b" in page


def test_a_figure_of_the_project_is_put_into_the_page():
    text = "![Mask, fill & classify.](../figures/method.png) and [a file](../figures/make.py)"
    page = as_html(new_notebook(cells=[new_markdown_cell(text)]), "01_one")
    stored = base64.b64encode((FIGURE_DIR / "method.png").read_bytes()).decode()
    assert f"data:image/png;base64,{stored}" in page
    assert 'alt="Mask, fill &amp; classify."' in page
    assert "../figures" not in page and "a file" in page

"""Executed notebooks as pages: HTML that needs no network, and slides.

python -m mtlib.tutorial.pages notebooks/03_mask_tuning.ipynb build/slides     # the slides of one notebook
"""

import base64
import html
import io
import re
import sys
from pathlib import Path

import nbformat
from nbconvert import HTMLExporter, SlidesExporter

from mtlib.paths import make_writable

# jQuery, require.js, MathJax and mermaid come from the web, and nothing here needs them
_TEMPLATE = """\
{%- extends 'classic/index.html.j2' -%}
{%- block html_head_js -%}{%- endblock html_head_js -%}
{%- block html_head_js_mathjax -%}{%- endblock html_head_js_mathjax -%}
{%- block html_head_css -%}
{{ super() }}
<style>
summary { display: list-item; cursor: pointer }
.text_cell .rendered_html :is(td, th) { text-align: left }
@media (max-width: 540px) { div.output_subarea { max-width: 100% } }
</style>
{%- endblock html_head_css -%}
{%- block input_group -%}
{%- set tags = cell.metadata.get('tags', []) -%}
{%- set title = 'Check' if 'check' in tags else 'Solution' if 'solution' in tags else '' -%}
{%- if title -%}
<details style="margin-left: min(9em, 20%)"><summary>{{ title }}</summary>{{ super() }}</details>
{%- else -%}
{{ super() }}
{%- endif -%}
{%- endblock input_group -%}
"""
_FORMULA = re.compile(r"\$\$(.+?)\$\$", flags=re.S)
_NOTEBOOK_LINK = re.compile(r"\]\((\d\d_\w+)\.ipynb\)")
_FILE_LINK = re.compile(r"\[([^]]+)\]\((?!https?:|\w+\.html)[^)]+\)")
_NO_SLIDE = {"install", "parameters", "exercise", "check", "solution"}


def as_html(notebook, name: str) -> str:
    """A notebook as a page that opens without a network: formulas are pictures, solutions stay folded."""
    notebook = nbformat.from_dict(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _offline(_NOTEBOOK_LINK.sub(r"](\1.html)", cell.source))
    # the default template, "lab", leaves out the images' alternative texts (jupyter/nbconvert#2021)
    exporter = HTMLExporter(template_name="classic", raw_template=_TEMPLATE)
    return exporter.from_notebook_node(notebook, {"metadata": {"name": name}})[0]


def as_slides(notebook) -> str:
    """What a notebook says and shows, without code: a heading, a text or an output to each slide.

    The page loads reveal.js from the web; without a network it reads as one page.
    """
    notebook = nbformat.from_dict(notebook)
    for cell in notebook.cells:
        cell.metadata["slideshow"] = {"slide_type": _slide_type(cell)}
    exporter = SlidesExporter(exclude_input=True, exclude_input_prompt=True, exclude_output_prompt=True)
    exporter.reveal_scroll = True
    return exporter.from_notebook_node(notebook)[0]


def _slide_type(cell) -> str:
    if cell.cell_type == "code":
        return "skip" if _NO_SLIDE & {*cell.metadata.get("tags", [])} or not cell.outputs else "subslide"
    return "slide" if cell.source.startswith("#") else "subslide"


def _offline(source: str) -> str:
    """Markdown for a page by itself: formulas are pictures, and links to files that do not lie beside it plain text."""
    return _FILE_LINK.sub(r"\1", _FORMULA.sub(_picture, source))


def _picture(formula: re.Match) -> str:
    from matplotlib.mathtext import math_to_image

    svg = io.BytesIO()
    math_to_image(f"${formula[1].strip()}$", svg, format="svg")
    data = base64.b64encode(svg.getvalue()).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{html.escape(formula[1])}" style="height: 1.6em">'


if __name__ == "__main__":
    path, folder = map(Path, sys.argv[1:])
    make_writable(folder)
    page = folder / f"{path.stem}.slides.html"
    page.write_text(as_slides(nbformat.read(path, as_version=4)), encoding="utf-8")
    print(page)

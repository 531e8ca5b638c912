"""Notebooks as HTML that needs no network: no scripts from the web, formulas as pictures."""

import base64
import html
import io
import re

import nbformat

# jQuery, require.js, MathJax and mermaid come from the web, and nothing here needs them
_TEMPLATE = """\
{%- extends 'classic/index.html.j2' -%}
{%- block html_head_js -%}{%- endblock html_head_js -%}
{%- block html_head_js_mathjax -%}{%- endblock html_head_js_mathjax -%}
{%- block input_group -%}
{%- set tags = cell.metadata.get('tags', []) -%}
{%- set title = 'Check' if 'check' in tags else 'Solution' if 'solution' in tags else '' -%}
{%- if title -%}
<details style="margin-left: 9em"><summary>{{ title }}</summary>{{ super() }}</details>
{%- else -%}
{{ super() }}
{%- endif -%}
{%- endblock input_group -%}
"""
_FORMULA = re.compile(r"\$\$(.+?)\$\$", flags=re.S)
_NOTEBOOK_LINK = re.compile(r"\]\((\d\d_\w+)\.ipynb\)")
_FILE_LINK = re.compile(r"\[([^]]+)\]\((?!https?:|\w+\.html)[^)]+\)")


def as_html(notebook, name: str) -> str:
    """A notebook as a page that opens without a network."""
    from nbconvert import HTMLExporter

    notebook = nbformat.from_dict(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = offline(_NOTEBOOK_LINK.sub(r"](\1.html)", cell.source))
    # the default template, "lab", leaves out the images' alternative texts (jupyter/nbconvert#2021)
    exporter = HTMLExporter(template_name="classic", raw_template=_TEMPLATE)
    text, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": name}})
    return text


def offline(source: str) -> str:
    """Markdown for a page by itself: formulas are pictures, and links to files that do not lie beside it plain text."""
    return _FILE_LINK.sub(r"\1", _FORMULA.sub(_picture, source))


def _picture(formula: re.Match) -> str:
    from matplotlib.mathtext import math_to_image

    svg = io.BytesIO()
    math_to_image(f"${formula[1]}$", svg, format="svg")
    data = base64.b64encode(svg.getvalue()).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{html.escape(formula[1])}" style="height: 1.6em">'

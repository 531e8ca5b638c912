"""Executed notebooks as HTML that needs no network."""

import base64
import html
import io
import re

import nbformat
from nbconvert import HTMLExporter

from mtlib.paths import FIGURE_DIR

# without jQuery, require.js, MathJax and mermaid, which come from the web and are not needed here
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
{%- set titles = {
  'check': 'Check', 'solution': 'Solution', 'figure': 'Code of the figure',
  'expected': 'Expected results',
} -%}
{%- set title = titles[tags | select('in', titles) | first] | default('', true) -%}
{%- if title -%}
<details style="margin-left: min(9em, 20%)"><summary>{{ title }}</summary>{{ super() }}</details>
{%- else -%}
{{ super() }}
{%- endif -%}
{%- endblock input_group -%}
"""
_FORMULA = re.compile(r"\$\$(.+?)\$\$", flags=re.S)
_NOTEBOOK_LINK = re.compile(r"\]\((\d\d_\w+)\.ipynb\)")
_FIGURE = re.compile(r"!\[([^\]]+)\]\(\.\./figures/([\w.]+\.png)\)")
_FILE_LINK = re.compile(r"\[([^]]+)\]\((?!https?:|\w+\.html)[^)]+\)")


def as_html(notebook, name: str) -> str:
    """A notebook as a page that needs no network; formulas are pictures, solutions are folded."""
    notebook = nbformat.from_dict(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = _offline(_NOTEBOOK_LINK.sub(r"](\1.html)", cell.source))
    # the default template, "lab", leaves out the images' alternative texts (jupyter/nbconvert#2021)
    exporter = HTMLExporter(template_name="classic", raw_template=_TEMPLATE)
    page, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": name}})
    return page


def _offline(source: str) -> str:
    """Markdown for a page that stands alone.

    Formulas become pictures, figures are put into the page, and links to files that are not beside
    it become plain text.
    """
    source = _FIGURE.sub(_embedded, source)
    return _FILE_LINK.sub(r"\1", _FORMULA.sub(_picture, source))


def _embedded(figure: re.Match) -> str:
    data = base64.b64encode((FIGURE_DIR / figure[2]).read_bytes()).decode()
    alt = html.escape(figure[1])
    return f'<img style="max-width: 100%" src="data:image/png;base64,{data}" alt="{alt}">'


def _picture(formula: re.Match) -> str:
    from matplotlib.font_manager import FontProperties
    from matplotlib.mathtext import math_to_image

    svg = io.BytesIO()
    try:
        math_to_image(f"${formula[1].strip()}$", svg, FontProperties(size=13), format="svg")
    except ValueError:  # what matplotlib does not know is shown as it is written
        return f"`{formula[1].strip()}`"
    data = base64.b64encode(svg.getvalue()).decode()
    return f'<img src="data:image/svg+xml;base64,{data}" alt="{html.escape(formula[1])}">'

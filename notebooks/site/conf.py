"""How Sphinx builds the site; `build.py` beside it collects the pages."""

import html
import io
import re
import tomllib
from pathlib import Path

from docutils.nodes import SkipNode
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import math_to_image

with open(Path(__file__).parents[2] / "pyproject.toml", "rb") as file:
    _PROJECT = tomllib.load(file)["project"]

_CODE = re.compile(r"(?<!`)`([^`]+)`(?![`_])")

project = "mtlib"
author = "the mtlib authors"
language = "en"
html_title = "mtlib: Mask-tuning"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["figures"]
suppress_warnings = [
    "mystnb.unknown_mime_type"
]  # widgets, which stand beside a picture of their first state

nb_execution_mode = "off"  # the notebooks come with the outputs of their published run
nb_merge_streams = True
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath", "colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
napoleon_google_docstring = True
napoleon_numpy_docstring = False

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}
if "Repository" in _PROJECT["urls"]:
    html_theme_options["source_repository"] = _PROJECT["urls"]["Repository"]


def docstring_as_rst(app, what, name, obj, options, lines):
    """Our docstrings are Markdown in two respects: `code` has one backtick, and code blocks need no
    `::`.
    """
    changed = []
    text_before = ""
    for line in lines:
        is_indented = line.startswith("    ")
        blank_before = bool(changed) and not changed[-1]
        if is_indented and blank_before and not text_before.startswith("    "):
            changed += ["::", ""]
        changed.append(line if is_indented and "``" in line else _CODE.sub(r"``\1``", line))
        text_before = line or text_before
    lines[:] = changed


def formula(node, size: int) -> str:
    """A formula as a picture in the colour of the text, which needs no script and no network."""
    svg = io.BytesIO()
    source = node.astext().strip()
    math_to_image(f"${source}$", svg, FontProperties(size=size), format="svg", color="black")
    picture = svg.getvalue().decode().partition("<svg")[2]
    picture = re.sub(
        r'(style="|; )?(fill|stroke): ?#000000', r"\1\2: currentColor", "<svg" + picture
    )
    return f'<span class="formula" role="img" aria-label="{html.escape(source)}">{picture}</span>'


def visit_inline_formula(translator, node):
    translator.body.append(formula(node, size=11))
    raise SkipNode


def visit_formula(translator, node):
    translator.body.append(f'<p class="formula">{formula(node, size=13)}</p>')
    raise SkipNode


def setup(app):
    app.connect("autodoc-process-docstring", docstring_as_rst, priority=400)  # before napoleon
    app.add_html_math_renderer("pictures", (visit_inline_formula, None), (visit_formula, None))


html_math_renderer = "pictures"

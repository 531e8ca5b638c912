"""All notebooks in order under the profile `smoke`, and what the run leaves behind."""

import io
import re
from pathlib import Path

import nbformat
import numpy as np
import pytest
from matplotlib.image import imread

from mtlib.tutorial.runner import check_parameters, find, run_notebooks, source_sha256
from tests.tutorial.conftest import code_cells, images, tagged

NOTEBOOKS = find()


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("smoke")
    results = run_notebooks(check_parameters(NOTEBOOKS, {"profile": "smoke"}), out)
    for result in results:
        assert result.status == "ok", f"{result.name}: {result.error}"
    return out


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request) -> Path:
    return request.param


@pytest.fixture
def executed(out, path):
    return nbformat.read(out / path.name, as_version=4)


def test_every_cell_was_run_and_none_warns(executed, path):
    for cell in code_cells(executed):
        assert cell.execution_count is not None, cell.source
        assert cell.metadata.papermill.status == "completed", cell.source
        warnings = [output.text for output in cell.outputs if output.get("name") == "stderr"]
        assert not warnings, cell.source
    assert executed.metadata.papermill.parameters == {"profile": "smoke"}
    assert source_sha256(executed) == source_sha256(nbformat.read(path, as_version=4))


def test_pictures_are_drawn_and_described(executed):
    for png, metadata in images(executed):
        pixels = imread(io.BytesIO(png), format="png")  # (height, width, channels)
        assert min(pixels.shape[:2]) > 100
        assert len(np.unique(np.rint(255 * pixels[..., :3]) @ [65536, 256, 1])) > 8, "blank"
        assert len(metadata["alt"]) > 20 and "nan" not in metadata["alt"]


def test_page_opens_without_a_network_and_folds_the_solutions(out, path, executed):
    page = (out / f"{path.stem}.html").read_text()
    folded = re.findall(r"<details[^>]*><summary>Solution</summary>", page)
    assert len(folded) == len(tagged(executed, "solution"))
    assert page.count("<img") == page.count(" alt=") >= len(images(executed))
    assert "<script" not in page and "$$" not in page
    for target in re.findall(r'href="([^"#:]+)"', page):  # no anchor, no address of the web
        assert target in {f"{other.stem}.html" for other in NOTEBOOKS}, target

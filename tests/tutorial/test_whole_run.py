"""One notebook runs whole under `cpu`, with the results it promises.

`make tutorial`, which runs every night, has all of them; `tests/hub/test_profiles.py` has the other
profiles.
"""

import io
import re

import nbformat
import numpy as np
from matplotlib.image import imread

from mtlib.tutorial.grading import _results
from mtlib.tutorial.runner import check_parameters, find, run_notebooks
from notebooks.publish import source_sha256
from tests.tutorial.conftest import code_cells, images, printed, tagged

NOTEBOOKS = find()
QUICKEST = "08"


def test_a_notebook_runs_to_its_end(tmp_path):
    (path,) = find([QUICKEST])
    (result,) = run_notebooks(check_parameters([path], {"profile": "cpu"}), tmp_path)
    assert result.status == "ok", result.error
    original = nbformat.read(path, as_version=4)
    executed = nbformat.read(tmp_path / path.name, as_version=4)
    assert executed.metadata.papermill.parameters == {"profile": "cpu"}
    assert source_sha256(executed) == source_sha256(original)
    check_every_cell_was_run_and_none_warns(executed)
    check_pictures_are_drawn_and_described(executed)
    page = (tmp_path / f"{path.stem}.html").read_text()
    check_page_opens_without_a_network_and_folds_the_solutions(page, executed)
    (last,) = tagged(executed, "expected")
    assert re.fullmatch(r"All \d+ results are within their bounds.\n", printed(last))
    results = _results(original, executed)
    assert len(results) > 1 and {*results.values()} == {"not tried"}


def check_every_cell_was_run_and_none_warns(executed) -> None:
    for cell in code_cells(executed):
        assert cell.execution_count is not None, cell.source
        assert cell.metadata.papermill.status == "completed", cell.source
        warnings = [output.text for output in cell.outputs if output.get("name") == "stderr"]
        assert not warnings, cell.source


def check_pictures_are_drawn_and_described(executed) -> None:
    for png, metadata in images(executed):
        pixels = imread(io.BytesIO(png), format="png")  # (height, width, channels)
        assert min(pixels.shape[:2]) > 100
        assert len(np.unique(np.rint(255 * pixels[..., :3]) @ [65536, 256, 1])) > 8, "blank"
        assert len(metadata["alt"]) > 20 and "nan" not in metadata["alt"]


def check_page_opens_without_a_network_and_folds_the_solutions(page: str, executed) -> None:
    folded = re.findall(r"<details[^>]*><summary>Solution</summary>", page)
    assert len(folded) == len(tagged(executed, "solution"))
    assert page.count("<img") == page.count(" alt=") >= len(images(executed))
    assert "<script" not in page and "$$" not in page
    for target in re.findall(r'href="([^"#:]+)"', page):  # no anchor, no address of the web
        assert target in {f"{other.stem}.html" for other in NOTEBOOKS}, target

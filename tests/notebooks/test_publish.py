"""Outputs are stored with a hash of their code; those of other code are refused."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell

from mtlib.errors import UserError
from notebooks.publish import publish, source_sha256
from tests.tutorial.made_up import write


@pytest.fixture
def source(tmp_path):
    """A notebook as its author leaves it."""
    path = write(tmp_path, "01_one", "print(n + 1)")
    notebook = nbformat.read(path, as_version=4)
    metadata = {"tags": ["install"], "cellView": "form", "own": 1}
    notebook.cells.insert(1, new_code_cell('repository = ""', metadata=metadata))
    notebook.metadata["mtlib"] = {"source_sha256": "old"}
    nbformat.write(notebook, path)
    return path


def executed(source, **papermill):
    """The notebook with the metadata and the output of a run."""
    notebook = nbformat.read(source, as_version=4)
    notebook.metadata["papermill"] = {"parameters": {}, "input_path": str(source), **papermill}
    for number, cell in enumerate(notebook.cells[1:], start=1):
        cell.execution_count = number
        cell.metadata["papermill"] = {"duration": 1.0}
    notebook.cells[-1].outputs = [nbformat.v4.new_output("stream", text="2\n")]
    return notebook


def test_the_outputs_replace_those_of_the_source(source, tmp_path):
    copy = tmp_path / "copy.ipynb"
    nbformat.write(executed(source), copy)
    code = source_sha256(nbformat.read(source, as_version=4))
    publish(copy, source)
    published = nbformat.read(source, as_version=4)
    nbformat.validate(published)
    assert published.metadata.mtlib == {"source_sha256": code}
    assert published.metadata.keys() == {"kernelspec", "language_info", "mtlib"}
    assert published.cells[-1].outputs[0].text == "2\n"
    assert str(tmp_path) not in source.read_text()
    assert published.cells[1].metadata == {"tags": ["install"], "cellView": "form"}


@pytest.mark.parametrize("fault", ["other code", "parameters", "not run to its end", "not exist"])
def test_what_is_no_copy_of_the_notebook_is_refused(source, tmp_path, fault):
    before = source.read_bytes()
    copy = tmp_path / "copy.ipynb"
    notebook = executed(source, parameters={"n": 2} if fault == "parameters" else {})
    if fault == "other code":
        notebook.cells[-1].source = "print(n + 2)"
    if fault == "not run to its end":
        notebook.cells[-1].execution_count = None
    if fault != "not exist":
        nbformat.write(notebook, copy)
    with pytest.raises(UserError, match=f"{fault}.*; run `python -m mtlib notebooks 01_one`"):
        publish(copy, source)
    assert source.read_bytes() == before


def test_the_hash_is_of_the_code_alone():
    def made(*cells):
        return source_sha256(nbformat.v4.new_notebook(cells=list(cells)))

    code = new_code_cell("a = 1")
    again = new_code_cell("a = 1")
    text = nbformat.v4.new_markdown_cell("text")
    injected = new_code_cell("a = 2", metadata={"tags": ["injected-parameters"]})
    install = new_code_cell("a = 3", metadata={"tags": ["install"]})
    assert made(code) == made(text, code) == made(code, injected) == made(install, code)
    assert len({made(code), made(new_code_cell("a = 2")), made(code, again)}) == 3

"""What every notebook promises: format, parameters, first screen, length, exercises, outputs."""

import ast
import json
import re
from pathlib import Path

import nbformat
import pytest
from papermill import inspect_notebook

from mtlib.tutorial.exercises import verdicts
from mtlib.tutorial.runner import check_parameters, find
from notebooks.address import in_install, repository
from notebooks.publish import source_sha256
from tests.tutorial.conftest import code_cells, images, printed, tagged

MACHINE_PATHS = tuple(f"/{name}/" for name in ("tmp", "home", "root", "work"))
WORDS, CELLS = (600, 1500), 30  # of prose and in all
# Per cent and points in the prose that no output shows: of the paper, of a page, of a rule.
NOT_SHOWN = {
    "03_mask_tuning": {"83"},
    "04_ablations": {"81"},
    "05_diversity": {"37", "76"},
    "08_reproduction": {"13.9", "41", "95"},
}
STATEMENT = re.compile(r"\*\*Exercise (\d+)\*\* \((easy|medium|hard), \d+ minutes?\)\.")


@pytest.fixture(params=find(), ids=lambda path: path.stem)
def path(request) -> Path:
    return request.param


@pytest.fixture
def notebook(path):
    return nbformat.read(path, as_version=4)


def test_format(path, notebook):
    nbformat.validate(json.loads(path.read_text()))
    assert notebook.metadata.kernelspec.name == "python3"
    assert (notebook.nbformat, notebook.nbformat_minor) >= (4, 5), "cells have ids from 4.5 on"
    ids = [cell["id"] for cell in json.loads(path.read_text())["cells"]]
    assert len(ids) == len(set(ids))
    assert path.stat().st_size < 500_000
    assert "widgets" not in notebook.metadata


def test_parameters(path, notebook):
    """One typed, commented assignment a line, which papermill reads as Python does."""
    (cell,) = tagged(notebook, "parameters")
    found = inspect_notebook(path)
    assert list(found) == [statement.target.id for statement in ast.parse(cell.source).body]
    for name, declared in found.items():
        default = ast.literal_eval(declared["default"])
        (values,) = check_parameters([path], {name: str(default)}).values()
        assert declared["help"].strip() and values == {name: default}
    assert found["profile"]["default"] == '"cpu"'


def test_install_cell(notebook):
    (cell,) = tagged(notebook, "install")
    assert code_cells(notebook)[0] is cell
    (first,) = tagged(nbformat.read(find()[0], as_version=4), "install")
    advice = "run `make publish`"
    assert cell.source == first.source == in_install(cell.source, repository()), advice
    for other in code_cells(notebook):
        installs = re.search(r"^\s*(!|[%]?pip\b|%conda\b)", other.source, flags=re.M)
        assert other is cell or not installs, other.source


def test_what_it_imports_is_there(notebook):
    """Also in the notebooks that no other test runs."""
    (install,) = tagged(notebook, "install")
    for cell in code_cells(notebook):
        statements = [] if cell is install else ast.walk(ast.parse(cell.source))
        for statement in statements:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                exec(ast.unparse(statement), {})


def test_first_screen(path, notebook):
    opening = notebook.cells[0]
    assert opening.cell_type == "markdown" and opening.source.startswith(f"# {path.stem[:2]} · ")
    answer = opening.source.partition("**Answer**")[2]
    assert re.search(r"\d", answer), "the answer stands on the first screen, with numbers"
    assert "https://arxiv.org/abs/2307.10457" in opening.source


def test_length(notebook):
    prose = " ".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    words = [word for word in re.sub(r"<[^>]*>", " ", prose).split() if word.strip("|-:#*")]
    assert WORDS[0] <= len(words) <= WORDS[1] and len(notebook.cells) <= CELLS


def test_numbers_of_the_prose_stand_in_the_outputs(path, notebook):
    """Per cent and points, rounded as the prose has them; exercises may suppose others."""
    outputs = "\n".join(shown(cell) for cell in code_cells(notebook))
    values = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", outputs)]
    values += [100 * value for value in values if value <= 1]  # shares
    prose = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    paragraphs = [part for text in prose for part in text.split("\n\n")]
    stated = [part for part in paragraphs if not part.startswith("**Exercise")]
    for number in re.findall(r"(\d+(?:\.\d+)?) (?:%|points)", "\n".join(stated)):
        half = 0.5 * 10 ** -len(number.partition(".")[2])
        is_shown = any(abs(value - float(number)) <= half + 1e-9 for value in values)
        assert is_shown or number in NOT_SHOWN.get(path.stem, ()), f"{number} is in no output"


def test_exercises_have_a_check_and_a_folded_solution_that_it_accepts(notebook):
    """When the notebook runs, `confirm` gives the solution to the check, which must accept it."""
    statements = STATEMENT.findall("\n".join(cell.source for cell in notebook.cells))
    numbers = [int(number) for number, _ in statements]
    assert numbers and numbers == list(range(1, len(numbers) + 1))
    work, checks, solutions = (tagged(notebook, tag) for tag in ("exercise", "check", "solution"))
    for number, exercise, check, solution in zip(numbers, work, checks, solutions, strict=True):
        first = notebook.cells.index(exercise)
        assert notebook.cells[first : first + 3] == [exercise, check, solution]
        name = re.search(rf'check\(\s*{number},\s*"(\w+)"', check.source)[1]
        assert re.search(rf"^{name} = \.\.\.", exercise.source, flags=re.M), "an answer to put in"
        for cell in (check, solution):  # both hold the answer
            assert cell.metadata.jupyter.source_hidden is True and cell.metadata.cellView == "form"
        assert "with folded(" in solution.source and f"confirm({number}," in solution.source


def test_the_last_cell_says_what_is_expected_and_is_hidden(notebook):
    (cell,) = tagged(notebook, "expected")
    assert cell is notebook.cells[-1]
    assert cell.metadata.jupyter.source_hidden is True and cell.metadata.cellView == "form"
    assert "expect(" in cell.source and printed(cell).startswith("All "), "it was checked"


def test_stored_outputs_are_of_this_code_and_of_an_untouched_notebook(path, notebook):
    advice = "run `make publish` and commit it"
    made_by = notebook.metadata.mtlib.source_sha256
    assert made_by == source_sha256(notebook), f"outputs of other code; {advice}"
    for cell in code_cells(notebook):
        assert cell.execution_count is not None, f"{path.name} was not run to its end; {advice}"
        assert not any(output.output_type == "error" for output in cell.outputs)
        assert not any(part in shown(cell) for part in MACHINE_PATHS), cell.id
    for cell in tagged(notebook, "check"):
        assert not verdicts(printed(cell)), "somebody's answers"
    for cell in tagged(notebook, "solution"):
        for output in cell.outputs:
            assert output.data["text/html"].startswith("<details>"), "folded"
    for _, metadata in images(notebook):
        assert len(metadata["alt"]) > 20, "pictures have alternative texts"


def shown(cell) -> str:
    """A cell's code and outputs without the bytes of pictures."""
    texts = [cell.source]
    for output in cell.outputs:
        data = {**output.get("data", {}), "image/png": ""}
        texts.append(json.dumps({**output, "data": data}))
    return "\n".join(texts)

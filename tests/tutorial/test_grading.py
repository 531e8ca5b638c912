"""Submitted notebooks: one line for each student, whatever is wrong with what they handed in."""

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from typer.testing import CliRunner

from mtlib import cli
from mtlib.errors import UserError
from mtlib.tutorial import grading, runner

KERNEL = {
    "kernelspec": {"name": "of-another-machine", "display_name": "Python 3", "language": "python"}
}


def notebook(*answers: str, checks: tuple[str, ...] = ('check(1, "a", 2)', 'check(2, "b", 3)')):
    """Two exercises, with these answers in their cells."""
    cells = [
        new_markdown_cell("# 01 · One"),
        new_code_cell('profile: str = "cpu"  # how much', metadata={"tags": ["parameters"]}),
        new_code_cell("from mtlib.tutorial.exercises import check"),
    ]
    for answer, check in zip(answers, checks, strict=True):
        cells.append(new_code_cell(answer, metadata={"tags": ["exercise"]}))
        cells.append(new_code_cell(check, metadata={"tags": ["check"]}))
    return new_notebook(cells=cells, metadata=KERNEL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    originals = tmp_path / "notebooks"
    originals.mkdir()
    nbformat.write(notebook("a = ...", "b = ..."), originals / "01_one.ipynb")
    monkeypatch.setattr(runner, "NOTEBOOK_DIR", originals)
    (tmp_path / "handed_in").mkdir()
    return tmp_path / "handed_in"


def hand_in(folder, student: str, content, name: str = "01_one.ipynb"):
    (folder / student).mkdir()
    if isinstance(content, str):
        (folder / student / name).write_text(content)
    else:
        nbformat.write(content, folder / student / name)


def call(folder, *more):
    command = ["notebooks", "--student", str(folder), "--out", str(folder / "out"), *more]
    return CliRunner().invoke(cli.app, command)


def test_a_line_for_each_student_and_none_stops_the_others(folder):
    hand_in(folder, "ada", notebook("a = 2", "b = 3"), "my 01_one (1).ipynb")
    hand_in(folder, "bob", notebook("a = 5", "b = ..."))
    hand_in(folder, "cy", notebook("a = 1 / 0", "b = 3"), "homework.ipynb")
    hand_in(folder, "dee", nbformat.writes(notebook("a = 2", "b = 3"))[:-40])  # cut off on its way
    changed_checks = ('print("Exercise 1: Right.")', 'check(2, "b", 3)')
    hand_in(folder, "eve", notebook("a = 1", "b = 3", checks=changed_checks))
    hand_in(folder, "fay", new_notebook(cells=[new_markdown_cell("# Shopping")]), "list.ipynb")
    hand_in(folder, "gil", "{}")
    result = call(folder, "--profile", "smoke")
    assert result.exit_code == 0, result.output
    lines = dict(line.split(": ", 1) for line in result.output.strip().splitlines())
    assert lines["ada"] == "01_one 2 of 2 right (1 right, 2 right)"
    assert lines["bob"] == "01_one 0 of 2 right (1 wrong, 2 not tried)"
    assert lines["cy"] == "01_one 1 of 2 right (1 wrong, 2 right)"
    for broken in ("dee", "gil"):
        assert lines[broken].startswith("01_one.ipynb: could not be graded: ")
    assert lines["eve"] == "01_one 1 of 2 right (1 check changed, 2 right)"
    assert "neither its name nor its title" in lines["fay"]
    table = (folder / "out" / "students" / "grades.csv").read_text().splitlines()
    assert table[0] == "student,notebook,exercise,result"
    assert table[1:3] == ["ada,01_one,1,right", "ada,01_one,2,right"]
    executed = nbformat.read(folder / "out" / "students" / "bob" / "01_one.ipynb", as_version=4)
    assert executed.metadata.papermill.parameters == {"profile": "smoke"}


def test_every_notebook_has_a_copy_and_no_copy_is_graded(folder, monkeypatch):
    for place in ("ada.ipynb", "bob/a/01_one.ipynb", "bob/b/01_one.ipynb"):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook("a = 2", "b = 3"), folder / place)
    copies = []

    def graded(path, profile, copy):
        copies.append(copy.relative_to(folder / "out").as_posix())
        copy.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(nbformat.read(path, as_version=4), copy)
        return path.stem, {1: grading.RIGHT}

    monkeypatch.setattr(grading, "grade", graded)
    for _ in range(2):
        copies.clear()
        grading.grade_folder(folder, "smoke", folder / "out", lambda line: None)
        assert copies == ["ada/ada.ipynb", "bob/a/01_one.ipynb", "bob/b/01_one.ipynb"]


def test_what_the_profile_cannot_check_is_not_wrong():
    executed = notebook("a = 5", checks=('check(1, "a", 2, checkable=False)',))
    said = "Exercise 1: Not checkable under this profile: it trains too little.\n"
    executed.cells[-1].outputs = [new_output("stream", text=said)]
    original = notebook("a = ...", checks=('check(1, "a", 2, checkable=False)',))
    assert grading._results(original, executed) == {1: "not checkable"}


def test_a_folder_without_notebooks_is_told(folder):
    result = call(folder)
    assert isinstance(result.exception, UserError) and "has no notebooks" in str(result.exception)
    assert not (folder / "out").exists()

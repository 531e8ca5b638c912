"""The runner checks everything before it starts, goes on after a failure, leaves its artefacts."""

import json
import os
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell
from typer.testing import CliRunner

from mtlib import cli
from mtlib.errors import UserError
from mtlib.tutorial import runner
from mtlib.tutorial.runner import check_parameters, find, publish, run_notebooks, source_sha256
from tests.tutorial.made_up import write

SHOW = """\
import json
from pathlib import Path

Path("left.json").write_text(json.dumps([[type(v).__name__, v] for v in (n, rate, flag, name)]))"""
SLIDER = """\
from IPython.display import display
widget = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/plain": "a slider"}
display(widget, raw=True)"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    monkeypatch.setattr(runner, "NOTEBOOK_DIR", folder)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    return folder


def call(*arguments):
    return CliRunner().invoke(cli.app, ["notebooks", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("07", "no notebook '07'; expected one of 01_one, 02_two"),
        ("-p rat=0.5", "did you mean 'rate'?"),
        ("-p zzz=0.5", "unknown parameter 'zzz'; expected one of csv, flag, n, name, rate, word"),
        ("01 -p word=a", "unknown parameter 'word'"),
        ("-p n=None", "parameter n is 'None'; expected int"),
        ("-p n", "-p is 'n'; expected NAME=VALUE"),
        ("--publish -p n=2", "--publish stores a run of the cpu profile"),
    ],
)
def test_bad_input_stops_before_anything_runs(folder, tmp_path, arguments, message):
    write(folder, "01_one", SHOW)
    write(folder, "02_two", parameters='word: str = "x"  # a word')
    result = call(*arguments.split(), "--out", tmp_path / "out")
    assert isinstance(result.exception, UserError) and message in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_a_parameter_goes_to_the_notebooks_that_have_it_in_the_declared_type(folder):
    one = write(folder, "01_one")
    two = write(folder, "02_two", parameters='word: str = "x"  # a word')
    given = {"n": "3", "rate": "1", "flag": "False", "name": "7", "word": "None"}
    values = check_parameters([one, two], given)
    assert values == {
        one: {"n": 3, "rate": 1.0, "flag": False, "name": "7"},
        two: {"word": "None"},
    }
    assert type(values[one]["rate"]) is float


def test_a_file_means_the_same_to_a_notebook_that_runs_elsewhere(folder, tmp_path, monkeypatch):
    (tmp_path / "mine.csv").touch()
    monkeypatch.chdir(tmp_path)
    path = write(folder, "01_one")
    (values,) = check_parameters([path], {"csv": "mine.csv", "name": "mine.csv"}).values()
    assert values == {"csv": str(tmp_path / "mine.csv"), "name": "mine.csv"}


def test_find_and_list(folder):
    with pytest.raises(UserError, match="no notebooks in"):
        find()
    paths = [write(folder, stem) for stem in ("02_two", "01_one")]
    write(folder, "draft")
    assert find() == find(["02", "01_one"]) == [paths[1], paths[0]]
    assert find(["notebooks/02_two.ipynb"]) == [paths[0]]
    result = call("--list", "01")
    for part in ("rate", "float", "0.1", "a share"):
        assert part in result.output


def test_a_failure_stops_no_other_notebook_and_all_is_told(folder, tmp_path):
    out = tmp_path / "out"
    one = write(folder, "01_one", SHOW, f"# wait\nimport time; time.sleep(0.3)\n{SLIDER}")
    two = write(folder, "02_two", "before = 1", "# the sum\nlost = before + 'no number'")
    three = write(folder, "03_three", "import os; os._exit(3)")
    typed = {"n": 3, "rate": 1.0, "flag": False, "name": "7"}
    seen = []
    values = {one: typed, two: {}, three: {}}
    results = run_notebooks(values, out, progress=lambda *progress: seen.append(progress))
    first, second, third = results

    # title, parameters as declared and as given, two cells; then it stops at a cell that fails
    assert seen[:6] == [("01_one", done, 5) for done in (0, 0, 1, 2, 3, 4)]
    assert seen[6:11] == [("02_two", done, 4) for done in (0, 0, 1, 2, 3)]
    assert seen[11:] == [("03_three", done, 3) for done in (0, 0, 1, 2)]
    assert (first.status, second.status, third.status) == ("ok", "failed", "failed")
    assert first.error == "" and first.seconds > 0.3
    seconds, where = max(first.cells)
    assert where == "Title: import time; time.sleep(0.3)" and seconds >= 0.3
    assert len(first.cells) == 4, "the parameters as declared and as given, and two more"
    assert second.error.startswith("cell [3]:\n# the sum\nlost = before + 'no number'")
    assert "TypeError" in second.error
    assert "\x1b[" not in second.error
    assert "exit code 3" in third.error
    assert third.error.endswith("In the cell:\nimport os; os._exit(3)")
    assert "| 02_two | failed |" in (out / "summary.md").read_text()
    shown = json.loads((out / "left.json").read_text())  # in the folder of the results
    assert shown == [[type(value).__name__, value] for value in typed.values()]
    for name in ("01_one", "02_two"):
        executed = nbformat.read(out / f"{name}.ipynb", as_version=4)
        assert "widgets" not in executed.metadata and "Title" in (out / f"{name}.html").read_text()
        outputs = [cell.get("outputs") for cell in executed.cells]
        assert "a slider" not in str(outputs), "it does nothing on a page"


def test_a_hang_is_ended_with_its_kernel(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "CELL_SECONDS", 3)
    code = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)"
    hangs = write(folder, "01_hangs", code, "never = 1")
    (result,) = run_notebooks({hangs: {}}, tmp_path / "out")
    assert result.status == "failed" and "time.sleep(600)" in result.error and result.seconds < 60
    *_, hung, never = nbformat.read(tmp_path / "out" / hangs.name, as_version=4).cells
    assert never.execution_count is None
    with pytest.raises(ProcessLookupError):
        os.kill(int(hung.outputs[0].text), 0)


def test_publish_puts_the_outputs_into_the_source(folder, tmp_path):
    path = write(folder, "01_one", "print(n + 1)")
    before = nbformat.read(path, as_version=4)
    metadata = {"tags": ["install"], "cellView": "form", "own": 1}
    before.cells.insert(1, new_code_cell('repository = ""  # the address', metadata=metadata))
    before.metadata["mtlib"] = {"source_sha256": "old"}
    nbformat.write(before, path)
    project = "[project]\nname = 'x'\n[project.urls]\nRepository = 'https://e.org/a'\n"
    (tmp_path / "pyproject.toml").write_text(project)
    executed = tmp_path / "executed.ipynb"
    run = nbformat.from_dict(before)
    run.metadata["papermill"] = {"input_path": str(tmp_path)}
    run.cells[-1].outputs = [nbformat.v4.new_output("stream", text="2\n")]
    for cell in run.cells:
        cell.metadata["papermill"] = {"duration": 1.0}
    nbformat.write(run, executed)
    publish(executed, path)
    published = nbformat.read(path, as_version=4)
    nbformat.validate(published)
    assert published.metadata.mtlib == {"source_sha256": source_sha256(before)}
    assert published.metadata.keys() == {"kernelspec", "language_info", "mtlib"}
    assert published.cells[-1].outputs[0].text == "2\n" and str(tmp_path) not in path.read_text()
    install = published.cells[1]
    assert install.metadata == {"tags": ["install"], "cellView": "form"}
    assert install.source == 'repository = "https://e.org/a"  # the address'


def test_the_command_publishes_what_succeeds(folder, tmp_path):
    expect = "from mtlib.tutorial.expected import expect\nexpect('cpu', {'share': (n, 0, 1)})"
    path = write(folder, "01_one", "print(n + 1)", expected=expect)
    broken = write(folder, "02_broken", "n = 2", expected=expect)
    result = call("--publish", "--out", tmp_path / "new")
    assert result.exit_code == 1 and "share: 2 is not within 0 to 1" in result.output
    begun, ended, held, *_ = map(str.strip, result.output.splitlines())
    assert begun.split() == ["01_one", "begins", "(1", "of", "2)"] and ended.startswith("01_one")
    assert held == "All 1 results are within their bounds."
    summary = (tmp_path / "new" / "summary.md").read_text()
    assert "| 1 of 1 results are not as expected" in summary
    assert nbformat.read(path, as_version=4).cells[-2].outputs[0].text == "2\n"
    assert "source_sha256" not in broken.read_text()


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

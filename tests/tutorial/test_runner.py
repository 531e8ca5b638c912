"""The runner checks everything before it starts, goes on after a failure, leaves its artefacts."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from typer.testing import CliRunner

import mtlib
from mtlib import cli
from mtlib.errors import UserError
from mtlib.tutorial import runner
from mtlib.tutorial.runner import check_parameters, find, run_notebooks
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
    assert values == {one: {"n": 3, "rate": 1.0, "flag": False, "name": "7"}, two: {"word": "None"}}
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
    first, second, third = run_notebooks({one: typed, two: {}, three: {}}, out)

    assert (first.status, second.status, third.status) == ("ok", "failed", "failed")
    assert first.error == "" and first.seconds > 0.3
    assert second.error.startswith("cell [3]:\n# the sum\nlost = before + 'no number'")
    assert "TypeError" in second.error
    assert "\x1b[" not in second.error
    assert "Kernel died" in third.error
    assert third.error.endswith("In the cell:\nimport os; os._exit(3)")
    shown = json.loads((out / "left.json").read_text())  # in the folder of the results
    assert shown == [[type(value).__name__, value] for value in typed.values()]
    for name in ("01_one", "02_two"):
        executed = nbformat.read(out / f"{name}.ipynb", as_version=4)
        assert "widgets" not in executed.metadata and "Title" in (out / f"{name}.html").read_text()
        outputs = [cell.get("outputs") for cell in executed.cells]
        assert "a slider" not in str(outputs), "it does nothing on a page"


def test_two_run_at_once_and_ctrl_c_ends_both(folder, tmp_path):
    out = tmp_path / "out"
    code = "import os, pathlib, time\npathlib.Path('{}.pid').write_text(str(os.getpid()))\n"
    wait = "while not pathlib.Path('{}.pid').exists(): time.sleep(0.01)"
    for name, other in (("01_one", "02_two"), ("02_two", "01_one"), ("03_three", "01_one")):
        write(folder, name, code.format(name) + wait.format(other), "time.sleep(600)")
    start = (
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"  # in a job too
        "from pathlib import Path; import mtlib.cli; from mtlib.tutorial import runner\n"
        f"runner.NOTEBOOK_DIR = Path({str(folder)!r})\n"
        f"mtlib.cli.app(['notebooks', '--out', {str(out)!r}])"
    )
    command = subprocess.Popen(
        [sys.executable, "-c", start], start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    files = [out / "01_one.pid", out / "02_two.pid"]
    while not all(file.exists() and file.read_text() for file in files):
        assert command.poll() is None, command.stderr.read()
        time.sleep(0.1)
    os.killpg(command.pid, signal.SIGINT)
    _, errors = command.communicate(timeout=200)
    assert command.returncode == cli.INTERRUPTED and "Traceback" not in errors
    for file in files:
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.read_text()), 0)
    assert not (out / "03_three.pid").exists()


def test_another_python_under_the_name_python3_is_not_started(folder, tmp_path, monkeypatch):
    spec = tmp_path / "jupyter" / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    kernelspec = {"argv": ["false"], "display_name": "Python 3", "language": "python"}
    spec.write_text(json.dumps(kernelspec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    source = "import sys, os, mtlib\nprint(sys.executable, mtlib.__file__, os.getcwd(), sep='\\n')"
    path = write(folder, "01_one", source)
    out = tmp_path / "out"
    (result,) = run_notebooks({path: {}}, out)
    assert result.status == "ok", result.error
    printed = nbformat.read(out / path.name, as_version=4).cells[-1].outputs[0].text
    assert printed.splitlines() == [sys.executable, mtlib.__file__, str(out)]


def test_with_a_card_they_run_one_by_one(folder, tmp_path, monkeypatch):
    for stem in ("01_one", "02_two"):
        write(folder, stem, parameters='profile: str = "cpu"  # how much')
    at_once = []
    monkeypatch.setattr(runner, "run_notebooks", lambda *given: at_once.append(given[-1]) or [])
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for options in (["--profile", "gpu"], ["-p", "profile=gpu"], []):
        call(*options, "--out", tmp_path / "out")
    assert at_once == [1, 1, 2]


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


def test_what_the_last_cell_expects_is_told(folder, tmp_path):
    expect = "from mtlib.tutorial.expected import expect\nexpect('cpu', {'share': (n, 0, 1)})"
    write(folder, "01_one", "print(n + 1)", expected=expect)
    write(folder, "02_broken", "n = 2", expected=expect)
    result = call("--out", tmp_path / "new")
    assert result.exit_code == 1 and "share: 2 is not within 0 to 1" in result.output
    lines = [line.strip() for line in result.output.splitlines()]
    ended = next(
        number
        for number, line in enumerate(lines)
        if line.startswith("01_one  ") and " ok " in line
    )
    assert lines[ended + 1] == "All 1 results are within their bounds."
    assert "1 of 1 results are not as expected" in result.output

"""The notebooks: what each of them promises, the runner, and what a whole run of them leaves behind."""

import ast
import base64
import io
import json
import math
import re
import sys
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import nbformat
import numpy as np
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from matplotlib.image import imread
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from typer.testing import CliRunner

from mtlib import cli
from mtlib.analysis.statistics import FAILS, HOLDS, NOT_RUN, OPEN
from mtlib.errors import UserError
from mtlib.paths import DATA_DIR
from mtlib.runs.profiles import load
from mtlib.runs.records import SCHEMA_VERSION, read_records
from mtlib.study import claims
from mtlib.tutorial import publishing, runner, watchdog
from mtlib.tutorial.publishing import publish
from mtlib.tutorial.runner import Result, check_parameters, find, parameters_of, run_notebooks
from mtlib.tutorial.runner import source_sha256 as sha256_of

NOTEBOOKS = find()
ROOT = Path(__file__).resolve().parents[2]
MACHINE_PATHS = tuple(f"/{name}/" for name in ("tmp", "home", "root", "work"))


def tagged(notebook, tag: str) -> list:
    return [cell for cell in notebook.cells if tag in cell.metadata.get("tags", [])]


def code_cells(notebook) -> list:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def images(notebook) -> list[tuple[bytes, dict]]:
    """Every image in the outputs, with its metadata."""
    return [
        (base64.b64decode(output.data["image/png"]), output.metadata.get("image/png", {}))
        for cell in code_cells(notebook)
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]


def errors(notebook) -> list:
    return [output for cell in code_cells(notebook) for output in cell.outputs if output.output_type == "error"]


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def path(request) -> Path:
    return request.param


@pytest.fixture
def notebook(path):
    return nbformat.read(path, as_version=4)


class TestContract:
    def test_format(self, path, notebook):
        nbformat.validate(json.loads(path.read_text()))
        assert notebook.metadata.kernelspec.name == "python3"
        assert (notebook.nbformat, notebook.nbformat_minor) >= (4, 5), "cells have ids from 4.5 on"
        ids = [cell["id"] for cell in json.loads(path.read_text())["cells"]]
        assert len(ids) == len(set(ids))
        assert path.stat().st_size < 500_000
        assert "widgets" not in notebook.metadata

    def test_parameters(self, path, notebook):
        (cell,) = tagged(notebook, "parameters")
        lines = [line for line in cell.source.splitlines() if line and line != "from typing import Optional"]
        for line in lines:
            assert re.fullmatch(r"\w+: [\w\[\]]+ = .+  # .+", line), line
        found = parameters_of(path)
        assert list(found) == [statement.target.id for statement in ast.parse("\n".join(lines)).body]
        for name, one in found.items():
            assert one["help"].strip() and one["inferred_type_name"] != "None", name
            inner = re.sub(r"Optional\[(\w+)\]", r"\1", one["inferred_type_name"])
            text, value = {"str": ("a", "a"), "int": ("2", 2), "float": ("2", 2.0), "bool": ("true", True)}[inner]
            typed = check_parameters([path], {name: text})[path][name]
            assert typed == value and type(typed) is type(value), name
            default = ast.literal_eval(one["default"])
            assert type(default) is type(value) or (default is None and inner != one["inferred_type_name"]), name
        assert found["profile"]["default"] == '"cpu"'

    def test_install_cell(self, notebook):
        (cell,) = tagged(notebook, "install")
        assert code_cells(notebook)[0] is cell
        assert cell.source == publishing.install_cell(publishing.repository()), "run `python -m mtlib pages`"
        for other in code_cells(notebook):
            for line in other.source.splitlines():
                assert other is cell or not re.match(r"\s*(!|[%]?pip\b|%conda\b)", line), line
            assert not re.search(r"\blogin\b|\btoken\s*=", other.source), other.source

    def test_no_path_of_one_machine(self, notebook):
        for cell in notebook.cells:
            outputs = [
                {**output, "data": {kind: text for kind, text in output.get("data", {}).items() if "image" not in kind}}
                for output in cell.get("outputs", [])
            ]
            text = cell.source + json.dumps(outputs)
            assert not any(part in text for part in MACHINE_PATHS), cell.id

    def test_what_the_readme_shows_of_it(self, notebook):
        assert notebook.metadata.mtlib["learn"] and notebook.metadata.mtlib["needs"]

    def test_outputs_are_there_and_made_by_this_code(self, path, notebook):
        advice = "run `python -m mtlib notebooks --publish` and commit it"
        own = notebook.metadata.mtlib
        assert own.get("source_sha256") == sha256_of(notebook), f"{path.name} has outputs of other code; {advice}"
        assert own["cpu_seconds"] > 0
        for cell in code_cells(notebook):
            assert cell.execution_count is not None, f"{path.name} was not run to its end; {advice}"
        assert any(cell.outputs for cell in code_cells(notebook)) and not errors(notebook)

    def test_pictures_have_alternative_texts(self, notebook):
        for _, metadata in images(notebook):
            assert len(metadata["alt"]) > 20


# ------------------------------------------------------------------------------------------------------- the runner

PARAMETERS = """\
from typing import Optional

n: int = 1  # a whole number
rate: float = 0.1  # a share
flag: bool = True  # yes or no
name: str = "x"  # a word
most: Optional[int] = 5  # a number or None"""
SHOW = """\
import json
from pathlib import Path

Path("left.json").write_text(json.dumps([[type(v).__name__, v] for v in (n, rate, flag, name, most)]))"""


def write(folder: Path, stem: str, *sources: str, parameters: str = PARAMETERS) -> Path:
    cells = [new_markdown_cell("# Title"), new_code_cell(parameters, metadata={"tags": ["parameters"]})]
    cells += [new_code_cell(source) for source in sources]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=cells, metadata=kernel | {"widgets": {"state": {}}}), folder / f"{stem}.ipynb")
    return folder / f"{stem}.ipynb"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    for module in (runner, publishing):
        monkeypatch.setattr(module, "NOTEBOOK_DIR", folder)
    return folder


def call(*arguments):
    return CliRunner().invoke(cli.app, ["notebooks", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("07", "no notebook '07'; expected one of 01_one, 02_two"),
        ("-p rat=0.5", "unknown parameter 'rat'; the chosen notebooks have flag, most, n, name, rate, word"),
        ("01 -p word=a", "unknown parameter 'word'"),
        ("-p n=0.5", "parameter n is '0.5'; expected int"),
        ("-p n=None", "parameter n is 'None'; expected int"),
        ("-p rate=much", "parameter rate is 'much'; expected float"),
        ("-p flag=1", "parameter flag is '1'; expected true or false"),
        ("-p most=some", "parameter most is 'some'; expected int"),
        ("-p n", "-p is 'n'; expected NAME=VALUE"),
        ("-p profile=smoke", "give the profile with --profile"),
        ("--profile huge", "profile is 'huge'"),
        ("--publish -p n=2", "--publish stores a fresh run of the cpu profile"),
        ("--publish --resume", "--publish stores a fresh run of the cpu profile"),
    ],
)
def test_bad_input_stops_before_anything_runs(folder, tmp_path, arguments, message):
    write(folder, "01_one", SHOW)
    write(folder, "02_two", parameters='word: str = "x"  # a word')
    result = call(*arguments.split(), "--out", tmp_path / "out")
    assert isinstance(result.exception, UserError) and message in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_a_parameter_goes_to_the_notebooks_that_have_it_in_the_declared_type(folder):
    one, two = write(folder, "01_one"), write(folder, "02_two", parameters='word: str = "x"  # a word')
    given = {"n": "3", "rate": "1", "flag": "False", "name": "7", "most": "None", "word": "None"}
    values = check_parameters([one, two], given)
    assert values == {
        one: {"n": 3, "rate": 1.0, "flag": False, "name": "7", "most": None},
        two: {"word": "None"},
    }
    assert type(values[one]["rate"]) is float
    assert check_parameters([one], {"most": "4"}) == {one: {"most": 4}}


def test_a_place_means_the_same_to_a_notebook_that_runs_elsewhere(folder, tmp_path, monkeypatch):
    lines = 'source: str = ""  # testbed, hub or a folder\nname: str = ""  # a word'
    one = write(folder, "01_one", parameters=lines)
    (tmp_path / "releases").mkdir()
    monkeypatch.chdir(tmp_path)
    values = check_parameters([one], {"source": "releases", "name": "releases"})[one]
    assert values == {"source": str(tmp_path / "releases"), "name": "releases"}
    assert check_parameters([one], {"source": "hub"})[one] == {"source": "hub"}


def test_find(folder):
    with pytest.raises(UserError, match="no notebooks in"):
        find()
    paths = [write(folder, stem) for stem in ("02_two", "01_one")]
    write(folder, "draft")
    assert find() == find(["02", "01_one"]) == [paths[1], paths[0]]
    assert find(["notebooks/02_two.ipynb"]) == [paths[0]]


def test_list_of_parameters(folder):
    write(folder, "01_one")
    result = call("--list")
    assert result.exit_code == 0
    for part in ("rate", "float", "0.1", "a share", "Optional[int]", "a number or None"):
        assert part in result.output


def summary(out: Path) -> dict[str, Result]:
    return {entry["name"]: Result(**entry) for entry in json.loads((out / "summary.json").read_text())}


def test_a_failure_stops_no_other_notebook_and_resume_repeats_what_failed(folder, tmp_path):
    out = tmp_path / "out"
    write(folder, "01_one", SHOW, "# wait\nimport time; time.sleep(0.3)")
    write(folder, "02_two", "before = 1", "# the sum\nlost = before + 'no number'")
    write(folder, "03_three", "pass")
    parameters = ("-p", "n=3", "-p", "rate=1", "-p", "flag=false", "-p", "name=7", "-p", "most=None", "--out", out)
    result = call(*parameters)
    assert result.exit_code == 1
    assert "# the sum\nlost = before + 'no number'" in result.output and "TypeError" in result.output
    assert "\x1b[" not in result.output

    first, second, third = summary(out).values()
    assert (first.status, second.status, third.status) == ("ok", "failed", "ok")
    assert first.error == "" and first.seconds > 0.3
    assert first.slowest[0][1] == "Title: import time; time.sleep(0.3)" and first.slowest[0][0] >= 0.3
    assert "lost = before" in second.error and "unsupported operand" in second.error
    assert "| 02_two | failed |" in (out / "summary.md").read_text()

    # typed as declared, in the folder of the results
    typed = [["int", 3], ["float", 1.0], ["bool", False], ["str", "7"], ["NoneType", None]]
    assert json.loads((out / "left.json").read_text()) == typed
    for name in ("01_one", "02_two"):
        executed = nbformat.read(out / f"{name}.ipynb", as_version=4)
        assert "widgets" not in executed.metadata and "Title" in (out / f"{name}.html").read_text()
    assert len(errors(executed)) == 1

    # the code of the second is mended: it alone runs again
    executed = (out / "01_one.ipynb").read_bytes()
    write(folder, "02_two", "before = 1", "lost = before + 1")
    result = call(*parameters, "--resume")
    assert result.exit_code == 0, result.output
    assert [result.status for result in summary(out).values()] == ["kept", "ok", "kept"]
    assert (out / "01_one.ipynb").read_bytes() == executed
    assert summary(out)["01_one"].seconds == first.seconds

    # other parameters: the first runs again, and the others are not forgotten
    result = call("01", "-p", "n=4", "--out", out, "--resume")
    assert [result.status for result in summary(out).values()] == ["ok", "ok", "kept"]
    assert json.loads((out / "left.json").read_text())[0] == ["int", 4]
    result = call(*parameters, "--resume")
    assert [result.status for result in summary(out).values()] == ["ok", "kept", "kept"]

    with pytest.raises(UserError, match="was run with changed parameters"):
        publish(out / "01_one.ipynb", tmp_path / "published.ipynb", 1.0)
    assert not (tmp_path / "published.ipynb").exists()


SLOW = "import time\nfor step in range(12):\n    print(step)\n    time.sleep(0.5)"
SILENT = "print('before')\ntime.sleep(600)  # a hang"


def test_a_hang_is_stopped_and_a_slow_notebook_is_not(folder, tmp_path, monkeypatch):
    seconds = 3
    monkeypatch.setattr("mtlib.runs.profiles.silent_minutes", lambda profile: seconds / 60)
    write(folder, "01_slow", SLOW)
    write(folder, "02_hangs", "import time", SILENT, "never = 1")
    write(folder, "03_next", "pass")
    out = tmp_path / "out"
    result = call("--out", out)
    assert result.exit_code == 1
    slow, hangs, following = summary(out).values()
    assert (slow.status, hangs.status, following.status) == ("ok", "failed", "ok"), slow.error + following.error
    assert slow.seconds > 2 * seconds, "longer than the limit, with signs of life"
    assert hangs.error.startswith("stopped: no output and no training step for 0.05 minutes") and SILENT in hangs.error
    assert "line 2 in <module>" in hangs.error, "where it hangs"
    assert hangs.seconds < 60 and hangs.error in result.output
    cells = code_cells(nbformat.read(out / "02_hangs.ipynb", as_version=4))
    assert cells[-2].outputs[0].text == "before\n" and cells[-1].execution_count is None


def test_a_forward_pass_is_a_sign_of_life(tmp_path, monkeypatch):
    signs, sent = [], []
    monkeypatch.setattr(watchdog.faulthandler, "dump_traceback_later", lambda seconds, **_: signs.append(seconds))
    monkeypatch.setattr(
        watchdog.sys.modules["torch"].nn.modules.module, "_global_forward_pre_hooks", OrderedDict()
    )  # so that the hook goes when the test does
    session = SimpleNamespace(send=lambda *message: sent.append(message))
    handlers = {}
    shell = SimpleNamespace(
        kernel=SimpleNamespace(session=session), events=SimpleNamespace(register=handlers.__setitem__)
    )
    dog = watchdog.Watchdog(2.0, str(tmp_path / "report"))
    dog.attach(shell)
    session.send("between cells")
    assert signs == [] and sent == [("between cells",)]
    handlers["pre_run_cell"](None)
    assert signs == [120.0]
    for sign in (lambda: session.send("output"), lambda: torch.nn.Linear(1, 1)(torch.zeros(1))):
        signs.clear()
        dog.last_sign = 0.0  # signs within a second count as one
        sign()
        sign()
        assert signs == [120.0]
    handlers["post_run_cell"](None)
    dog.last_sign = 0.0
    session.send("between cells")
    assert signs == [120.0]


def test_publish_refuses_runs_of_earlier_calls(folder, tmp_path):
    write(folder, "01_one", SHOW)
    (tmp_path / "out" / "runs").mkdir(parents=True)
    result = call("--publish", "--out", tmp_path / "out")
    assert "has earlier ones; delete it, or give --out" in str(result.exception)


def test_publish_puts_the_outputs_into_the_source(folder, tmp_path):
    path = write(folder, "01_one", "print(n + 1)")
    before = nbformat.read(path, as_version=4)
    readme = tmp_path / "README.md"
    readme.write_text("# Top\n<!-- made: notebooks -->\nold\n<!-- end -->\nrest\n")
    result = call("--publish", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    published = nbformat.read(path, as_version=4)
    nbformat.validate(published)
    own = published.metadata.mtlib
    assert own.source_sha256 == sha256_of(before) == sha256_of(published)
    assert own.cpu_seconds == round(summary(tmp_path / "out")["01_one"].seconds)
    assert published.cells[-1].outputs[0].text == "2\n" and published.cells[-1].execution_count == 2
    assert published.metadata.keys() == {"kernelspec", "language_info", "mtlib"}
    page = readme.read_text()
    assert page == f"# Top\n<!-- made: notebooks -->\n\n{publishing.table()}\n\n<!-- end -->\nrest\n"
    assert "| not run |" not in page
    for cell, old in zip(published.cells, before.cells, strict=True):
        assert (cell.id, cell.source, cell.metadata) == (old.id, old.source, old.metadata)


def test_publish_keeps_what_is_the_notebooks_own(tmp_path):
    cell = new_code_cell(
        "1", metadata={"tags": [], "papermill": {"duration": 1.0}, "execution": {}, "cellView": "form"}
    )
    cell.outputs = [new_output("execute_result", {"text/plain": "1"})]
    metadata = {
        "papermill": {"input_path": "/home/me"},
        "widgets": {},
        "mtlib": {"learn": "all", "source_sha256": "old"},
    }
    nbformat.write(new_notebook(cells=[cell], metadata=metadata), tmp_path / "a.ipynb")
    publish(tmp_path / "a.ipynb", tmp_path / "b.ipynb", 61.7)
    published = nbformat.read(tmp_path / "b.ipynb", as_version=4)
    assert published.cells[0].metadata == {"cellView": "form"} and published.cells[0].outputs == cell.outputs
    assert published.metadata.mtlib == {"learn": "all", "source_sha256": sha256_of(published), "cpu_seconds": 62}
    assert "/home/me" not in (tmp_path / "b.ipynb").read_text()


def test_the_hash_is_of_the_code_alone():
    def made(*cells):
        return sha256_of(new_notebook(cells=list(cells)))

    code, again = new_code_cell("a = 1"), new_code_cell("a = 1")
    injected = new_code_cell("a = 2", metadata={"tags": ["injected-parameters"]})
    install = new_code_cell("a = 3", metadata={"tags": ["install"]})
    assert made(code) == made(new_markdown_cell("text"), code) == made(code, injected) == made(install, code)
    assert len({made(code), made(new_code_cell("a = 2")), made(code, again)}) == 3


def test_table_for_the_readme(folder):
    path = write(folder, "01_one")
    assert publishing.table().splitlines()[-1] == "| [01_one](notebooks/01_one.ipynb) |  | not run |"
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata["mtlib"] = {"learn": "everything", "cpu_seconds": 90}
    nbformat.write(notebook, path)
    assert "| everything | 1.5 |" in publishing.table()


def test_install_cells_get_the_projects_address(folder, tmp_path):
    path = write(folder, "01_one")
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, new_code_cell("old", metadata={"tags": ["install"]}))
    nbformat.write(notebook, path)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert publishing.repository() == "" and publishing.update_install_cells() == ["01_one"]
    address = "https://example.org/mtlib"
    (tmp_path / "pyproject.toml").write_text(f"[project]\nname = 'x'\n[project.urls]\nRepository = '{address}'\n")
    assert publishing.update_install_cells() == ["01_one"] and publishing.update_install_cells() == []
    (cell,) = tagged(nbformat.read(path, as_version=4), "install")
    assert f'repository = "{address}"' in cell.source


class Colab(InteractiveShell):
    """A session on Colab, as far as the install cell sees it: what it asks, and what it would install."""

    def __init__(self, monkeypatch, answer: str = ""):
        super().__init__()
        self.asked, self.installed = [], []
        monkeypatch.setitem(sys.modules, "google.colab", SimpleNamespace())
        monkeypatch.setattr("builtins.input", lambda question: self.asked.append(question) or answer)
        self.register_magic_function(self.installed.append, magic_name="pip")


def test_install_cell_on_colab(monkeypatch):
    session = Colab(monkeypatch)
    session.run_cell(publishing.install_cell("https://example.org/a")).raise_error()
    assert session.installed == ['install -q "mtlib[notebooks] @ git+https://example.org/a"'] and not session.asked
    session = Colab(monkeypatch, answer="https://example.org/b")
    session.run_cell(publishing.install_cell("")).raise_error()
    assert session.installed == ['install -q "mtlib[notebooks] @ git+https://example.org/b"']
    assert session.asked == ["Which repository is this notebook from? Its address (https://...): "]


def test_install_cell_elsewhere(monkeypatch):
    session = Colab(monkeypatch)
    monkeypatch.delitem(sys.modules, "google.colab")
    session.run_cell(publishing.install_cell("")).raise_error()
    assert not session.installed and not session.asked


# ------------------------------------------------------------------------------------- every notebook, run as a whole

# new records after each notebook in the smoke profile; a notebook that trains nothing, or only reads, leaves none
SMOKE = load("smoke")
RECORDS = {
    "01_data": 0,
    "02_baseline": 1,
    "03_mask_tuning": 0,
    "04_ablations": 4,  # one trunk and two, each at two values of alpha
    "05_diversity": 0,
    "06_policies": 0,
    "07_peers": 0,
    "08_reproduction": 0,
}


class Left:
    """What a run of all notebooks in order leaves in its folder."""

    def __init__(self, out: Path):
        self.out, self.records_after = out, {}

        def report(result: Result) -> None:
            self.records_after[result.name] = len(list((out / "runs").glob("*.json")))

        values = check_parameters(NOTEBOOKS, {"profile": "smoke"})
        self.results = run_notebooks(values, out, silent_minutes=20, report=report)

    def executed(self, path: Path):
        return nbformat.read(self.out / path.name, as_version=4)


@pytest.fixture(scope="module")
def left(tmp_path_factory) -> Left:
    return Left(tmp_path_factory.mktemp("smoke"))


class TestWholeRun:
    def test_every_notebook_ends_well(self, left):
        for result in left.results:
            assert result.status == "ok", f"{result.name}: {result.error}"
        assert [result.name for result in left.results] == [path.stem for path in NOTEBOOKS]
        assert "failed" not in (left.out / "summary.md").read_text()

    def test_every_cell_was_run(self, left, path):
        executed = left.executed(path)
        assert not errors(executed)
        for cell in code_cells(executed):
            assert cell.execution_count is not None and cell.metadata.papermill.status == "completed", cell.source
        assert executed.metadata.papermill.parameters == {"profile": "smoke"}
        assert "widgets" not in executed.metadata
        assert sha256_of(executed) == sha256_of(nbformat.read(path, as_version=4))

    def test_no_warning_is_printed(self, left, path):
        for cell in code_cells(left.executed(path)):
            for output in cell.outputs:
                assert output.get("name") != "stderr", f"{cell.source}\n{output.get('text')}"

    def test_pictures_are_drawn_and_described(self, left, path):
        found = images(left.executed(path))
        assert found, "a notebook without a picture"
        for png, metadata in found:
            pixels = imread(io.BytesIO(png), format="png")  # (height, width, channels)
            assert min(pixels.shape[:2]) > 100
            colours = np.unique(np.rint(255 * pixels[..., :3]) @ [65536, 256, 1])
            assert len(colours) > 8, "blank"
            assert len(metadata["alt"]) > 20 and "nan" not in metadata["alt"]

    def test_page_has_the_texts_and_folds_the_solutions(self, left, path):
        page, executed = (left.out / f"{path.stem}.html").read_text(), left.executed(path)
        folded = re.findall(r"<details[^>]*><summary>Solution</summary>", page)
        assert len(folded) == len(tagged(executed, "solution"))
        assert "No description has been provided for this image" not in page
        assert page.count("<img") == page.count(" alt=") >= len(images(executed))
        assert f"<title>{path.stem}</title>" in page
        assert "<script" not in page and "$$" not in page, "a page that needs a network"
        for target in re.findall(r'href="([^"#:]+)"', page):  # no anchor, no address of the web
            assert target in {f"{other.stem}.html" for other in NOTEBOOKS}, target

    def test_reproduction_shows_the_verdicts_of_the_records(self, left):
        expected = claims.verdicts(read_records([DATA_DIR / "results" / "study.jsonl"]))
        words = "|".join((HOLDS, FAILS, OPEN, NOT_RUN, claims.MIXED))
        shown = [
            re.findall(f"<td[^>]*>({words})</td>", output.data["text/html"])
            for cell in code_cells(left.executed(ROOT / "08_reproduction.ipynb"))
            if cell.source.startswith("claims.verdicts(found)")
            for output in cell.outputs
        ]
        assert shown == [expected["here"].tolist()]

    def test_number_of_records(self, left):
        before = 0
        for name, after in left.records_after.items():
            if name in RECORDS:
                assert after - before == RECORDS[name], name
            before = after

    def test_records(self, left):
        records = read_records([left.out / "runs"])
        assert len(records) == len(list((left.out / "runs").glob("*.json"))) > 0
        for record in records:
            assert record["schema_version"] == SCHEMA_VERSION
            assert record["config"]["source"] == "testbed" and record["config"]["model"] == "mini"
            assert record["metrics"] and record["cost"]["steps"] > 0 and record["cost"]["train_seconds"] > 0
            for metrics in record["metrics"].values():
                assert 0 <= metrics["accuracy"] <= 1 and 0 <= metrics["correct"] <= metrics["n"] > 0
                assert metrics["accuracy"] == metrics["correct"] / metrics["n"]
            assert record["history"]
            for entry in record["history"]:
                numbers = [value for value in entry.values() if isinstance(value, int | float)]
                assert all(map(math.isfinite, numbers)), entry
            assert record["environment"]["torch"] and record["data"]["train"]["rows"] > 0
        assert not list(left.out.rglob("*.part")) and not (left.out / "runs" / ".work").exists()

    def test_fine_tuning_is_trained_once_for_all_notebooks(self, left):
        chosen = [
            record["config"]["seed"]
            for record in read_records([left.out / "runs"])
            if record["config"]["method"] == "fine_tuning" and record["config"]["train_size"] == SMOKE["train_size"]
        ]
        assert sorted(chosen) == list(range(SMOKE["seeds"]))

    def test_first_loss_is_that_of_a_classifier_that_knows_nothing(self, left):
        for record in read_records([left.out / "runs"]):
            if record["config"]["method"] in ("fine_tuning", "mask_tuning"):
                assert record["history"][0]["ft_loss"] == pytest.approx(math.log(2), abs=0.3)

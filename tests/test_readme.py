"""The pages: short, linked, and what they print as code runs as printed."""

import ast
import re
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from mtlib.analysis.comparisons import Comparison
from mtlib.cli import app
from mtlib.cli.run import app as run_app
from mtlib.method import LearningRates
from mtlib.methods import METHODS
from mtlib.paths import MINI_MODEL_DIR
from mtlib.plm import SharedPLM
from mtlib.runs.config import configure
from mtlib.sweeps.sweep_file import expand
from tests.conftest import make_batch

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    *ROOT.glob("README.md"),
    *(page for folder in ("mtlib", "data", "notebooks") for page in (ROOT / folder).rglob("*.md")),
]
MOST_WORDS = {"README.md": 900, "mtlib/README.md": 1800, "notebooks/README.md": 2000, "data/results/REPORT.md": 2500}


def read(page: str | Path) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def code_blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", read(page), flags=re.S)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", read(page), flags=re.M)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", [page for page in MOST_WORDS if (ROOT / page).exists()])
def test_a_page_that_is_read_to_its_end(page):
    assert len([word for word in read(page).split() if word.strip("|-:")]) <= MOST_WORDS[page]  # no lines of tables


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)(.*?)\)", re.sub(r"```.*?```", "", read(page), flags=re.S)):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_commands_and_their_options_are_there(page):
    commands = get_command(app).commands
    of_data = {f"data {name}": command for name, command in commands["data"].commands.items()}
    for line in re.findall(r"(?:python -m )?\bmtlib ((?:data )?[a-z]+(?: [^`#\n]*)?)(?:`|#|$)", read(page), flags=re.M):
        words = line.split()
        name = " ".join(words[:2]) if words[0] == "data" else words[0]
        command = get_command(run_app) if name == "run" else (commands | of_data).get(name)
        assert command is not None, line
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {word.partition("=")[0] for word in words if word.startswith("-")} <= known, line


def test_the_front_pages_example_runs_as_printed(tmp_path, monkeypatch, capsys):
    """Its blocks one after the other; a list is printed as it stands there, a number within 0.05."""
    monkeypatch.chdir(tmp_path)
    printed = re.findall(r"```python\n(.*?)```\s+    (.+)\n", read("README.md"), flags=re.S)
    names = {}
    for code, expected in printed:
        capsys.readouterr()
        exec(code, names)
        got, wanted = (ast.literal_eval(text) for text in (capsys.readouterr().out.splitlines()[-1], expected))
        assert got == (pytest.approx(wanted, abs=0.05) if isinstance(wanted, float) else wanted)
    assert len(printed) == len(code_blocks("README.md", "python"))


def test_the_developers_code_runs_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    own_data, loop, bias, _ = code_blocks("mtlib/README.md", "python")
    names = {}
    exec(own_data, names)
    assert any("eval_accuracy" in entry for entry in names["trainer"].state.log_history)
    exec(loop.replace("in DataLoader(train,", "in DataLoader(train.select(range(32)),"), names)
    assert names["output"].parts.keys() >= {"mlm_loss", "ft_loss"} and names["output"].loss.isfinite()
    exec(bias, names)
    assert names["quality"]["bias_accuracy"] > 0.5


def test_the_method_that_is_printed_is_one(monkeypatch):
    monkeypatch.setitem(METHODS, "smoothed", None)  # what the page adds is taken away again
    exec(code_blocks("mtlib/README.md", "python")[-1], {})
    settings = configure("sentiment", "smoothed", smoothing=0.2).settings
    (stage,) = METHODS["smoothed"].stages(settings, LearningRates.alike(1e-4), None)
    plm = SharedPLM.from_pretrained(MINI_MODEL_DIR, num_labels=2).eval()
    output = stage.objective(plm, make_batch(plm))
    logs = output.logits.log_softmax(-1)  # (4, 2)
    gold = logs[range(4), [0, 1, 0, 1]]
    assert output.loss.item() == pytest.approx(-(0.8 * gold + 0.2 * logs.mean(1)).mean().item(), abs=1e-5)


def test_the_comparison_and_the_sweep_that_are_printed_are_read(tmp_path):
    comparison, sweep = code_blocks("mtlib/README.md", "yaml")
    ((name, entry),) = yaml.safe_load(comparison).items()
    assert Comparison(name=name, **entry).base in entry["arms"]
    (tmp_path / "sweep.yaml").write_text(sweep)
    assert len(expand(tmp_path / "sweep.yaml")) == 2 * 3 * (1 + 2)


def test_the_table_of_modules_is_whole_and_its_lines_are_about_right():
    rows = re.findall(r"^\| (`.+?) \| ([\d,]+) \|", read("mtlib/README.md"), flags=re.M)
    for modules, lines in rows:
        places = [ROOT / "mtlib" / name for name in re.findall(r"`([\w./]+)`", modules)]
        files = [file for place in places for file in (place.rglob("*.py") if place.is_dir() else [place])]
        counted = sum(len(read(file).splitlines()) for file in files)
        assert counted == pytest.approx(int(lines.replace(",", "")), rel=0.25), modules
    named = " ".join(modules for modules, _ in rows)
    assert all(f"`{place.parent.name}/`" in named for place in (ROOT / "mtlib").glob("*/__init__.py"))
